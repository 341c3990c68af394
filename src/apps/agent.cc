#include "apps/agent.h"

namespace sluice {
namespace {

/// A call of a name that no tool has counts: the model is told so.
bool asks_for_tools(const chat::ParsedMessage& message) {
  for (const chat::ParsedToolCall& call : message.tool_calls) {
    if (call.is_complete) return true;
  }
  return !message.undeclared_names.empty();
}

void add_stats(const GenerateResult& turn, AskStats* stats) {
  if (stats->num_steps == 0) stats->ttft_s = turn.ttft_s;
  ++stats->num_steps;
  stats->num_prompt_tokens += turn.num_prompt_tokens;
  stats->num_generated_tokens += turn.num_generated_tokens;
  stats->num_decoded_tokens += turn.num_generated_tokens - 1;
  stats->decode_s += turn.decode_s;
}

}  // namespace

std::string_view ask_end_text(AskEnd end) {
  switch (end) {
    case AskEnd::kAnswered:
      return "";
    case AskEnd::kStepsLimit:
      return "stopped at the limit of turns (--max-steps) without an answer";
    case AskEnd::kLengthLimit:
      return "stopped at the limit of tokens per turn (--max-tokens)";
    case AskEnd::kContextFull:
      return "stopped because the context is full (--context)";
    case AskEnd::kCancelled:
      return "interrupted";
    case AskEnd::kEndedInThought:
      return "the model ended its turn inside its thought, without an answer";
    case AskEnd::kBrokenCall:
      return "the model ended its turn inside a tool call";
  }
  SLUICE_CHECK(false);
  return "";
}

Agent::Agent(const chat::ChatTemplate& chat_template, const ToolSet& tools, AgentOptions options,
             TurnSource* turns, AgentView* view, std::function<bool()> cancelled)
    : chat_template_(chat_template),
      tools_(tools),
      options_(std::move(options)),
      turns_(*turns),
      view_(*view),
      cancelled_(std::move(cancelled)) {
  if (!options_.system.empty()) messages_.push_back(chat::ChatMessage::system(options_.system));
}

chat::RenderOptions Agent::render_options() const {
  chat::RenderOptions options;
  options.enable_thinking = options_.enable_thinking;
  options.preserve_thinking = true;  // where a template knows it, the session stays append-only
  return options;
}

Result<AskReport> Agent::ask(const std::string& text) {
  const size_t num_before = messages_.size();
  messages_.push_back(chat::ChatMessage::user(text));
  AskReport report;
  for (;;) {
    if (Status status = append_new_messages(); !status.ok()) {
      // What did not fit is forgotten, or every later question would carry it again.
      messages_.resize(num_in_session_ > 0 ? num_in_session_ : num_before);
      return status;
    }
    SLUICE_ASSIGN_OR_RETURN(const std::optional<AskEnd> end, take_turn(&report.stats));
    report.answer = message_.content;
    if (end.has_value()) {
      report.end = *end;
      return report;
    }
    if (report.stats.num_steps >= options_.num_steps_max) {
      report.end = AskEnd::kStepsLimit;
      return report;
    }
    run_calls();
    if (cancelled_()) {
      report.end = AskEnd::kCancelled;
      return report;
    }
  }
}

Status Agent::append_new_messages() {
  const chat::RenderOptions options = render_options();
  chat::Prompt prompt;
  if (num_in_session_ == 0) {
    SLUICE_ASSIGN_OR_RETURN(prompt,
                            chat::render(chat_template_, messages_, tools_.specs(), options));
  } else {
    const chat::SessionPrefix session = {num_in_session_, options};
    SLUICE_ASSIGN_OR_RETURN(
        chat::Continuation next,
        chat::render_continuation(chat_template_, messages_, tools_.specs(), options, session));
    if (!next.appends(session)) {
      SLUICE_RETURN_IF_ERROR(turns_.restart());
      num_in_session_ = 0;
      closing_.clear();
      return append_new_messages();
    }
    prompt = std::move(next.prompt);
  }
  if (!closing_.empty()) prompt.segments.insert(prompt.segments.begin(), {closing_, true});
  SLUICE_RETURN_IF_ERROR(turns_.append(prompt));
  closing_.clear();
  starts_in_thought_ = prompt.in_thought;
  return Status();
}

Result<std::optional<AskEnd>> Agent::take_turn(AskStats* stats) {
  chat::ChatParser parser(tools_.specs(), starts_in_thought_);
  const auto publish = [&](const std::vector<chat::ChatEvent>& events) {
    for (const chat::ChatEvent& event : events) view_.on_event(event);
  };
  SLUICE_ASSIGN_OR_RETURN(const GenerateResult turn,
                          turns_.generate([&](std::string_view text, chat::PieceKind kind) {
                            publish(parser.push(text, kind));
                            return !cancelled_();
                          }));
  const bool in_thought = parser.in_thought();
  publish(parser.finish());
  message_ = parser.message();
  messages_.push_back(message_.to_message());
  num_in_session_ = messages_.size();
  if (!turns_.turn_is_closed()) {
    closing_ = std::string(in_thought ? "\n</think>\n\n" : "") + "<|im_end|>";
  }
  add_stats(turn, stats);
  return classify(turn.reason);
}

std::optional<AskEnd> Agent::classify(FinishReason reason) const {
  switch (reason) {
    case FinishReason::kLength:
      return AskEnd::kLengthLimit;
    case FinishReason::kContextFull:
      return AskEnd::kContextFull;
    case FinishReason::kCancelled:
      return AskEnd::kCancelled;
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
      break;
  }
  if (asks_for_tools(message_)) return std::nullopt;
  if (!message_.tool_calls.empty()) return AskEnd::kBrokenCall;
  return message_.ended_in_thought ? AskEnd::kEndedInThought : AskEnd::kAnswered;
}

void Agent::run_calls() {
  for (const chat::ParsedToolCall& call : message_.tool_calls) {
    if (call.is_complete) add_result(call.name, tools_.run(call.name, call.arguments));
  }
  for (const std::string& name : message_.undeclared_names) {
    add_result(name, tools_.run(name, JsonValue::object()));
  }
}

void Agent::add_result(std::string_view name, const ToolResult& result) {
  view_.on_tool_result(name, result);
  messages_.push_back(chat::ChatMessage::tool("", result.text));
}

}  // namespace sluice
