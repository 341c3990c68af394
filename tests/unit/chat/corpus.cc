#include "tests/unit/chat/corpus.h"

#include "chat/openai.h"
#include "chat/scanner.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "start_line": {"type": "integer"}}, "required": ["path"]}}},
  {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "content": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {
      "pattern": {"type": "string"}, "path": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "options": {"type": "object"}, "tags": {"type": "array"}, "deep": {"type": "boolean"},
      "ratio": {"type": "number"}}}}},
  {"type": "function", "function": {"name": "list_dir", "parameters": {"type": "object", "properties": {}}}}
])";

const std::vector<std::string> kStrings = {"",
                                           " ",
                                           "\n",
                                           "\n\n",
                                           "  x",
                                           "x  ",
                                           "\tx\n\n",
                                           "\r\n",
                                           "src/a.cc",
                                           "<",
                                           "<<",
                                           "</",
                                           "</p",
                                           "</par",
                                           "a<b",
                                           "<div></div>",
                                           "if (x<5) {\n  y();\n}\n",
                                           "02134",
                                           "true",
                                           "null!",
                                           "{\"a\": 1}",
                                           "你好\n🚀👩‍👩‍👧",
                                           "\"quoted\" \\ back",
                                           "</parameter> in prose",
                                           "a\n</parameter>\nb",
                                           "<parameter=zzz>",
                                           "</function> too",
                                           "<tool_call> said"};
const std::vector<std::string> kObjects = {"{}", R"({"a": [1, 2.5, null], "b": {"c": "d"}})",
                                           R"({"k": "v\n"})"};
const std::vector<std::string> kArrays = {"[]", R"(["a", "b"])", R"([{"x": true}, null, -1e5])"};
const std::vector<std::string> kIntegers = {"0", "-7", "42", "123456789012345678901234567890"};
const std::vector<std::string> kNumbers = {"0.5", "-2", "1e+16", "1e-05", "3.0"};
const std::vector<std::string> kThoughts = {
    "", "Let me look.", "First line.\n\nSecond: a < b, <b>bold</b>.", "Use read_file on src/a.cc."};
const std::vector<std::string> kAnswers = {"", "Done.", "Here:\n\n```cpp\nint x = a < b;\n```",
                                           "x <y> </z>", "日本語"};

template <typename T>
const T& pick(std::mt19937& rng, const std::vector<T>& from) {
  return from[rng() % from.size()];
}

JsonValue json(const std::string& text) {
  return parse_json(text).value();
}

ToolCall random_call(std::mt19937& rng) {
  ToolCall call;
  const auto maybe = [&](const char* key, JsonValue value) {
    if (rng() % 3 != 0) call.arguments.set(key, std::move(value));
  };
  switch (rng() % 4) {
    case 0:
      call.name = "read_file";
      call.arguments.set("path", JsonValue::string(pick(rng, kStrings)));
      maybe("start_line", json(pick(rng, kIntegers)));
      break;
    case 1:
      call.name = "write_file";
      maybe("path", JsonValue::string(pick(rng, kStrings)));
      maybe("content", JsonValue::string(pick(rng, kStrings) + pick(rng, kStrings)));
      break;
    case 2:
      call.name = "search";
      maybe("pattern", JsonValue::string(pick(rng, kStrings)));
      maybe("path", rng() % 2 != 0 ? JsonValue() : JsonValue::string(pick(rng, kStrings)));
      maybe("options", json(pick(rng, kObjects)));
      maybe("tags", json(pick(rng, kArrays)));
      maybe("deep", JsonValue::boolean(rng() % 2 != 0));
      maybe("ratio", json(pick(rng, kNumbers)));
      break;
    default:
      call.name = "list_dir";
  }
  return call;
}

std::string without(std::string text, std::string_view tag) {
  const size_t at = text.find(tag);
  return at == std::string::npos ? text : text.erase(at, tag.size());
}

std::string with_spaces(std::string text, std::mt19937& rng) {
  static const std::vector<std::string> kSpaces = {"\n", "\n\n", " ", "\r\n", "\t"};
  for (const std::string_view tag : {kThinkClose, kCallOpen, kFunctionClose, kCallClose}) {
    const size_t at = text.find(tag);
    if (at != std::string::npos && rng() % 2 != 0)
      text.insert(at + (rng() % 2 != 0 ? 0 : tag.size()), pick(rng, kSpaces));
  }
  return text;
}

std::string odd_output(std::string text, size_t i, std::mt19937& rng) {
  static const std::vector<std::string_view> kTags = {
      kThinkClose,     kCallOpen,      "<function=", "<parameter=",
      kParameterClose, kFunctionClose, kCallClose};
  switch (i % 6) {
    case 0:
      return without(std::move(text), pick(rng, kTags));
    case 1:
      return with_spaces(std::move(text), rng);
    case 2:
      return text +
             "\nand then <tool_call>\n<function=list_dir>\n</function>\n</tool_call> the end\n";
    case 3:
      return "Plan: <tool_call>\n<function=nothing>\n</function></tool_call>.\n" + text;
    case 4:
      return "Draft <tool_call>\n<function=list_dir>\n</function>\n</tool_call> or not.\n" + text;
    default:
      return text.substr(0, rng() % (text.size() + 1));
  }
}

std::vector<std::string> make_outputs() {
  std::vector<std::string> outputs;
  std::mt19937 rng(7);
  for (size_t i = 0; i < 204; ++i) {
    std::string text = emitted_text(template_named("qwen3.8"), random_turn(rng, true), true);
    outputs.push_back(i < 84 ? text : odd_output(std::move(text), i, rng));
  }
  return outputs;
}

std::string describe_call(const std::string& name, const std::string& arguments, bool is_complete) {
  return fmt::format("call {} {}{}\n", name, arguments, is_complete ? "" : " (cut)");
}

}  // namespace

const std::vector<ToolSpec>& corpus_tools() {
  static const std::vector<ToolSpec> tools = tools_from_json(json(std::string(kTools))).value();
  return tools;
}

const ChatTemplate& template_named(std::string_view name) {
  return *find_template_by_name(name).value();
}

std::string emitted_text(const ChatTemplate& chat_template, const ChatMessage& assistant,
                         bool enable_thinking) {
  const RenderOptions before{.enable_thinking = enable_thinking};
  const RenderOptions after{.add_generation_prompt = false, .enable_thinking = enable_thinking};
  const std::string prompt = render(chat_template, {ChatMessage::user("q")}, {}, before)->text();
  std::string all = render(chat_template, {ChatMessage::user("q"), assistant}, {}, after)->text();
  SLUICE_CHECK(all.starts_with(prompt));
  all.resize(all.size() - std::string_view("<|im_end|>\n").size());
  return all.substr(prompt.size());
}

ChatMessage random_turn(std::mt19937& rng, bool with_reasoning) {
  std::vector<ToolCall> calls(rng() % 4);
  for (ToolCall& call : calls) call = random_call(rng);
  return ChatMessage::assistant(with_reasoning ? pick(rng, kThoughts) : "", pick(rng, kAnswers),
                                std::move(calls));
}

const std::vector<std::string>& raw_outputs() {
  static const std::vector<std::string> outputs = make_outputs();
  return outputs;
}

Parsed parse_cut(std::string_view text, std::span<const size_t> cuts, bool in_thought,
                 PieceKind kind) {
  ChatParser parser(corpus_tools(), in_thought);
  Parsed parsed;
  const auto keep = [&](std::vector<ChatEvent> events) {
    parsed.events.insert(parsed.events.end(), std::make_move_iterator(events.begin()),
                         std::make_move_iterator(events.end()));
  };
  size_t begin = 0;
  for (const size_t cut : cuts) {
    keep(parser.push(text.substr(begin, cut - begin), kind));
    begin = cut;
  }
  keep(parser.push(text.substr(begin), kind));
  keep(parser.finish());
  parsed.message = parser.message();
  return parsed;
}

std::vector<std::pair<std::string, PieceKind>> pieces_of(std::string_view text) {
  std::vector<std::pair<std::string, PieceKind>> pieces;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    std::string_view tag;
    for (const std::string_view candidate : {kThinkOpen, kThinkClose, kCallOpen, kCallClose}) {
      if (text.substr(i).starts_with(candidate)) tag = candidate;
    }
    if (tag.empty()) {
      ++i;
      continue;
    }
    if (i > begin) pieces.emplace_back(text.substr(begin, i - begin), PieceKind::kOrdinary);
    pieces.emplace_back(tag, PieceKind::kControl);
    begin = i += tag.size();
  }
  if (begin < text.size()) pieces.emplace_back(text.substr(begin), PieceKind::kOrdinary);
  return pieces;
}

Parsed parse_pieces(std::span<const std::pair<std::string, PieceKind>> pieces, bool in_thought) {
  ChatParser parser(corpus_tools(), in_thought);
  Parsed parsed;
  for (const auto& [text, kind] : pieces) {
    for (ChatEvent& event : parser.push(text, kind)) parsed.events.push_back(std::move(event));
  }
  for (ChatEvent& event : parser.finish()) parsed.events.push_back(std::move(event));
  parsed.message = parser.message();
  return parsed;
}

std::string describe(const ParsedMessage& message) {
  std::string out = fmt::format("reasoning {}\ncontent {}\n", json_quote(message.reasoning),
                                json_quote(message.content));
  for (const ParsedToolCall& call : message.tool_calls) {
    out += describe_call(call.name, call.arguments_json, call.is_complete);
  }
  return out;
}

std::string describe_events(const std::vector<ChatEvent>& events) {
  ParsedMessage message;
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case ChatEvent::Kind::kReasoning:
        message.reasoning += event.text;
        break;
      case ChatEvent::Kind::kContent:
        message.content += event.text;
        break;
      case ChatEvent::Kind::kToolCallBegin:
        SLUICE_CHECK_EQ(event.call_idx, message.tool_calls.size());
        message.tool_calls.push_back({event.text, "", {}, false});
        break;
      case ChatEvent::Kind::kToolCallArguments:
        message.tool_calls.at(event.call_idx).arguments_json += event.text;
        break;
      case ChatEvent::Kind::kToolCallEnd:
        message.tool_calls.at(event.call_idx).is_complete = event.is_complete;
        break;
    }
  }
  return describe(message);
}

}  // namespace sluice::chat
