#include "apps/agent.h"

#include <gtest/gtest.h>

#include <deque>

namespace sluice {
namespace {

using chat::ChatEvent;

/// Turns from a script. What an agent appended is kept as text, with the scripted turns between.
class ScriptedTurns : public TurnSource {
 public:
  struct Turn {
    std::string text;  // "<|im_end|>" at its end: a turn that stopped; else it ran into the limit
    FinishReason reason = FinishReason::kStopToken;
  };

  explicit ScriptedTurns(std::deque<Turn> turns) : turns_(std::move(turns)) {}

  Status append(const chat::Prompt& prompt) override {
    if (append_fails) return resource_exhausted("no room");
    timeline += prompt.text();
    return Status();
  }

  Result<GenerateResult> generate(const OnPiece& on_piece) override {
    if (turns_.empty()) return invalid_argument("the script is over");
    const Turn turn = std::move(turns_.front());
    turns_.pop_front();
    timeline += turn.text;
    std::string_view text = turn.text;
    if (text.ends_with(kEnd)) text.remove_suffix(kEnd.size());
    GenerateResult result;
    result.reason = turn.reason;
    result.num_prompt_tokens = 10;
    result.num_generated_tokens = static_cast<int64_t>(turn.text.size());
    for (const char c : text) {
      if (!on_piece(std::string_view(&c, 1), chat::PieceKind::kUnknown)) {
        result.reason = FinishReason::kCancelled;
        break;
      }
    }
    return result;
  }

  bool turn_is_closed() const override { return timeline.ends_with(kEnd); }

  Status restart() override {
    timeline.clear();
    ++num_restarts;
    return Status();
  }

  std::string timeline;
  int num_restarts = 0;
  bool append_fails = false;

 private:
  static constexpr std::string_view kEnd = "<|im_end|>";
  std::deque<Turn> turns_;
};

/// Notes the order of things.
class Log : public AgentView {
 public:
  void on_event(const ChatEvent& event) override {
    if (event.kind == ChatEvent::Kind::kContent) content += event.text;
    if (event.kind == ChatEvent::Kind::kReasoning) reasoning += event.text;
  }
  void on_tool_result(std::string_view name, const ToolResult& result) override {
    results.push_back(std::string(name) + (result.failed ? "!" : "=") + result.text);
  }

  std::string content, reasoning;
  std::vector<std::string> results;
};

ToolSet echo_tools() {
  const Result<JsonValue> schema = parse_json(
      R"({"type": "function", "function": {"name": "echo", "parameters": {"type": "object",
          "properties": {"text": {"type": "string"}, "times": {"type": "integer"}},
          "required": ["text"]}}})");
  ToolSet tools;
  const auto run = [](const JsonValue& arguments) { return text_argument(arguments, "text"); };
  EXPECT_TRUE(tools.add(chat::ToolSpec{*schema}, run).ok());
  return tools;
}

std::string call_text(const std::string& name, const std::string& text) {
  return "<tool_call>\n<function=" + name + ">\n<parameter=text>\n" + text +
         "\n</parameter>\n</function>\n</tool_call>";
}

AgentOptions with_system(const std::string& system) {
  AgentOptions options;
  options.system = system;
  return options;
}

AgentOptions with_steps_max(int num_steps_max) {
  AgentOptions options;
  options.num_steps_max = num_steps_max;
  return options;
}

/// An agent over a script, with everything it needs to live.
struct Rig {
  explicit Rig(std::deque<ScriptedTurns::Turn> turns, AgentOptions options = {},
               const char* template_name = "qwen3.8")
      : script(std::move(turns)),
        tools(echo_tools()),
        agent(*find(template_name), tools, std::move(options), &script, &log,
              [this] { return is_cancelled; }) {}

  static const chat::ChatTemplate* find(const char* name) {
    for (const chat::ChatTemplate& known : chat::known_templates()) {
      if (known.name == name) return &known;
    }
    return nullptr;
  }

  ScriptedTurns script;
  ToolSet tools;
  Log log;
  bool is_cancelled = false;
  Agent agent;
};

AskReport ask(Rig* rig, const std::string& text) {
  const Result<AskReport> report = rig->agent.ask(text);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *report : AskReport();
}

TEST(Agent, RunsCallsInOrderUntilThereIsAnAnswer) {
  Rig rig({{"I look.\n</think>\n\n" + call_text("echo", "one") + "\n" + call_text("echo", "two") +
            "<|im_end|>"},
           {"Done.\n</think>\n\nAll good.<|im_end|>"}});
  const AskReport report = ask(&rig, "Go");
  EXPECT_EQ(report.end, AskEnd::kAnswered);
  EXPECT_EQ(report.answer, "All good.");
  EXPECT_EQ(rig.log.results, (std::vector<std::string>{"echo=one", "echo=two"}));
  EXPECT_EQ(rig.log.content, "All good.");
  EXPECT_EQ(report.stats.num_steps, 2);
  EXPECT_EQ(report.stats.num_prompt_tokens, 20);
  EXPECT_NE(
      rig.script.timeline.find("</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\none\n"
                               "</tool_response>\n<tool_response>\ntwo\n</tool_response>"
                               "<|im_end|>\n<|im_start|>assistant\n<think>\n"),
      std::string::npos)
      << rig.script.timeline;
}

TEST(Agent, TheSessionIsTheRenderOfTheWholeConversation) {
  Rig rig({{"Hm.\n</think>\n\nYes.<|im_end|>"}, {"Ah.\n</think>\n\nNo.<|im_end|>"}},
          with_system("Be brief."));
  ask(&rig, "One?");
  ask(&rig, "Two?");
  const std::vector<chat::ChatMessage> messages = {
      chat::ChatMessage::system("Be brief."), chat::ChatMessage::user("One?"),
      chat::ChatMessage::assistant("Hm.", "Yes."), chat::ChatMessage::user("Two?"),
      chat::ChatMessage::assistant("Ah.", "No.")};
  chat::RenderOptions options;
  options.add_generation_prompt = false;
  const Result<chat::Prompt> whole =
      chat::render(*Rig::find("qwen3.8"), messages, rig.tools.specs(), options);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(rig.script.timeline + "\n", whole->text());
  EXPECT_EQ(rig.script.num_restarts, 0);
}

TEST(Agent, ATemplateThatRewritesHistoryStartsTheSessionOver) {
  Rig rig({{"Hm.\n</think>\n\nYes.<|im_end|>"}, {"Ah.\n</think>\n\nNo.<|im_end|>"}}, {}, "qwen3.5");
  ask(&rig, "One?");
  ask(&rig, "Two?");
  EXPECT_EQ(rig.script.num_restarts, 1);
  EXPECT_EQ(rig.script.timeline.find("Hm."), std::string::npos) << "the thought is dropped";
  EXPECT_NE(rig.script.timeline.find("Yes."), std::string::npos);
}

TEST(Agent, EveryOtherEndIsTold) {
  const std::string endless = "</think>\n\n" + call_text("echo", "x") + "<|im_end|>";
  const struct {
    std::deque<ScriptedTurns::Turn> turns;
    AskEnd end;
    size_t num_results;
  } cases[] = {
      {{{endless}, {endless}, {endless}}, AskEnd::kStepsLimit, 2},
      {{{"Hm", FinishReason::kLength}}, AskEnd::kLengthLimit, 0},
      {{{"Hm", FinishReason::kContextFull}}, AskEnd::kContextFull, 0},
      {{{"Hm.<|im_end|>"}}, AskEnd::kEndedInThought, 0},
      {{{"</think>\n\n<tool_call>\n<function=echo>\n<parameter=text>\nx<|im_end|>"}},
       AskEnd::kBrokenCall,
       0},
  };
  for (const auto& c : cases) {
    Rig rig(c.turns, with_steps_max(3));
    const AskReport report = ask(&rig, "Go");
    EXPECT_EQ(report.end, c.end) << ask_end_text(report.end);
    EXPECT_NE(ask_end_text(report.end), "");
    EXPECT_EQ(rig.log.results.size(), c.num_results);
  }
}

TEST(Agent, AToolsErrorGoesToTheModel) {
  Rig rig({{"</think>\n\n<tool_call>\n<function=echo>\n</function>\n</tool_call><|im_end|>"},
           {"</think>\n\nSorry.<|im_end|>"}});
  EXPECT_EQ(ask(&rig, "Go").end, AskEnd::kAnswered);
  EXPECT_EQ(rig.log.results, (std::vector<std::string>{"echo!error: missing parameter: text"}));
  EXPECT_NE(rig.script.timeline.find("error: missing parameter: text"), std::string::npos);
}

TEST(Agent, AnUnknownToolIsTold) {
  Rig rig({{"</think>\n\n" + call_text("rm", "x") + "<|im_end|>"}, {"</think>\n\nOh.<|im_end|>"}});
  EXPECT_EQ(ask(&rig, "Go").end, AskEnd::kAnswered);
  EXPECT_EQ(rig.log.results, (std::vector<std::string>{"rm!error: unknown tool: rm"}));
}

TEST(Agent, ATurnThatWasCutOffIsClosedBeforeTheNext) {
  Rig rig({{"A long thou", FinishReason::kLength}, {"</think>\n\nYes.<|im_end|>"}});
  EXPECT_EQ(ask(&rig, "One?").end, AskEnd::kLengthLimit);
  EXPECT_EQ(ask(&rig, "Two?").end, AskEnd::kAnswered);
  EXPECT_NE(rig.script.timeline.find(
                "A long thou\n</think>\n\n<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n"),
            std::string::npos)
      << rig.script.timeline;
}

TEST(Agent, CancellingEndsTheTurnAndRunsNothing) {
  Rig rig({{"</think>\n\n" + call_text("echo", "x") + "<|im_end|>"}});
  rig.is_cancelled = true;
  EXPECT_EQ(ask(&rig, "Go").end, AskEnd::kCancelled);
  EXPECT_TRUE(rig.log.results.empty());
}

TEST(Agent, FaultsOfTheSessionAreStatuses) {
  Rig rig({});
  rig.script.append_fails = true;
  EXPECT_EQ(rig.agent.ask("Go").status().code(), StatusCode::kResourceExhausted);
}

TEST(Agent, AQuestionThatDoesNotFitIsForgottenAndAnUnclosedTurnIsStillClosed) {
  // The first turn is cut off by its length, so the session lacks its end.
  Rig rig({{"</think>\n\nOne", FinishReason::kLength}, {"</think>\n\nTwo<|im_end|>"}});
  EXPECT_EQ(ask(&rig, "First").end, AskEnd::kLengthLimit);
  rig.script.append_fails = true;
  EXPECT_FALSE(rig.agent.ask("TOO LONG").ok());
  rig.script.append_fails = false;
  EXPECT_EQ(ask(&rig, "Third").answer, "Two");
  EXPECT_EQ(rig.script.timeline.find("TOO LONG"), std::string::npos);
  EXPECT_NE(rig.script.timeline.find("One<|im_end|>\n<|im_start|>user\nThird"), std::string::npos)
      << rig.script.timeline;
}

}  // namespace
}  // namespace sluice
