// docs/append-only.md, asserted: what a session holds after a turn is a prefix of the next prompt, or parts from it
// exactly where that page says. The emitted text is spelled here by the model's output format, not by the renderer.

#include <gtest/gtest.h>

#include <random>

#include "chat/render.h"
#include "tests/unit/chat/corpus.h"
#include "tokenizer/tokenizer.h"

namespace sluice::chat {
namespace {

/// One row of the page's table: a template, its options, and whether a new query drops thoughts.
struct Row {
  std::string_view name;
  std::optional<bool> preserve;
  bool drops;
  bool thinks_by_default = true;
  bool python_spelling = false;
};

constexpr std::optional<bool> kUnset = std::nullopt;
const Row kRows[] = {
    {"qwen3.5-small", kUnset, true, false, true},
    {"qwen3.5-small", true, true, false, true},
    {"qwen3.5-small", false, true, false, true},
    {"qwen3.5", kUnset, true, true, true},
    {"qwen3.5", true, true, true, true},
    {"qwen3.5", false, true, true, true},
    {"qwen3.6", kUnset, true},
    {"qwen3.6", true, false},
    {"qwen3.6", false, true},
    {"qwen3.8", kUnset, false},
    {"qwen3.8", true, false},
    {"qwen3.8", false, true},
    {"tiny-agent", kUnset, false},
    {"tiny-agent", true, false},
    {"tiny-agent", false, false},
};
const std::optional<bool> kThinkingModes[] = {kUnset, true, false};
const std::optional<std::string> kEfforts[] = {std::nullopt, "low", "medium"};

using Random = std::mt19937;

template <typename T, size_t N>
const T& pick(Random& rng, const T (&items)[N]) {
  return items[rng() % N];
}

const std::string kThoughts[] = {"", "Look first.", "I see:\n\n- a\n- b",
                                 "<tool_call> would be\nwrong", "0 < 1"};
const std::string kTexts[] = {
    "", "Done.", "Two\n\nparagraphs", "<b>bold</b>", "  inner  spaces kept", "<think is no tag"};
const std::string kValues[] = {"src/a.py", "two\nlines",  "",
                               " padded ", "</parameter", "{\"a\": 1}"};

/// A value and how the model spells it.
std::pair<JsonValue, std::string> random_value(Random& rng, bool python_spelling) {
  switch (rng() % 5) {
    case 0:
      return {JsonValue::integer(-17), "-17"};
    case 1:
      return {JsonValue::boolean(true), python_spelling ? "True" : "true"};
    case 2:
      return {JsonValue(), python_spelling ? "None" : "null"};
    case 3:
      return {JsonValue::object(
                  {{"k", JsonValue::array({JsonValue::real(1.0), JsonValue::string("é")})}}),
              "{\"k\": [1.0, \"é\"]}"};
    default: {
      const std::string& text = pick(rng, kValues);
      return {JsonValue::string(text), text};
    }
  }
}

/// An assistant's turn and the bytes the model wrote for it after the generation prompt, up to and with <|im_end|>.
struct Turn {
  ChatMessage message;
  std::string emitted;
};

std::string trimmed(std::string text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

Turn random_turn_of(Random& rng, const Row& row, bool thinks) {
  Turn turn{ChatMessage::assistant(thinks ? pick(rng, kThoughts) : "", trimmed(pick(rng, kTexts))),
            ""};
  std::string calls;
  for (size_t n = rng() % 3; n > 0; --n) {
    ToolCall call{"", "f", JsonValue::object()};
    calls += calls.empty() ? "" : "\n";
    calls += "<tool_call>\n<function=f>\n";
    for (const std::string key : {"a", "größe"}) {
      if (rng() % 2 == 0) continue;
      auto [value, spelled] = random_value(rng, row.python_spelling);
      call.arguments.set(key, std::move(value));
      calls += "<parameter=" + key + ">\n" + spelled + "\n</parameter>\n";
    }
    calls += "</function>\n</tool_call>";
    turn.message.tool_calls.push_back(std::move(call));
  }
  const std::string text = turn.message.text();
  if (thinks) turn.emitted = *turn.message.reasoning_content + "\n</think>\n\n";
  turn.emitted += text + (!text.empty() && !calls.empty() ? "\n\n" : "") + calls + "<|im_end|>";
  return turn;
}

/// What stands before the next turn: tool results or a query, or both.
void add_input(Random& rng, std::vector<ChatMessage>* messages, bool* has_query) {
  *has_query = messages->empty() || rng() % 3 == 0;
  const size_t num_results = *has_query && rng() % 2 == 0 ? 0 : 1 + rng() % 2;
  for (size_t i = 0; i < num_results && !messages->empty(); ++i) {
    messages->push_back(ChatMessage::tool("", " result\n" + std::to_string(rng() % 100)));
  }
  if (*has_query)
    messages->push_back(ChatMessage::user("next <think> " + std::to_string(rng() % 100)));
}

/// The end of "<|im_start|>assistant\n" of turn `turn`, counted in all turns.
size_t start_of_turn(const std::string& text, size_t turn) {
  const std::string_view opening = "<|im_start|>assistant\n";
  size_t at = text.find(opening);
  for (size_t i = 0; i < turn; ++i) at = text.find(opening, at + 1);
  return at + opening.size();
}

struct Counts {
  size_t appended = 0;
  size_t cut = 0;
};

void check_conversation(Random& rng, const Row& row, const RenderOptions& options, Counts* counts) {
  const ChatTemplate& chat_template = template_named(row.name);
  const bool thinks = options.enable_thinking.value_or(row.thinks_by_default);
  const std::vector<ToolSpec> tools = rng() % 2 == 0 ? corpus_tools() : std::vector<ToolSpec>();
  std::vector<ChatMessage> messages;
  if (rng() % 2 == 0) messages.push_back(ChatMessage::system("Be terse."));
  messages.push_back(ChatMessage::user("q"));
  std::string session = render(chat_template, messages, tools, options)->text();
  size_t num_turns = 0;
  size_t first_since_query = 0;
  for (int step = 0; step < 6; ++step) {
    const Turn turn = random_turn_of(rng, row, thinks);
    session += turn.emitted;
    ++num_turns;
    messages.push_back(turn.message);
    bool has_query = false;
    add_input(rng, &messages, &has_query);
    const std::string next = render(chat_template, messages, tools, options)->text();
    if (!row.drops || !has_query) {
      ASSERT_TRUE(next.starts_with(session + "\n")) << session << "\n----\n" << next;
      ++counts->appended;
    } else {
      const size_t end = start_of_turn(session, first_since_query);
      ASSERT_EQ(session.substr(0, end), next.substr(0, end));
      ASSERT_EQ(session.substr(end, 8), "<think>\n");
      ASSERT_NE(next.substr(end, 7), "<think>");
      ++counts->cut;
    }
    if (has_query) first_since_query = num_turns;
    session = next;
  }
}

TEST(AppendOnly, ThePrefixEndsWhereThePageSays) {
  for (const Row& row : kRows) {
    for (const std::optional<bool>& thinking : kThinkingModes) {
      for (const std::optional<std::string>& effort : kEfforts) {
        Random rng(31);
        Counts counts;
        for (int i = 0; i < 40 && !::testing::Test::HasFatalFailure(); ++i) {
          check_conversation(rng, row,
                             {.enable_thinking = thinking,
                              .preserve_thinking = row.preserve,
                              .reasoning_effort = effort},
                             &counts);
        }
        EXPECT_GT(counts.appended, 50U) << row.name;
        EXPECT_EQ(counts.cut > 50, row.drops) << row.name;
      }
    }
  }
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, const Prompt& prompt) {
  std::vector<TextPiece> pieces;
  for (const Segment& s : prompt.segments) {
    pieces.push_back({s.text, s.trusted ? AddedTokens::kMatch : AddedTokens::kIgnore});
  }
  std::vector<int32_t> ids;
  tokenizer.encode_pieces(pieces, &ids);
  return ids;
}

// The next messages are encoded alone: what stands before them is never encoded again, and the ids are those of the whole.
TEST(ChatCases, B077_IdsOfTheNewMessagesAreTheEndOfTheIdsOfAll) {
  const Tokenizer tokenizer =
      Tokenizer::load(Path(SLUICE_SOURCE_DIR) / "tests/golden/tokenizer", {}).value();
  Random rng(37);
  for (int i = 0; i < 1000; ++i) {
    const Row& row = pick(rng, kRows);
    const ChatTemplate& chat_template = template_named(row.name);
    const RenderOptions options{.enable_thinking = rng() % 2 == 0,
                                .preserve_thinking = row.preserve};
    std::vector<ChatMessage> messages = {ChatMessage::user("q")};
    bool has_query = false;
    for (size_t turns = 1 + rng() % 4; turns > 0; --turns) {
      messages.push_back(random_turn_of(rng, row, *options.enable_thinking).message);
      if (turns > 1) add_input(rng, &messages, &has_query);
    }
    const SessionPrefix session{messages.size(), options};
    add_input(rng, &messages, &has_query);
    const Prompt whole = render(chat_template, messages, corpus_tools(), options).value();
    const Continuation next =
        render_continuation(chat_template, messages, corpus_tools(), options, session).value();
    const std::vector<int32_t> all = ids_of(tokenizer, whole);
    const std::vector<int32_t> tail = ids_of(tokenizer, next.prompt);
    ASSERT_LE(tail.size(), all.size());
    ASSERT_TRUE(std::equal(tail.rbegin(), tail.rend(), all.rbegin())) << whole.text();
    std::string before;
    ASSERT_TRUE(tokenizer.decode(std::span(all).first(all.size() - tail.size()), {}, &before).ok());
    ASSERT_EQ(before + next.prompt.text(), whole.text());
  }
}

// Each departure from the output format must be seen, or the test above would see nothing.
TEST(AppendOnly, NegativeControlOtherSpellingsAreNoPrefix) {
  const ToolCall call{"", "f", JsonValue::object({{"a", JsonValue::real(1.0)}})};
  const std::string good =
      "why\n</think>\n\nNow.\n\n<tool_call>\n<function=f>\n<parameter=a>\n1.0\n</parameter>\n</"
      "function>\n</tool_call><|im_end|>";
  const auto is_prefix = [&](const ChatTemplate& chat_template, const std::string& emitted) {
    const std::vector<ChatMessage> before = {ChatMessage::user("q")};
    const RenderOptions options{.enable_thinking = true};
    std::vector<ChatMessage> after = before;
    after.push_back(ChatMessage::assistant("why", "Now.", {call}));
    after.push_back(ChatMessage::tool("", "r"));
    const std::string session = render(chat_template, before, {}, options)->text() + emitted;
    return render(chat_template, after, {}, options)->text().starts_with(session);
  };
  for (const ChatTemplate& chat_template : known_templates()) {
    EXPECT_TRUE(is_prefix(chat_template, good)) << chat_template.name;
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"why\n", "why\n\n"},
                                   {"</think>\n\n", "</think>\n"},
                                   {"Now.\n\n", "Now.\n"},
                                   {"Now.", " Now."},
                                   {"1.0", "1"},
                                   {"1.0\n", "1.0"},
                                   {"</tool_call>", "</tool_call>\n"}}) {
      std::string bad = good;
      bad.replace(bad.find(from), from.size(), to);
      EXPECT_FALSE(is_prefix(chat_template, bad)) << chat_template.name << " " << to;
    }
  }
}

}  // namespace
}  // namespace sluice::chat
