#pragma once
// The agent loop: a user's text in, turns and tool calls until the model answers without a call.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/tools/tool_set.h"
#include "apps/turn_source.h"
#include "chat/render.h"

namespace sluice {

enum class AskEnd {
  kAnswered,
  kStepsLimit,      // the last turn allowed still had calls; they were not run
  kLengthLimit,     // a turn reached its token limit
  kContextFull,     // the session has no room for more
  kCancelled,       // on request
  kEndedInThought,  // the model ended its turn before an answer
  kBrokenCall,      // the model ended its turn inside a call
};
/// "" for kAnswered, else one clause that says what happened and which flag helps.
std::string_view ask_end_text(AskEnd end);

/// Sums over the turns of one ask().
struct AskStats {
  int num_steps = 0;
  int64_t num_prompt_tokens = 0;
  int64_t num_generated_tokens = 0;
  double ttft_s = 0.0;  // of the first turn
  double decode_s = 0.0;
  /// Tokens drawn one by one: the first token of a turn belongs to its prefill.
  int64_t num_decoded_tokens = 0;
};

struct AskReport {
  AskEnd end = AskEnd::kAnswered;
  std::string answer;
  AskStats stats;
};

/// Sees everything as it happens.
class AgentView {
 public:
  virtual ~AgentView() = default;
  virtual void on_event(const chat::ChatEvent& event) = 0;
  virtual void on_tool_result(std::string_view name, const ToolResult& result) = 0;
};

struct AgentOptions {
  std::string system;  // "": none
  /// Turns the model may take for one ask().
  int num_steps_max = 8;
  std::optional<bool> enable_thinking;
};

/// One conversation. Earlier turns stay in the session as the ids that were drawn; each step appends
/// only what is new. A template that rewrites earlier turns when the user speaks again makes the
/// session start over with the whole conversation.
class Agent {
 public:
  /// All but `options` must outlive the agent. `cancelled` is asked at each piece and before calls.
  Agent(const chat::ChatTemplate& chat_template, const ToolSet& tools, AgentOptions options,
        TurnSource* turns, AgentView* view, std::function<bool()> cancelled);

  /// A Status is a fault of the machinery. After kResourceExhausted (a question or a tool's result that
  /// does not fit the context) the conversation stands as before what did not fit and can go on.
  Result<AskReport> ask(const std::string& text);

 private:
  chat::RenderOptions render_options() const;
  Status append_new_messages();
  /// Nothing when the model asked for tools: `message_` has the calls.
  Result<std::optional<AskEnd>> take_turn(AskStats* stats);
  std::optional<AskEnd> classify(FinishReason reason) const;
  void run_calls();
  void add_result(std::string_view name, const ToolResult& result);

  const chat::ChatTemplate& chat_template_;
  const ToolSet& tools_;
  AgentOptions options_;
  TurnSource& turns_;
  AgentView& view_;
  std::function<bool()> cancelled_;

  std::vector<chat::ChatMessage> messages_;
  size_t num_in_session_ = 0;  // messages the session holds
  bool starts_in_thought_ = false;
  std::string closing_;          // what a turn that was cut off still lacks in the session
  chat::ParsedMessage message_;  // the last turn
};

}  // namespace sluice
