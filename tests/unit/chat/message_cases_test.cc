// Requests: messages, tools, choices, thinking controls and ids, one test a kind of reported fault.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "chat/conversation.h"
#include "chat/thinking.h"
#include "chat/tool_call_id.h"
#include "tests/unit/chat/corpus.h"
#include "tests/unit/chat/render_case.h"

namespace sluice::chat {
namespace {

JsonValue json(std::string_view text) {
  return parse_json(text).value();
}

std::string prompt_of(const std::vector<ChatMessage>& messages,
                      std::string_view name = "tiny-agent",
                      const RenderOptions& options = {.add_generation_prompt = false}) {
  const Result<Prompt> prompt = render(template_named(name), messages, {}, options);
  return prompt.ok() ? prompt->text() : "error: " + prompt.status().message();
}

TEST(ChatCases, B025_IdsNeverRepeat) {
  const RandomBytes random = system_random_bytes().value();
  std::set<std::string> ids;
  for (int i = 0; i < 10'000; ++i) {
    const std::string id = make_tool_call_id(random);
    EXPECT_EQ(id.size(), 29U);
    EXPECT_TRUE(ids.insert(id).second);
  }
}

TEST(ChatCases, B025_BytesThatWouldFavourSomeLettersAreDrawnAgain) {
  unsigned char next = 0;
  const RandomBytes counting = [&](unsigned char* out, size_t n) {
    std::generate_n(out, n, [&] { return next++; });
  };
  std::array<int, 256> counts{};
  for (int i = 0; i < 62 * 8; ++i) {
    for (const char c : make_tool_call_id(counting).substr(5))
      ++counts[static_cast<unsigned char>(c)];
  }
  EXPECT_GT(counts['0'], 0);
  next = 250;  // 248 to 255 are no fair draws
  EXPECT_EQ(make_tool_call_id(counting).substr(5, 3), "012");
}

ChatMessage calls_abc() {
  return ChatMessage::assistant("", "", {{"a", "f", {}}, {"b", "f", {}}, {"c", "f", {}}});
}

TEST(ChatCases, B057_ResultsAreOrderedByCall) {
  std::vector<std::string> ids = {"a", "b", "c"};
  std::set<std::string> prompts;
  do {
    std::vector<ChatMessage> messages = {ChatMessage::user("q"), calls_abc()};
    for (const std::string& id : ids) messages.push_back(ChatMessage::tool(id, "result " + id));
    prompts.insert(prompt_of(order_tool_results(messages).value()));
  } while (std::ranges::next_permutation(ids).found);
  EXPECT_EQ(prompts.size(), 1U);
}

TEST(ChatCases, B057_UnknownMissingAndGapsAreRefused) {
  const auto order = [](std::vector<std::string> ids) {
    std::vector<ChatMessage> messages = {ChatMessage::user("q"), calls_abc()};
    for (const std::string& id : ids) messages.push_back(ChatMessage::tool(id, "r"));
    const Result<std::vector<ChatMessage>> ordered = order_tool_results(messages);
    return ordered.ok() ? "ok" : ordered.status().message();
  };
  EXPECT_EQ(order({"a", "b", "c"}), "ok");
  EXPECT_EQ(order({}), "ok");
  EXPECT_EQ(order({"b", "a"}), "ok");  // the last call may be unanswered: positions stay true
  EXPECT_EQ(order({"a", "x"}).substr(0, 11), "messages[3]");
  EXPECT_EQ(order({""}).substr(0, 11), "messages[2]");
  EXPECT_EQ(order({"a", "a"}).substr(0, 11), "messages[3]");
  EXPECT_NE(order({"a", "c"}).find("has no result"), std::string::npos);
  EXPECT_FALSE(order_tool_results({ChatMessage::user("q"), ChatMessage::tool("a", "r")}).ok());
}

TEST(ChatCases, B025_RepeatedIdsPairWithTheNearestCall) {
  const ChatMessage call = ChatMessage::assistant("", "", {{"same", "f", {}}, {"same", "f", {}}});
  const std::vector<ChatMessage> messages = {
      ChatMessage::user("q"),         call, ChatMessage::tool("same", "1"),
      ChatMessage::tool("same", "2"), call, ChatMessage::tool("same", "3"),
      ChatMessage::tool("same", "4")};
  const std::vector<ChatMessage> ordered = order_tool_results(messages).value();
  EXPECT_EQ(prompt_of(ordered), prompt_of(messages));
}

TEST(ChatCases, B051_TenFormsOfArguments) {
  const auto rendered = [](std::string_view arguments) {
    const std::string text = fmt::format(
        R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "tool_calls": [
        {{"id": "1", "type": "function", "function": {{"name": "f", "arguments": {}}}}}]}}]}})",
        arguments);
    const std::string prompt = render_case(template_named("qwen3.8"), json(text)).value().text();
    const size_t begin = prompt.find("<function=f>\n") + 13;
    return prompt.substr(begin, prompt.find("</function>") - begin);
  };
  EXPECT_EQ(rendered(R"({"b": 1, "a": "x"})"),
            "<parameter=b>\n1\n</parameter>\n<parameter=a>\nx\n</parameter>\n");
  EXPECT_EQ(rendered(R"("{\"b\": 1, \"a\": \"x\"}")"),
            "<parameter=b>\n1\n</parameter>\n<parameter=a>\nx\n</parameter>\n");
  EXPECT_EQ(rendered(R"("{\"p\": {\"q\": [1.0, true]}}")"),
            "<parameter=p>\n{\"q\": [1.0, true]}\n</parameter>\n");
  for (const char* none : {"null", "\"\"", "\" \\n\"", "{}", "\"{}\"", "\"null\""})
    EXPECT_EQ(rendered(none), "") << none;
  EXPECT_EQ(rendered("[1, 2]"), "<parameter=arguments>\n[1, 2]\n</parameter>\n");
  EXPECT_EQ(rendered(R"("[1,2]")"), "<parameter=arguments>\n[1,2]\n</parameter>\n");
  EXPECT_EQ(rendered(R"("{\"a\": ")"), "<parameter=arguments>\n{\"a\": \n</parameter>\n");
  EXPECT_EQ(rendered("7"), "<parameter=arguments>\n7\n</parameter>\n");
}

TEST(ChatCases, B029_ToolChoice) {
  const auto chosen = [](std::string_view choice) -> std::string {
    const JsonValue value = json(choice);
    const Result<ToolChoice> result = tool_choice_from_json(&value, corpus_tools());
    if (!result.ok()) return "error";
    const std::string mode = result->mode == ToolChoice::Mode::kAuto   ? "auto"
                             : result->mode == ToolChoice::Mode::kNone ? "none"
                                                                       : "required";
    return fmt::format("{} {}", mode, callable_tools(*result, corpus_tools()).size());
  };
  EXPECT_EQ(chosen("null"), "auto 4");
  EXPECT_EQ(chosen(R"("auto")"), "auto 4");
  EXPECT_EQ(chosen(R"("none")"), "none 0");
  EXPECT_EQ(chosen(R"("required")"), "required 4");
  EXPECT_EQ(chosen(R"({"type": "function", "function": {"name": "search"}})"), "required 1");
  EXPECT_EQ(chosen(R"({"type": "function", "name": "search"})"), "required 1");
  EXPECT_EQ(chosen(R"({"type": "tool", "name": "search"})"), "required 1");
  EXPECT_EQ(chosen(R"({"type": "any"})"), "required 4");
  EXPECT_EQ(
      chosen(
          R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "search"}]})"),
      "required 1");
  EXPECT_EQ(
      chosen(
          R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "search"}}]}})"),
      "auto 1");
  for (const char* bad : {R"("maybe")", "7", "{}", R"({"function": {"name": "nope"}})",
                          R"({"type": "allowed_tools", "tools": [{"name": "nope"}]})"}) {
    EXPECT_EQ(chosen(bad), "error") << bad;
  }
}

TEST(ChatCases, B031_RequiredWithoutToolsIsRefused) {
  const JsonValue required = JsonValue::string("required");
  EXPECT_EQ(tool_choice_from_json(&required, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tool_choice_from_json(nullptr, {})->mode, ToolChoice::Mode::kNone);
}

TEST(ChatCases, B033_TheFirstCallsEndIsSeenAtOnce) {
  ChatParser parser(corpus_tools(), false);
  const std::vector<ChatEvent> events =
      parser.push("<tool_call>\n<function=list_dir>\n</function>\n</tool_call>");
  EXPECT_EQ(events.back().kind, ChatEvent::Kind::kToolCallEnd);
}

TEST(ChatCases, B045_FifteenSpellingsOneTail) {
  const auto tail = [](std::string_view request, std::string_view name = "qwen3.8") {
    const ThinkingChoice choice = resolve_thinking(json(request), template_named(name), {}).value();
    RenderOptions options;
    choice.apply_to(&options);
    const std::string text =
        render(template_named(name), {ChatMessage::user("q")}, {}, options).value().text();
    return fmt::format("{} {}", text.ends_with("<think>\n") ? "on" : "off",
                       text.find("set to low") != std::string::npos     ? "low"
                       : text.find("set to xhigh") != std::string::npos ? "xhigh"
                                                                        : "-");
  };
  for (const char* off :
       {R"({"chat_template_kwargs": {"enable_thinking": false}})", R"({"enable_thinking": false})",
        R"({"reasoning_effort": "none"})", R"({"reasoning_effort": "minimal"})",
        R"({"reasoning": {"effort": "none"}})", R"({"thinking": {"type": "disabled"}})",
        R"({"chat_template_kwargs": {"reasoning_effort": "none"}})",
        R"({"output_config": {"effort": "minimal"}})",
        R"({"chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "high"})",
        R"({"enable_thinking": false, "thinking": {"type": "enabled", "budget_tokens": 100}})"}) {
    EXPECT_EQ(tail(off), "off -") << off;
    EXPECT_EQ(tail(off, "qwen3.5-small"), "off -") << off;
  }
  for (const char* low :
       {R"({"reasoning_effort": "low"})", R"({"reasoning": {"effort": "low"}})",
        R"({"output_config": {"effort": "low"}})",
        R"({"chat_template_kwargs": {"reasoning_effort": "low"}, "reasoning_effort": "max"})",
        R"({"enable_thinking": true, "reasoning_effort": "low"})",
        R"({"enable_thinking": true, "chat_template_kwargs": {"reasoning_effort": "low"}})"}) {
    EXPECT_EQ(tail(low), "on low") << low;
  }
  for (const char* high :
       {"{}", R"({"reasoning_effort": "high"})", R"({"reasoning_effort": "max"})",
        R"({"thinking": {"type": "adaptive"}})",
        R"({"enable_thinking": true, "reasoning_effort": "none"})"}) {
    EXPECT_EQ(tail(high), "on xhigh") << high;
  }
  EXPECT_EQ(tail(R"({"reasoning_effort": "medium"})"), "on -");
  EXPECT_EQ(tail(R"({"reasoning_effort": "high"})", "qwen3.5-small"), "on -");
}

TEST(ChatCases, B045_BudgetsAndRefusals) {
  const auto resolve = [](std::string_view request, std::string_view name) {
    return resolve_thinking(json(request), template_named(name), {});
  };
  EXPECT_EQ(resolve(R"({"reasoning_effort": "low"})", "qwen3.5")->budget_tokens, 2048);
  EXPECT_EQ(resolve(R"({"reasoning_effort": "low"})", "qwen3.8")->budget_tokens, std::nullopt);
  EXPECT_EQ(resolve(R"({"thinking": {"type": "enabled", "budget_tokens": 99}})", "qwen3.5")
                ->budget_tokens,
            99);
  EXPECT_EQ(resolve(R"({"thinking_token_budget": 5, "reasoning_effort": "low"})", "qwen3.5")
                ->budget_tokens,
            5);
  for (const char* bad :
       {R"({"reasoning_effort": "huge"})", R"({"enable_thinking": "no"})", R"({"thinking": {}})",
        R"({"thinking_token_budget": -1})", R"({"reasoning": {"effort": 7}})"}) {
    EXPECT_FALSE(resolve(bad, "qwen3.8").ok()) << bad;
  }
}

TEST(ChatCases, B049_LateSystemTextKeepsItsPlace) {
  const std::vector<ChatMessage> list = {
      ChatMessage::system("a"),         ChatMessage::system("b"),    ChatMessage::user("q"),
      ChatMessage::assistant("t", "x"), ChatMessage::system("late"), ChatMessage::user("r"),
      ChatMessage::assistant("", "y"),  ChatMessage::user("s"),      ChatMessage::system("later")};
  for (const char* name : {"tiny-agent", "qwen3.8"}) {
    for (size_t n = 3; n < list.size(); ++n) {
      const std::vector<ChatMessage> shorter(list.begin(),
                                             list.begin() + static_cast<ptrdiff_t>(n));
      const std::vector<ChatMessage> longer(list.begin(),
                                            list.begin() + static_cast<ptrdiff_t>(n) + 1);
      const std::string before =
          prompt_of(place_system_messages(shorter, LateSystem::kOwnTurn), name);
      const std::string after =
          prompt_of(place_system_messages(longer, LateSystem::kOwnTurn), name);
      EXPECT_TRUE(after.starts_with(before)) << after;
    }
  }
  const std::string folded = prompt_of(place_system_messages(list, LateSystem::kFold));
  EXPECT_TRUE(folded.starts_with("<|im_start|>system\na\n\nb<|im_end|>\n"));
  EXPECT_TRUE(folded.ends_with("<|im_start|>user\ns\n\nlater<|im_end|>\n"));
  EXPECT_NE(folded.find("<|im_start|>user\nlate<|im_end|>\n<|im_start|>user\nr"),
            std::string::npos);
}

TEST(ChatCases, B059_KeyOrderIsKeptUnlessCanonicalIsAsked) {
  const std::vector<ToolSpec> one =
      tools_from_json(
          json(
              R"([{"name": "g", "parameters": {"b": 1, "a": [{"y": 1, "x": 2}]}}, {"name": "f"}])"))
          .value();
  const std::vector<ToolSpec> two =
      tools_from_json(
          json(
              R"([{"name": "f"}, {"parameters": {"a": [{"x": 2, "y": 1}], "b": 1}, "name": "g"}])"))
          .value();
  const auto prompt = [](const std::vector<ToolSpec>& tools) {
    return render(template_named("qwen3.6"), {ChatMessage::user("q")}, tools, {}).value().text();
  };
  EXPECT_NE(prompt(one), prompt(two));
  EXPECT_NE(prompt(one).find(R"({"name": "g", "parameters": {"b": 1, "a": [{"y": 1, "x": 2}]}})"),
            std::string::npos);
  EXPECT_EQ(prompt(canonical_tools(one)), prompt(canonical_tools(two)));
}

TEST(ChatCases, B061_ChoiceNoneLeavesThePromptAlone) {
  const JsonValue none = JsonValue::string("none");
  const ToolChoice choice = tool_choice_from_json(&none, corpus_tools()).value();
  EXPECT_TRUE(callable_tools(choice, corpus_tools()).empty());
}

TEST(Conversion, RefusalsNameThePlace) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"messages": 1})", "messages is a number"},
      {R"({"messages": [1]})", "messages[0] is a number"},
      {R"({"messages": [{"content": "x"}]})", "messages[0].role is ''"},
      {R"({"messages": [{"role": "user", "content": ["x"]}]})",
       "messages[0].content[0] is a string"},
      {R"({"messages": [{"role": "user", "content": [{"text": 5}]}]})",
       "messages[0].content[0].text is a number"},
      {R"({"messages": [{"role": "assistant", "tool_calls": {}}]})",
       "messages[0].tool_calls is an object"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})",
       "messages[0].tool_calls[0].name is missing"},
      {R"({"messages": [], "tools": [{"name": "a>b"}]})",
       "tools[0].name \"a>b\" holds a character"},
      {R"({"messages": [], "tools": [{"name": "a"}, {"name": "a"}]})",
       "tools[1]: a tool named 'a' was declared before"},
      {R"({"messages": [], "tools": "x"})", "tools is a string"},
  };
  for (const auto& [request, message] : rows) {
    const Result<Prompt> prompt = render_case(template_named("tiny-agent"), json(request));
    ASSERT_FALSE(prompt.ok()) << request;
    EXPECT_EQ(prompt.status().message().substr(0, std::string_view(message).size()), message);
  }
}

TEST(Conversion, ReasoningByEitherName) {
  const std::vector<ChatMessage> messages =
      messages_from_json(
          json(
              R"([{"role": "assistant", "reasoning": "a"}, {"role": "assistant", "reasoning_content": "b"},
      {"role": "assistant", "reasoning_content": null}])"))
          .value();
  EXPECT_EQ(messages[0].reasoning_content, "a");
  EXPECT_EQ(messages[1].reasoning_content, "b");
  EXPECT_EQ(messages[2].reasoning_content, std::nullopt);
}

}  // namespace
}  // namespace sluice::chat
