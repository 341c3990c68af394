#pragma once
// What models of the family write, made from seeds, and the tools they write it for.

#include <random>
#include <span>

#include "chat/parser.h"
#include "chat/render.h"

namespace sluice::chat {

/// read_file(path: string, start_line: integer), write_file(path, content: strings),
/// search(pattern, path?, options: object, tags: array, deep: boolean, ratio: number), list_dir()
/// without parameters.
const std::vector<ToolSpec>& corpus_tools();

const ChatTemplate& template_named(std::string_view name);

/// The assistant's turn as a model would emit it after the generation prompt: no <|im_end|>.
std::string emitted_text(const ChatTemplate& chat_template, const ChatMessage& assistant,
                         bool enable_thinking);

/// A well-formed turn: reasoning (when it thinks), text, up to three calls with values of every
/// type.
ChatMessage random_turn(std::mt19937& rng, bool with_reasoning);

/// About 200 raw outputs that begin inside a thought: well-formed ones, then the same with tags
/// dropped, white space added, text between calls, prose about tags, and cuts.
const std::vector<std::string>& raw_outputs();

/// One pass through the parser, cut at the given ascending offsets.
struct Parsed {
  ParsedMessage message;
  std::vector<ChatEvent> events;
};
Parsed parse_cut(std::string_view text, std::span<const size_t> cuts, bool in_thought = true,
                 PieceKind kind = PieceKind::kUnknown);

/// Added tokens as control pieces, all else as ordinary ones: what an engine with ids would push.
std::vector<std::pair<std::string, PieceKind>> pieces_of(std::string_view text);
Parsed parse_pieces(std::span<const std::pair<std::string, PieceKind>> pieces, bool in_thought);

/// The message on one page, for comparison and for failures.
std::string describe(const ParsedMessage& message);
/// The message that the events alone spell; must equal describe(message()).
std::string describe_events(const std::vector<ChatEvent>& events);

}  // namespace sluice::chat
