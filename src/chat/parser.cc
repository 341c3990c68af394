#include "chat/parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "chat/call_reader.h"
#include "chat/quote_tracker.h"
#include "chat/text.h"

namespace sluice::chat {
namespace {

// White space is held back, because a tag may follow that it belongs to. Of a longer run the older
// part is handed on.
constexpr size_t kMaxHeldSpaceBytes = 64;
constexpr size_t kMaxUndeclaredNames = 16;
// The arguments add one level to the deepest value that was parsed.
constexpr JsonLimits kArgumentLimits = {.max_depth = 160};

std::string_view after_last_newline(std::string_view space) {
  const size_t newline = space.rfind('\n');
  return newline == std::string_view::npos ? space : space.substr(newline + 1);
}

/// Text of one kind (answer or thought) without the white space around tags.
class SpacedText {
 public:
  /// The part of held space and `text` that can be handed on.
  std::string put(std::string_view text) {
    size_t num_text = text.size();
    while (num_text > 0 && is_ascii_space(text[num_text - 1])) --num_text;
    std::string out;
    if (num_text > 0) {
      held_ += leading_space(text);
      out = take_held();
      out += strip_left(text.substr(0, num_text));
      is_begun_ = true;
      touches_call_ = false;
      held_.clear();
    }
    held_ += text.substr(num_text);
    if (is_begun_ && !touches_call_ && held_.size() > kMaxHeldSpaceBytes) {
      const size_t excess = held_.size() - kMaxHeldSpaceBytes;
      out += held_.substr(0, excess);
      held_.erase(0, excess);
    }
    return out;
  }

  /// A call stands here: space around it is text only if text stands on both sides.
  void touch_call() {
    if (!is_begun_) held_.clear();
    touches_call_ = true;
  }
  void drop_held() { held_.clear(); }
  std::string finish() { return is_begun_ && !touches_call_ ? std::move(held_) : std::string(); }
  bool is_begun() const { return is_begun_; }
  bool touches_call() const { return touches_call_; }

 private:
  static std::string_view strip_left(std::string_view text) {
    return text.substr(leading_space(text).size());
  }
  static std::string_view leading_space(std::string_view text) {
    size_t n = 0;
    while (n < text.size() && is_ascii_space(text[n])) ++n;
    return text.substr(0, n);
  }
  /// Blank lines before the first text are the tags' own, its indentation is not.
  std::string take_held() const {
    if (is_begun_) return held_;
    return touches_call_ ? std::string() : std::string(after_last_newline(held_));
  }

  std::string held_;
  bool is_begun_ = false;
  bool touches_call_ = false;
};

}  // namespace

class ChatParser::Machine {
 public:
  Machine(const std::vector<ToolSpec>& tools, bool in_thought)
      : tools_(tools), state_(in_thought ? State::kThought : State::kContent) {}

  std::vector<ChatEvent> push(std::string_view text, PieceKind kind) {
    SLUICE_CHECK(!in_.is_finished());
    in_.push(text, kind);
    return run();
  }

  std::vector<ChatEvent> finish() {
    SLUICE_CHECK(!in_.is_finished());
    in_.finish();
    run_steps();
    message_.ended_in_thought = in_thought();
    if (state_ == State::kContent) add_text(ChatEvent::Kind::kContent, content_.finish());
    return std::move(events_);
  }

  bool in_thought() const {
    return state_ == State::kThought || state_ == State::kDraft ||
           (state_ == State::kDraftGap && !draft_close_);
  }
  const ParsedMessage& message() const { return message_; }

 private:
  enum class State {
    kThought,
    kContent,
    kCall,
    kDraft,     // inside what may be a call, inside a thought
    kDraftGap,  // behind it: what follows decides
  };

  std::vector<ChatEvent> run() {
    run_steps();
    return std::exchange(events_, {});
  }
  void run_steps() {
    while (step()) {
    }
  }
  bool step();
  bool step_text();
  bool step_call();
  bool step_draft();
  bool step_draft_gap();

  Match thought_tag(size_t* num_bytes);
  Match content_tag(size_t* num_bytes);
  void open_call(const CallHeader& header);
  void close_thought();
  void accept_draft();
  void reject_draft();

  void put_text(std::string_view text);
  void add_text(ChatEvent::Kind kind, std::string text);
  void deliver(ChatEvent event);
  void note_undeclared(const CallHeader& header);

  std::vector<ToolSpec> tools_;
  State state_;
  PieceBuffer in_;
  SpacedText reasoning_;
  SpacedText content_;
  QuoteTracker quotes_;
  std::optional<CallReader> call_;
  std::vector<ChatEvent> events_;
  ParsedMessage message_;

  std::string draft_text_;
  std::vector<ChatEvent> draft_events_;
  size_t num_draft_calls_ = 0;
  std::optional<size_t> draft_close_;  // where in draft_text_ a </think> begins
};

bool ChatParser::Machine::step() {
  switch (state_) {
    case State::kThought:
    case State::kContent:
      return step_text();
    case State::kCall:
      return step_call();
    case State::kDraft:
      return step_draft();
    case State::kDraftGap:
      return step_draft_gap();
  }
  return false;
}

bool ChatParser::Machine::step_text() {
  const std::string_view text = in_.text();
  if (text.empty()) return false;
  const size_t num_plain = std::min(text.find('<'), text.size());
  if (num_plain > 0) {
    put_text(text.substr(0, num_plain));
    in_.consume(num_plain);
    return true;
  }
  size_t num_bytes = 0;
  const Match tag = state_ == State::kThought ? thought_tag(&num_bytes) : content_tag(&num_bytes);
  if (tag == Match::kMore) return false;
  if (tag == Match::kNo) {
    put_text("<");
    num_bytes = 1;
  }
  in_.consume(num_bytes);
  return true;
}

/// A tag inside the thought, if one stands at the front; does what it asks for.
Match ChatParser::Machine::thought_tag(size_t* num_bytes) {
  const Scanner scan(in_, 0);
  if (scan.kind() == PieceKind::kOrdinary) return Match::kNo;
  const Match close = Scanner(scan).literal(kThinkClose);
  if (close == Match::kYes) {
    *num_bytes = kThinkClose.size();
    close_thought();
    return close;
  }
  const Match open = reasoning_.is_begun() ? Match::kNo : Scanner(scan).literal(kThinkOpen);
  if (open == Match::kYes) {
    *num_bytes = kThinkOpen.size();
    return open;
  }
  const CallHeader header = match_call_header(in_, 0, tools_, false);
  note_undeclared(header);
  if (header.match == Match::kYes) open_call(header);
  return any_of({close, open, header.match});
}

Match ChatParser::Machine::content_tag(size_t* num_bytes) {
  const Scanner scan(in_, 0);
  const PieceKind kind = scan.kind();
  const bool is_real = kind == PieceKind::kControl;
  // Text that spells a think tag counts only before the answer's first word, and only if it may be
  // the real one.
  const bool may_think =
      is_real || (kind == PieceKind::kUnknown && !content_.is_begun() && !content_.touches_call());
  const Match open = may_think ? Scanner(scan).literal(kThinkOpen) : Match::kNo;
  const Match close = may_think ? Scanner(scan).literal(kThinkClose) : Match::kNo;
  if (open == Match::kYes || close == Match::kYes) {
    *num_bytes = open == Match::kYes ? kThinkOpen.size() : kThinkClose.size();
    if (open == Match::kYes) state_ = State::kThought;
    return Match::kYes;
  }
  CallHeader header;
  if (is_real || !quotes_.is_quoted()) {
    header = match_call_header(in_, 0, tools_, false);
    if (header.match == Match::kNo && header.undeclared.empty() && quotes_.at_line_start() &&
        !quotes_.follows(kCallOpen)) {
      header = match_call_header(in_, 0, tools_, true);
    }
  }
  note_undeclared(header);
  if (header.match == Match::kYes) open_call(header);
  return any_of({open, close, header.match});
}

void ChatParser::Machine::note_undeclared(const CallHeader& header) {
  if (header.undeclared.empty() || message_.undeclared_names.size() >= kMaxUndeclaredNames) return;
  message_.undeclared_names.emplace_back(header.undeclared);
}

/// Consumes the header; inside a thought the call is a draft until what follows it is known.
void ChatParser::Machine::open_call(const CallHeader& header) {
  const bool is_draft = state_ != State::kContent;
  call_.emplace(header, message_.tool_calls.size() + num_draft_calls_);
  if (is_draft) {
    in_.record_to(&draft_text_);
    ++num_draft_calls_;
    call_->begin(&draft_events_);
    state_ = State::kDraft;
  } else {
    content_.touch_call();
    std::vector<ChatEvent> events;
    call_->begin(&events);
    deliver(std::move(events.front()));
    state_ = State::kCall;
  }
  in_.consume(header.num_bytes);
}

bool ChatParser::Machine::step_call() {
  std::vector<ChatEvent> events;
  const bool is_over = call_->read(in_, &events);
  for (ChatEvent& event : events) deliver(std::move(event));
  if (!is_over) return false;
  quotes_.reset();
  state_ = State::kContent;
  return true;
}

bool ChatParser::Machine::step_draft() {
  if (!call_->read(in_, &draft_events_)) return false;
  if (draft_events_.back().is_complete) {
    state_ = State::kDraftGap;
  } else {
    reject_draft();
  }
  return true;
}

bool ChatParser::Machine::step_draft_gap() {
  const std::string_view text = in_.text();
  size_t num_spaces = 0;
  while (num_spaces < text.size() && is_ascii_space(text[num_spaces])) ++num_spaces;
  in_.consume(num_spaces);
  if (in_.text().empty()) {
    if (!in_.is_finished()) return false;
    accept_draft();
    return true;
  }
  const Scanner scan(in_, 0);
  const bool may_close = !draft_close_ && scan.kind() != PieceKind::kOrdinary;
  const Match close = may_close ? Scanner(scan).literal(kThinkClose) : Match::kNo;
  if (close == Match::kYes) {
    draft_close_ = draft_text_.size();
    in_.consume(kThinkClose.size());
    return true;
  }
  const CallHeader header = may_close ? match_call_header(in_, 0, tools_, false) : CallHeader();
  const Match match = any_of({close, header.match});
  if (match == Match::kMore) return false;
  if (match == Match::kYes) {
    open_call(header);
  } else {
    reject_draft();
  }
  return true;
}

void ChatParser::Machine::accept_draft() {
  in_.record_to(nullptr);
  reasoning_.drop_held();
  content_.touch_call();
  for (ChatEvent& event : draft_events_) deliver(std::move(event));
  draft_events_.clear();
  draft_text_.clear();
  draft_close_.reset();
  num_draft_calls_ = 0;
  state_ = State::kContent;
}

/// It was only talked about: its text is reasoning.
void ChatParser::Machine::reject_draft() {
  in_.record_to(nullptr);
  draft_events_.clear();
  num_draft_calls_ = 0;
  state_ = State::kThought;
  const std::string text = std::exchange(draft_text_, {});
  const std::optional<size_t> close = std::exchange(draft_close_, std::nullopt);
  put_text(std::string_view(text).substr(0, close.value_or(text.size())));
  if (!close) return;
  close_thought();
  put_text(std::string_view(text).substr(*close + kThinkClose.size()));
}

void ChatParser::Machine::close_thought() {
  reasoning_.drop_held();
  state_ = State::kContent;
}

void ChatParser::Machine::put_text(std::string_view text) {
  if (state_ == State::kThought) return add_text(ChatEvent::Kind::kReasoning, reasoning_.put(text));
  quotes_.feed(text);
  add_text(ChatEvent::Kind::kContent, content_.put(text));
}

void ChatParser::Machine::add_text(ChatEvent::Kind kind, std::string text) {
  if (!text.empty()) deliver({kind, std::move(text), 0, true});
}

/// Keeps the message and the events in step.
void ChatParser::Machine::deliver(ChatEvent event) {
  switch (event.kind) {
    case ChatEvent::Kind::kReasoning:
      message_.reasoning += event.text;
      break;
    case ChatEvent::Kind::kContent:
      message_.content += event.text;
      break;
    case ChatEvent::Kind::kToolCallBegin:
      message_.tool_calls.push_back({event.text, "", JsonValue(), false});
      break;
    case ChatEvent::Kind::kToolCallArguments:
      message_.tool_calls.back().arguments_json += event.text;
      break;
    case ChatEvent::Kind::kToolCallEnd: {
      ParsedToolCall& call = message_.tool_calls.back();
      call.is_complete = event.is_complete;
      Result<JsonValue> arguments = parse_json(call.arguments_json, kArgumentLimits);
      SLUICE_CHECK(arguments.ok());  // we spelled it ourselves
      call.arguments = *std::move(arguments);
      break;
    }
  }
  const bool is_delta = event.kind == ChatEvent::Kind::kReasoning ||
                        event.kind == ChatEvent::Kind::kContent ||
                        event.kind == ChatEvent::Kind::kToolCallArguments;
  if (is_delta && !events_.empty() && events_.back().kind == event.kind &&
      events_.back().call_idx == event.call_idx) {
    events_.back().text += event.text;
  } else {
    events_.push_back(std::move(event));
  }
}

ChatParser::ChatParser(const std::vector<ToolSpec>& tools, bool in_thought)
    : machine_(std::make_unique<Machine>(tools, in_thought)) {}
ChatParser::~ChatParser() = default;
ChatParser::ChatParser(ChatParser&&) noexcept = default;
ChatParser& ChatParser::operator=(ChatParser&&) noexcept = default;

std::vector<ChatEvent> ChatParser::push(std::string_view text, PieceKind kind) {
  return machine_->push(text, kind);
}
std::vector<ChatEvent> ChatParser::finish() {
  return machine_->finish();
}
bool ChatParser::in_thought() const {
  return machine_->in_thought();
}
const ParsedMessage& ChatParser::message() const {
  return machine_->message();
}

ChatMessage ParsedMessage::to_message(std::span<const std::string> ids) const {
  std::vector<ToolCall> calls;
  for (size_t i = 0; i < tool_calls.size(); ++i) {
    if (!tool_calls[i].is_complete) continue;
    calls.push_back(
        {i < ids.size() ? ids[i] : std::string(), tool_calls[i].name, tool_calls[i].arguments});
  }
  return ChatMessage::assistant(reasoning, content, std::move(calls));
}

ParsedMessage parse_message(std::string_view text, const std::vector<ToolSpec>& tools,
                            bool in_thought) {
  ChatParser parser(tools, in_thought);
  parser.push(text);
  parser.finish();
  return parser.message();
}

}  // namespace sluice::chat
