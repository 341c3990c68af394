#include "chat/render.h"

#include "chat/text.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>\n";
constexpr std::string_view kThinkClose = "</think>";
constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kImageMarker = "<|vision_start|><|image_pad|><|vision_end|>";
constexpr std::string_view kVideoMarker = "<|vision_start|><|video_pad|><|vision_end|>";
constexpr std::string_view kImageNote = "[An image was here. This server reads text only.]";
constexpr std::string_view kVideoNote = "[A video was here. This server reads text only.]";
constexpr std::string_view kEffortXhigh =
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
    "assumptions, "
    "consider plausible alternatives, and prioritize correctness, consistency, and clarity in the "
    "final "
    "answer.";
constexpr std::string_view kEffortLow =
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the "
    "conclusion without unnecessary elaboration.";

/// A message's content: text of which some ranges (placeholder tokens) are the template's own.
struct Body {
  std::string text;
  std::vector<std::pair<size_t, size_t>> markers;  // [begin, end) in `text`, ascending
};

/// Part of a Body; offsets instead of views so that the markers can be found again.
struct Slice {
  size_t begin = 0;
  size_t end = 0;
  bool empty() const { return begin == end; }
};

class PromptBuilder {
 public:
  PromptBuilder& trusted(std::string_view text) { return add(text, true); }
  PromptBuilder& untrusted(std::string_view text) { return add(text, false); }
  PromptBuilder& body(const Body& body, Slice slice) {
    const std::string_view text = body.text;
    for (const auto& [begin, end] : body.markers) {
      if (begin < slice.begin || end > slice.end) continue;
      untrusted(text.substr(slice.begin, begin - slice.begin))
          .trusted(text.substr(begin, end - begin));
      slice.begin = end;
    }
    return untrusted(text.substr(slice.begin, slice.end - slice.begin));
  }
  std::vector<Segment> take() { return std::move(segments_); }

 private:
  PromptBuilder& add(std::string_view text, bool is_trusted) {
    if (text.empty()) return *this;
    if (segments_.empty() || segments_.back().trusted != is_trusted)
      segments_.push_back({"", is_trusted});
    segments_.back().text += text;
    return *this;
  }

  std::vector<Segment> segments_;
};

Slice slice_of(const Body& body, std::string_view part) {
  if (part.empty()) return {};
  const size_t begin = static_cast<size_t>(part.data() - body.text.data());
  return {begin, begin + part.size()};
}

std::string_view strip_newlines_left(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  return text;
}

std::string_view strip_newlines_right(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

std::string value_text(const JsonValue& value, ValueSpelling spelling) {
  if (value.is_string()) return value.text();
  if (spelling == ValueSpelling::kJson) return dump_json_python(value);
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return "None";
    case JsonValue::Kind::kBool:
      return value.as_bool() ? "True" : "False";
    case JsonValue::Kind::kFloat:
      return python_float_repr(value.as_double());  // str() says inf where json.dumps says Infinity
    default:
      return dump_json_python(value);
  }
}

bool has_media(const ChatMessage& message) {
  for (const ContentPart& part : message.content) {
    if (part.kind != ContentPart::Kind::kText) return true;
  }
  return false;
}

/// A prefill of reasoning alone: the model goes on thinking.
bool continues_thought(const ChatMessage& message) {
  return !has_media(message) && strip(message.text()).empty() &&
         !message.reasoning_content.value_or("").empty();
}

std::string_view effort_text(const ChatTemplate& chat_template, const RenderOptions& options) {
  if (!chat_template.has_reasoning_effort || !options.enable_thinking.value_or(true)) return {};
  const std::string effort = options.reasoning_effort.value_or("xhigh");
  if (effort == "xhigh") return kEffortXhigh;
  if (effort == "low") return kEffortLow;
  return {};
}

class Renderer {
 public:
  Renderer(const ChatTemplate& chat_template, const std::vector<ChatMessage>& messages,
           const std::vector<ToolSpec>& tools, const RenderOptions& options)
      : template_(chat_template), messages_(messages), tools_(tools), options_(options) {}

  Status check() const;
  /// Index of the last user message of the first `num_messages` that is not a tool response; -1:
  /// none.
  int64_t last_query(size_t num_messages) const;
  bool keeps_thought(size_t idx, const RenderOptions& options, int64_t query) const;

  void system_block();
  /// Messages [from, all), then the generation prompt.
  Prompt rest(size_t from);
  PromptBuilder& out() { return out_; }

 private:
  struct AssistantText {
    Body body;
    Slice reasoning;  // of body when it was found there, else of the message's reasoning_content
    bool reasoning_in_body = false;
    Slice content;
  };

  Body body_of(const ChatMessage& message, int* images, int* videos) const;
  Status check_media() const;
  Status check_continued() const;
  AssistantText assistant_text(const ChatMessage& message);
  void message(size_t idx);
  void assistant(size_t idx);
  void continued_assistant(size_t idx);
  void reasoning(const ChatMessage& message, const AssistantText& text);
  void calls(const std::vector<ToolCall>& calls, bool after_content);
  void tool_result(size_t idx, const Body& body, Slice content);
  bool generation_prompt();

  const ChatTemplate& template_;
  const std::vector<ChatMessage>& messages_;
  const std::vector<ToolSpec>& tools_;
  const RenderOptions& options_;
  PromptBuilder out_;
  int64_t last_query_ = -1;
  int num_images_ = 0;  // of the messages rendered so far, for add_vision_id
  int num_videos_ = 0;
};

Body Renderer::body_of(const ChatMessage& message, int* images, int* videos) const {
  Body body;
  for (const ContentPart& part : message.content) {
    if (part.kind == ContentPart::Kind::kText) {
      body.text += part.text;
      continue;
    }
    const bool is_image = part.kind == ContentPart::Kind::kImage;
    if (options_.vision == VisionPolicy::kNote) {
      body.text += is_image ? kImageNote : kVideoNote;
      continue;
    }
    const int count = is_image ? ++*images : ++*videos;
    const size_t begin = body.text.size();
    if (options_.add_vision_id)
      body.text += fmt::format("{} {}: ", is_image ? "Picture" : "Video", count);
    body.text += is_image ? kImageMarker : kVideoMarker;
    body.markers.emplace_back(begin, body.text.size());
  }
  return body;
}

int64_t Renderer::last_query(size_t num_messages) const {
  for (size_t i = num_messages; i-- > 0;) {
    if (messages_[i].role != Role::kUser) continue;
    int images = 0;
    int videos = 0;
    const Body body = body_of(messages_[i], &images, &videos);
    const std::string_view text = strip(body.text);
    if (!text.starts_with("<tool_response>") || !text.ends_with("</tool_response>")) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

Status Renderer::check_media() const {
  for (size_t i = 0; i < messages_.size(); ++i) {
    if (!has_media(messages_[i]) || options_.vision == VisionPolicy::kNote) continue;
    if (options_.vision == VisionPolicy::kRefuse) {
      return unsupported("messages[{}] holds an image or a video; this server reads text only", i);
    }
    if (messages_[i].role == Role::kSystem) {
      return invalid_argument("messages[{}]: a system message cannot hold images or videos", i);
    }
  }
  return Status();
}

Status Renderer::check_continued() const {
  if (!options_.continue_final_message) return Status();
  const ChatMessage& last = messages_.back();
  if (last.role != Role::kAssistant) {
    return invalid_argument(
        "to be continued, the last message must be the assistant's; it is the {}'s",
        role_name(last.role));
  }
  if (!last.tool_calls.empty()) {
    return invalid_argument(
        "an assistant message with tool calls is finished and cannot be continued");
  }
  return Status();
}

Status Renderer::check() const {
  if (messages_.empty())
    return invalid_argument("no messages: at least one user message is needed");
  SLUICE_RETURN_IF_ERROR(check_media());
  if (template_.has_reasoning_effort && options_.enable_thinking.value_or(true)) {
    const std::string effort = options_.reasoning_effort.value_or("xhigh");
    if (effort != "xhigh" && effort != "medium" && effort != "low") {
      return invalid_argument(
          "reasoning_effort is '{}'; the {} template knows xhigh, medium and low", effort,
          template_.name);
    }
  }
  if (last_query(messages_.size()) < 0) {
    return invalid_argument("no user query: no user message holds anything but a <tool_response>");
  }
  for (size_t i = 1; i < messages_.size(); ++i) {
    if (messages_[i].role == Role::kSystem) {
      return invalid_argument(
          "messages[{}] is a system message; the template takes one at the beginning only", i);
    }
  }
  return check_continued();
}

bool Renderer::keeps_thought(size_t idx, const RenderOptions& options, int64_t query) const {
  if (static_cast<int64_t>(idx) > query) return true;
  switch (template_.keep_thinking) {
    case KeepThinking::kAfterLastQuery:
      return false;
    case KeepThinking::kPreserveWhenTrue:
      return options.preserve_thinking.value_or(false);
    case KeepThinking::kPreserveUnlessFalse:
      return options.preserve_thinking.value_or(true);
    case KeepThinking::kAlways:
      return true;
  }
  return true;
}

void Renderer::system_block() {
  const bool has_system = messages_[0].role == Role::kSystem;
  int images = 0;
  int videos = 0;
  const Body body = has_system ? body_of(messages_[0], &images, &videos) : Body();
  const Slice content = slice_of(body, strip(body.text));
  const std::string_view effort = effort_text(template_, options_);
  if (tools_.empty()) {
    const bool is_shown = !content.empty() || (has_system && template_.renders_empty_system);
    if (!is_shown && effort.empty()) return;
    out_.trusted("<|im_start|>system\n").trusted(effort);
    if (!content.empty() && !effort.empty()) out_.trusted("\n\n");
    out_.body(body, content).trusted(kTurnEnd);
    return;
  }
  out_.trusted("<|im_start|>system\n");
  if (!effort.empty()) out_.trusted(effort).trusted("\n\n");
  out_.trusted("# Tools\n\nYou have access to the following functions:\n\n<tools>");
  for (const ToolSpec& tool : tools_) out_.trusted("\n").untrusted(dump_json_python(tool.json));
  out_.trusted("\n</tools>").trusted(template_.tool_instruction);
  if (!content.empty()) out_.trusted("\n\n").body(body, content);
  out_.trusted(kTurnEnd);
}

Renderer::AssistantText Renderer::assistant_text(const ChatMessage& message) {
  AssistantText result;
  result.body = body_of(message, &num_images_, &num_videos_);
  const std::string_view content = strip(result.body.text);
  result.content = slice_of(result.body, content);
  const size_t first_close = content.find(kThinkClose);
  if (message.reasoning_content.has_value() || !template_.finds_thought_in_content ||
      first_close == std::string_view::npos) {
    return result;
  }
  std::string_view thought = strip_newlines_right(content.substr(0, first_close));
  if (const size_t open = thought.rfind(kThinkOpen); open != std::string_view::npos) {
    thought.remove_prefix(open + kThinkOpen.size());
  }
  result.reasoning = slice_of(result.body, strip(thought));
  result.reasoning_in_body = true;
  const size_t last_close = content.rfind(kThinkClose);
  result.content =
      slice_of(result.body, strip_newlines_left(content.substr(last_close + kThinkClose.size())));
  return result;
}

void Renderer::reasoning(const ChatMessage& message, const AssistantText& text) {
  if (text.reasoning_in_body) {
    out_.body(text.body, text.reasoning);
  } else {
    out_.untrusted(strip(message.reasoning_content.value_or("")));
  }
}

void Renderer::calls(const std::vector<ToolCall>& calls, bool after_content) {
  std::string_view separator = after_content ? "\n\n" : "";
  for (const ToolCall& call : calls) {
    out_.trusted(separator).trusted("<tool_call>\n<function=").untrusted(call.name).trusted(">\n");
    const JsonValue arguments = arguments_object(call.arguments);
    for (const auto& [key, value] : arguments.members()) {
      out_.trusted("<parameter=").untrusted(key).trusted(">\n");
      out_.untrusted(value_text(value, template_.value_spelling)).trusted("\n</parameter>\n");
    }
    out_.trusted("</function>\n</tool_call>");
    separator = "\n";
  }
}

void Renderer::assistant(size_t idx) {
  const ChatMessage& message = messages_[idx];
  const AssistantText text = assistant_text(message);
  out_.trusted("<|im_start|>assistant\n");
  if (keeps_thought(idx, options_, last_query_)) {
    out_.trusted("<think>\n");
    reasoning(message, text);
    out_.trusted("\n</think>\n\n");
  }
  out_.body(text.body, text.content);
  const std::string_view content =
      std::string_view(text.body.text)
          .substr(text.content.begin, text.content.end - text.content.begin);
  calls(message.tool_calls, !strip(content).empty());
  out_.trusted(kTurnEnd);
}

void Renderer::continued_assistant(size_t idx) {
  const ChatMessage& message = messages_[idx];
  const AssistantText text = assistant_text(message);
  out_.trusted("<|im_start|>assistant\n<think>\n");
  if (continues_thought(message)) {
    // The model goes on where this ends, so the end is not trimmed.
    out_.untrusted(lstrip(*message.reasoning_content));
    return;
  }
  reasoning(message, text);
  out_.trusted("\n</think>\n\n");
  if (!text.content.empty()) out_.body(text.body, {text.content.begin, text.body.text.size()});
}

void Renderer::tool_result(size_t idx, const Body& body, Slice content) {
  if (idx > 0 && messages_[idx - 1].role != Role::kTool) out_.trusted("<|im_start|>user");
  out_.trusted("\n<tool_response>\n").body(body, content).trusted("\n</tool_response>");
  if (idx + 1 == messages_.size() || messages_[idx + 1].role != Role::kTool) out_.trusted(kTurnEnd);
}

void Renderer::message(size_t idx) {
  const ChatMessage& message = messages_[idx];
  if (message.role == Role::kSystem) return;
  if (message.role == Role::kAssistant) return assistant(idx);
  const Body body = body_of(message, &num_images_, &num_videos_);
  const Slice content = slice_of(body, strip(body.text));
  if (message.role == Role::kTool) return tool_result(idx, body, content);
  out_.trusted(kTurnStart).trusted("user\n").body(body, content).trusted(kTurnEnd);
}

bool Renderer::generation_prompt() {
  if (!options_.add_generation_prompt) return false;
  const bool thinks = options_.enable_thinking.value_or(template_.thinks_by_default);
  out_.trusted("<|im_start|>assistant\n").trusted(thinks ? "<think>\n" : "<think>\n\n</think>\n\n");
  return thinks;
}

Prompt Renderer::rest(size_t from) {
  last_query_ = last_query(messages_.size());
  for (size_t i = 0; i < from && options_.add_vision_id; ++i) {
    body_of(messages_[i], &num_images_, &num_videos_);
  }
  const size_t end = messages_.size() - (options_.continue_final_message ? 1 : 0);
  for (size_t i = from; i < end; ++i) message(i);
  Prompt prompt;
  if (options_.continue_final_message) {
    continued_assistant(end);
    prompt.in_thought = continues_thought(messages_[end]);
  } else {
    prompt.in_thought = generation_prompt();
  }
  prompt.segments = out_.take();
  return prompt;
}

size_t num_stable(const Renderer& renderer, const ChatTemplate& chat_template,
                  const std::vector<ChatMessage>& messages, const RenderOptions& options,
                  const SessionPrefix& session) {
  if (effort_text(chat_template, session.options) != effort_text(chat_template, options)) return 0;
  const bool media_differ = session.options.add_vision_id != options.add_vision_id ||
                            session.options.vision != options.vision;
  const int64_t query_before = renderer.last_query(session.num_messages);
  const int64_t query_now = renderer.last_query(messages.size());
  for (size_t i = 0; i < session.num_messages; ++i) {
    if (media_differ && has_media(messages[i])) return i;
    if (messages[i].role == Role::kAssistant &&
        renderer.keeps_thought(i, session.options, query_before) !=
            renderer.keeps_thought(i, options, query_now)) {
      return i;
    }
  }
  return session.num_messages;
}

}  // namespace

std::string Prompt::text() const {
  std::string all;
  for (const Segment& segment : segments) all += segment.text;
  return all;
}

Result<Prompt> render(const ChatTemplate& chat_template, const std::vector<ChatMessage>& messages,
                      const std::vector<ToolSpec>& tools, const RenderOptions& options) {
  Renderer renderer(chat_template, messages, tools, options);
  SLUICE_RETURN_IF_ERROR(renderer.check());
  renderer.system_block();
  return renderer.rest(0);
}

Result<Continuation> render_continuation(const ChatTemplate& chat_template,
                                         const std::vector<ChatMessage>& messages,
                                         const std::vector<ToolSpec>& tools,
                                         const RenderOptions& options,
                                         const SessionPrefix& session) {
  if (session.num_messages == 0 || session.num_messages > messages.size() ||
      messages[session.num_messages - 1].role != Role::kAssistant) {
    return invalid_argument(
        "the session holds {} of {} messages; it must hold at least one and end with an "
        "assistant's turn",
        session.num_messages, messages.size());
  }
  Renderer renderer(chat_template, messages, tools, options);
  SLUICE_RETURN_IF_ERROR(renderer.check());
  if (renderer.last_query(session.num_messages) < 0) {
    return invalid_argument("the session's {} messages hold no user query", session.num_messages);
  }
  Continuation result;
  result.num_stable_messages = num_stable(renderer, chat_template, messages, options, session);
  if (result.num_stable_messages == 0) renderer.system_block();
  if (result.appends(session)) renderer.out().trusted("\n");
  result.prompt = renderer.rest(result.num_stable_messages);
  return result;
}

}  // namespace sluice::chat
