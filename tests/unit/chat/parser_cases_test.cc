// The faults that users of other engines reported about parsing, one test a kind.

#include <gtest/gtest.h>

#include "tests/unit/chat/corpus.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kCall =
    "<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</"
    "tool_call>";
constexpr std::string_view kCallLine = "call read_file {\"path\":\"a.txt\"}\n";

std::string answer(std::string_view text) {
  return describe(parse_message(text, corpus_tools(), false));
}
std::string thought(std::string_view text) {
  return describe(parse_message(text, corpus_tools(), true));
}
std::string expected(std::string_view reasoning, std::string_view content,
                     std::string_view calls = "") {
  return fmt::format("reasoning {}\ncontent {}\n{}", json_quote(reasoning), json_quote(content),
                     calls);
}
std::string call_text(std::string_view name, std::string_view body) {
  return fmt::format("<tool_call>\n<function={}>\n{}</function>\n</tool_call>", name, body);
}
std::string parameter(std::string_view key, std::string_view value) {
  return fmt::format("<parameter={}>\n{}\n</parameter>\n", key, value);
}
std::string written(std::string_view value) {
  return call_text("write_file", parameter("content", value));
}

std::string parsed_value(std::string_view value) {
  const ParsedMessage message = parse_message(written(value), corpus_tools(), false);
  const JsonValue* content =
      message.tool_calls.size() == 1 ? message.tool_calls[0].arguments.find("content") : nullptr;
  return content != nullptr ? content->text() : "no call: " + describe(message);
}

TEST(ChatCases, B001_OneDeltaHoldsParameterTailAndFunctionClose) {
  const std::string text =
      call_text("write_file", parameter("path", "a") + parameter("content", "x\ny"));
  const size_t in_first_value = text.find("a\n</parameter>") + 1;
  const Parsed parsed = parse_cut(text, std::array{in_first_value}, false);
  EXPECT_EQ(describe(parsed.message),
            expected("", "", "call write_file {\"path\":\"a\",\"content\":\"x\\ny\"}\n"));
  EXPECT_EQ(describe_events(parsed.events), describe(parsed.message));
}

TEST(ChatCases, B003_OpeningTagSplitAcrossDeltas) {
  const std::string text = fmt::format("text{}mid{}tail", kCall, kCall);
  const std::string whole = expected("", "textmidtail", fmt::format("{}{}", kCallLine, kCallLine));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const Parsed parsed = parse_cut(text, std::array{cut}, false, PieceKind::kOrdinary);
    ASSERT_EQ(describe(parsed.message), whole);
    std::vector<std::string> order;
    for (const ChatEvent& event : parsed.events) {
      if (event.kind == ChatEvent::Kind::kToolCallBegin) order.push_back("call");
      if (event.kind == ChatEvent::Kind::kContent && (order.empty() || order.back() == "call"))
        order.push_back("");
      if (event.kind == ChatEvent::Kind::kContent) order.back() += event.text;
    }
    ASSERT_EQ(order, (std::vector<std::string>{"text", "call", "mid", "call", "tail"}));
  }
}

TEST(ChatCases, B003_NothingIsHeldLongerThanATag) {
  for (const std::string_view text :
       {"a < b <tool_ and <tool_call and <tool_call>x", "<function <functions=", "</think",
        "</tool_call> <th <think"}) {
    ChatParser parser(corpus_tools(), false);
    size_t num_out = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      for (const ChatEvent& event : parser.push(text.substr(i, 1), PieceKind::kOrdinary))
        num_out += event.text.size();
      ASSERT_LE(i + 1 - num_out, kCall.find("read_file")) << text.substr(0, i + 1);
    }
    parser.finish();
    EXPECT_EQ(parser.message().content, text);
  }
}

TEST(ChatCases, B005_LessThanIsDataInAValue) {
  for (const std::string_view value :
       {"<", "<<", "</", "</p", "</par", "a<b", "<div></div>", "if (x<5)", "</parameter",
        "<parameter=", "</function>", "</parameter>x"}) {
    EXPECT_EQ(parsed_value(value), value);
    const std::string text = written(value);
    std::vector<size_t> cuts;
    for (size_t i = 1; i < text.size(); ++i) cuts.push_back(i);
    const Parsed parsed = parse_cut(text, cuts, false, PieceKind::kOrdinary);
    EXPECT_EQ(parsed.message.tool_calls.at(0).arguments.find("content")->text(), value);
  }
}

TEST(ChatCases, B005_ValuesStreamWhileTheyCome) {
  ChatParser parser(corpus_tools(), false);
  const std::string open = "<tool_call>\n<function=write_file>\n<parameter=content>\n";
  parser.push(open);
  size_t num_out = 0;
  for (int i = 0; i < 100; ++i) {
    for (const ChatEvent& event : parser.push("if (a < b) { f<T>(); }"))
      num_out += event.text.size();
  }
  EXPECT_GT(num_out, 2100U);
}

TEST(ChatCases, B007_WhiteSpaceOfValuesIsKept) {
  const std::vector<std::string> values = {"",    " ",       "\n",   "\n\n",   "  x",
                                           "x  ", "\tx\n\n", "\r\n", "\n\n\n", "  a\n    b\n"};
  for (const ChatTemplate& chat_template : known_templates()) {
    for (const std::string& value : values) {
      ToolCall call{"", "write_file", JsonValue::object({{"content", JsonValue::string(value)}})};
      const std::string text =
          emitted_text(chat_template, ChatMessage::assistant("", "", {call}), true);
      const ParsedMessage message = parse_message(text, corpus_tools(), true);
      ASSERT_EQ(message.tool_calls.size(), 1U) << chat_template.name << text;
      EXPECT_EQ(message.tool_calls[0].arguments, call.arguments)
          << chat_template.name << json_quote(value);
    }
  }
}

TEST(ChatCases, B009_ProseThatMentionsTagsStaysProse) {
  const std::string example = call_text("read_file", parameter("path", "x"));
  const std::vector<std::string> answers = {
      "Use <tool_call> to call.",
      "`<tool_call>` opens a call.",
      "The tags are <tool_call> and </tool_call>.",
      "```\n" + example + "\n```\nThat is all.",
      "Write `<tool_call><function=read_file></function>` inline.",
      "\"<tool_call>\n<function=read_file>\n</function>\" in quotes",
      "'<tool_call>\n<function=read_file>\n</function>'",
      call_text("example_function_name", parameter("example_parameter_1", "value_1")),
      "<tool_call>",
      "<tool_call>\n",
      "<tool_call>\n{\"name\": \"read_file\"}\n</tool_call>",
      "<tool_call>\n<function=read_file> is how it starts.",
      "<function=read_file> is a header.",
      "x <function=list_dir></function>",
      "</function></tool_call>",
      "<parameter=path>\nx\n</parameter>",
      "  ```xml\n  " + example + "\n  ```",
      "<tool_call >\n<function=read_file>",
      "<toolcall>",
      "a </think> b <think> c"};
  for (const std::string& text : answers) {
    EXPECT_EQ(answer(text), expected("", text));
    const Parsed ordinary = parse_cut(text, {}, false, PieceKind::kOrdinary);
    EXPECT_EQ(describe(ordinary.message), expected("", text));
  }
}

TEST(ChatCases, B009_TheRealTagCountsInsideAFence) {
  const auto pieces = pieces_of(fmt::format("```\ncode\n\n{}", kCall));
  EXPECT_EQ(describe(parse_pieces(pieces, false).message), expected("", "```\ncode", kCallLine));
}

TEST(ChatCases, B011_AnyOneTagMissing) {
  const std::vector<std::string_view> tags = {
      "<tool_call>\n",         "<function=write_file>\n", "<parameter=path>\n", "\n</parameter>",
      "<parameter=content>\n", "</function>\n",           "</tool_call>"};
  for (int i = 0; i < 50; ++i) {
    const std::string content = fmt::format("line {}\nif (a < {}) {{}}\n", i, i);
    const std::string text =
        call_text("write_file", parameter("path", "a.txt") + parameter("content", content));
    const std::string good = describe(parse_message(text, corpus_tools(), false));
    for (const std::string_view tag : tags) {
      std::string broken = text;
      broken.erase(broken.find(tag), tag.size());
      const ParsedMessage message = parse_message(broken, corpus_tools(), false);
      const bool is_closer =
          tag.starts_with("\n</") || tag.starts_with("</") || tag == "<tool_call>\n";
      if (is_closer) {
        EXPECT_EQ(describe(message), good) << broken;
      } else {
        EXPECT_TRUE(message.tool_calls.size() == 1 || message.content == broken)
            << describe(message);
      }
    }
  }
  // The last closer of the last parameter.
  EXPECT_EQ(
      answer(
          "<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</function>\n</tool_call>"),
      expected("", "", kCallLine));
}

TEST(ChatCases, B011_ACallThatIsCutIsNotComplete) {
  EXPECT_EQ(answer("<tool_call>\n<function=read_file>\n<parameter=path>\na.t"),
            expected("", "", "call read_file {\"path\":\"a.t\"} (cut)\n"));
  EXPECT_EQ(answer("<tool_call>\n<function=read_file>\n<parameter=path>\na\n</"
                   "parameter>\n<parameter=start_line>\n12"),
            expected("", "", "call read_file {\"path\":\"a\"} (cut)\n"));
  EXPECT_EQ(answer("<tool_call>\n<function=read_file>\n"),
            expected("", "", "call read_file {} (cut)\n"));
  EXPECT_TRUE(parse_message("<tool_call>\n<function=read_file>\n<para", corpus_tools(), false)
                  .to_message()
                  .tool_calls.empty());
}

TEST(ChatCases, B021_DraftsAndExamplesAreNoCalls) {
  struct Row {
    std::string text;
    size_t num_calls;
  };
  const std::string call(kCall);
  const std::string example =
      call_text("example_function_name", parameter("example_parameter_1", "v"));
  const std::vector<Row> rows = {
      {"I would write " + call + " but first think.\n</think>\n\nNo call.", 0},
      {"I would write " + call + " but first think.\n</think>\n\n" + call, 1},
      {call + "\n</think>\n\n" + call, 1},
      {call + "\n</think>\n\nDone.", 0},
      {call + call + " then more thought", 0},
      {"The format is " + example + "\n</think>\n\n" + call, 1},
      {"The format is " + example, 0},
      {"ok\n</think>\n\n" + example, 0},
      {"ok\n</think>\n\n" + example + "\n" + call, 1},
      {"mention <tool_call> only\n</think>\n\nx", 0},
      {"mention <tool_call>\n<function=read_file>\n only\n</think>\n\nx", 0},
      {"half " + call.substr(0, 60) + "\n</think>\n\nx", 0},
      {"half " + call.substr(0, 60), 0},
      {"plan\n</think>\n\n" + call + "\n" + call, 2},
      {"so I call it:\n\n" + call, 1},  // the thought was never closed: the call closes it
      {"so I call it:\n\n" + call + "\n" + call, 2},
      {"so I call it:\n\n" + call + "\n</think>\n\n", 1},
      {"so I call it:\n\n" + call + "\n", 1},
      {"call list_dir\n</think>\n\n" + call_text("list_dirs", ""), 0},
      {"", 0},
  };
  for (const Row& row : rows) {
    const ParsedMessage message = parse_message(row.text, corpus_tools(), true);
    EXPECT_EQ(message.tool_calls.size(), row.num_calls) << row.text << "\n" << describe(message);
    EXPECT_EQ(parse_pieces(pieces_of(row.text), true).message.tool_calls.size(), row.num_calls)
        << row.text;
  }
}

TEST(ChatCases, B021_TextSpelledTagsInAThoughtStayText) {
  const std::string text = fmt::format("I could say </think> or {}", kCall);
  const Parsed parsed = parse_cut(text, {}, true, PieceKind::kOrdinary);
  EXPECT_EQ(describe(parsed.message), expected(text, ""));
  EXPECT_TRUE(parsed.message.ended_in_thought);
}

TEST(ChatCases, B021_RejectedDraftIsReasoningByteForByte) {
  const std::string draft = fmt::format("Maybe {}  \n\n{} no.", kCall, kCall);
  EXPECT_EQ(thought(draft + "\n</think>\n\nx"), expected(draft, "x"));
}

TEST(ChatCases, B021_UndeclaredNamesAreReported) {
  const ParsedMessage message =
      parse_message(call_text("rm_rf", parameter("path", "/")), corpus_tools(), false);
  EXPECT_EQ(message.undeclared_names, std::vector<std::string>{"rm_rf"});
  EXPECT_TRUE(message.tool_calls.empty());
}

TEST(ChatCases, B023_WhiteSpaceAtEveryTagBorder) {
  const std::vector<std::string> spaces = {"", "\n", "\n\n", "\n\n\n", " ", "\r\n", "\t\n "};
  const std::vector<std::string> tags = {
      "thought", "</think>",     "<tool_call>", "<function=read_file>", "<parameter=start_line>",
      "7",       "</parameter>", "</function>", "</tool_call>"};
  const std::string whole = expected("thought", "", "call read_file {\"start_line\":7}\n");
  for (size_t border = 0; border + 1 < tags.size(); ++border) {
    for (const std::string& space : spaces) {
      std::string text;
      for (size_t i = 0; i < tags.size(); ++i) text += tags[i] + (i == border ? space : "\n");
      EXPECT_EQ(thought(text), whole) << text;
      EXPECT_EQ(describe(parse_pieces(pieces_of(text), true).message), whole) << text;
    }
  }
}

TEST(ChatCases, B023_NewlinesAroundThinkClose) {
  for (const char* text : {"t\n</think>\n\na", "t</think>a", "t\n\n</think>\na",
                           "t </think>\n\n\na", "\nt\n</think>\r\n\r\na"}) {
    EXPECT_EQ(thought(text), expected("t", "a")) << text;
  }
  EXPECT_EQ(thought("t\n</think>\n\n    indented"), expected("t", "    indented"));
}

TEST(ChatCases, B035_ThinkingOffIsAllContent) {
  for (const char* text : {"The answer.", "a\n\nb", "x </think> y"}) {
    EXPECT_EQ(answer(text), expected("", text));
  }
  const RenderOptions off{.enable_thinking = false};
  const RenderOptions on{.enable_thinking = true};
  for (const ChatTemplate& chat_template : known_templates()) {
    EXPECT_FALSE(render(chat_template, {ChatMessage::user("q")}, {}, off)->in_thought);
    EXPECT_TRUE(render(chat_template, {ChatMessage::user("q")}, {}, on)->in_thought);
  }
}

TEST(ChatCases, B037_OneCloseWhateverIsInjected) {
  const std::vector<std::pair<std::string, PieceKind>> pieces = {
      {"thinking. Time is up.", PieceKind::kOrdinary},
      {"</think>", PieceKind::kControl},
      {"\n\n", PieceKind::kOrdinary},
      {"</think>", PieceKind::kControl},
      {"\n\nanswer", PieceKind::kOrdinary}};
  EXPECT_EQ(describe(parse_pieces(pieces, true).message),
            expected("thinking. Time is up.", "answer"));
}

TEST(ChatCases, B039_TurnThatEndsInTheThought) {
  const ParsedMessage cut = parse_message("only thinking", corpus_tools(), true);
  EXPECT_TRUE(cut.ended_in_thought);
  EXPECT_EQ(describe(cut), expected("only thinking", ""));
  const ParsedMessage call =
      parse_message(fmt::format("thinking\n{}", kCall), corpus_tools(), true);
  EXPECT_FALSE(call.ended_in_thought);
  EXPECT_EQ(describe(call), expected("thinking", "", kCallLine));
  EXPECT_FALSE(parse_message("t</think>", corpus_tools(), true).ended_in_thought);
}

TEST(ChatCases, B041_RepeatedThinkCloseInTheThoughtIsText) {
  std::vector<std::pair<std::string, PieceKind>> pieces = {
      {"the user wrote </think> twice: </think>\n", PieceKind::kOrdinary},
      {"</think>", PieceKind::kControl},
      {"\n\nok", PieceKind::kOrdinary}};
  EXPECT_EQ(describe(parse_pieces(pieces, true).message),
            expected("the user wrote </think> twice: </think>", "ok"));
}

TEST(ChatCases, B043_ReasoningTokensAreCountedByState) {
  const auto count = [](std::initializer_list<std::pair<std::string_view, PieceKind>> pieces,
                        bool in_thought) {
    ChatParser parser(corpus_tools(), in_thought);
    size_t num_reasoning = 0;
    for (const auto& [text, kind] : pieces) {
      parser.push(text, kind);
      num_reasoning += parser.in_thought() ? 1 : 0;
    }
    return num_reasoning;
  };
  const PieceKind ordinary = PieceKind::kOrdinary;
  EXPECT_EQ(
      count({{"a", ordinary}, {" b", ordinary}, {"</think>", PieceKind::kControl}, {"c", ordinary}},
            true),
      2U);
  EXPECT_EQ(count({{"a", ordinary}, {" b", ordinary}}, false), 0U);
  EXPECT_EQ(
      count({{"<think>", PieceKind::kControl}, {"b", ordinary}, {"</think>", PieceKind::kControl}},
            false),
      2U);
}

TEST(ChatCases, B131_CutInsideACharacterOfAnArgument) {
  const std::string text = written("family 👩‍👩‍👧‍👦!");
  for (size_t end = text.find("family"); end < text.size(); ++end) {
    for (const ParsedToolCall& call :
         parse_message(text.substr(0, end), corpus_tools(), false).tool_calls) {
      ASSERT_TRUE(parse_json(call.arguments_json).ok()) << call.arguments_json;
    }
  }
}

TEST(ChatCases, H7_ExampleOfAWholeCallInsideAValueWhenIdsAreKnown) {
  const std::string value = call_text("read_file", parameter("path", "x")) + "\nis the format";
  const std::vector<std::pair<std::string, PieceKind>> pieces = {
      {"<tool_call>", PieceKind::kControl},
      {"\n<function=write_file>\n" + parameter("content", value) + "</function>\n",
       PieceKind::kOrdinary},
      {"</tool_call>", PieceKind::kControl}};
  const ParsedMessage message = parse_pieces(pieces, false).message;
  ASSERT_EQ(message.tool_calls.size(), 1U) << describe(message);
  EXPECT_EQ(message.tool_calls[0].arguments.find("content")->text(), value);
}

TEST(Parser, RepeatedParameterKeepsTheFirst) {
  EXPECT_EQ(answer(call_text("read_file", parameter("path", "a") + parameter("path", "b"))),
            expected("", "", "call read_file {\"path\":\"a\"}\n"));
}

TEST(Parser, WithoutToolsEverythingIsText) {
  EXPECT_EQ(describe(parse_message(kCall, {}, false)), expected("", kCall));
}

TEST(Parser, ThoughtOpenedByTheModel) {
  EXPECT_EQ(answer("<think>\nhm\n</think>\n\nok"), expected("hm", "ok"));
  EXPECT_EQ(thought("<think>\nhm\n</think>\n\nok"), expected("hm", "ok"));
}

TEST(Parser, LongInputTakesBoundedTime) {
  std::string text;
  while (text.size() < 4'000'000)
    text += "</parameter>\n<tool_call>\n<function=read_file>\n < \n```\n";
  EXPECT_EQ(parse_message(text, corpus_tools(), false).tool_calls.size(), 0U);
  std::string value;
  while (value.size() < 4'000'000) value += "</parameter>\n</function>\n < \n<parameter=x \n";
  EXPECT_TRUE(parsed_value(value + ".") == value + ".");
}

}  // namespace
}  // namespace sluice::chat
