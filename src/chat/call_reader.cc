#include "chat/call_reader.h"

#include <algorithm>
#include <utility>

#include "chat/text.h"

namespace sluice::chat {
namespace {

// Longer text cannot be the null of a nullable string any more.
constexpr size_t kMaxNullBytes = 6;

bool is_prefix_of_any(std::string_view partial, const std::vector<ToolSpec>& tools) {
  for (const ToolSpec& tool : tools) {
    if (tool.name().starts_with(partial)) return true;
  }
  return false;
}

const ToolSpec* find_tool(std::string_view name, const std::vector<ToolSpec>& tools) {
  for (const ToolSpec& tool : tools) {
    if (tool.name() == name) return &tool;
  }
  return nullptr;
}

Match parameter_open(Scanner scan) {
  const Match open = scan.literal(kParameterOpen);
  std::string_view name;
  return open == Match::kYes ? scan.name(&name) : open;
}

/// The text breaks off inside a tag that could stand between two parameters.
bool is_cut_structure(Scanner scan) {
  if (scan.is_cut_tag(kParameterOpen) || scan.is_cut_tag(kFunctionClose) ||
      scan.is_cut_tag(kCallClose)) {
    return true;
  }
  return scan.literal(kParameterOpen) == Match::kYes && scan.is_cut_name();
}

/// What may stand behind the function's name. A bare header at the end of the text is more likely
/// prose.
Match follows_header(Scanner scan, bool is_bare) {
  if (scan.gap() == Match::kMore) return Match::kMore;
  if (!is_bare && is_cut_structure(scan)) return Match::kYes;
  return any_of({parameter_open(scan), Scanner(scan).literal(kFunctionClose),
                 Scanner(scan).literal(kCallClose)});
}

Match header_start(Scanner& scan, bool is_bare) {
  if (!is_bare) {
    if (const Match open = scan.literal(kCallOpen); open != Match::kYes) return open;
    if (scan.gap() == Match::kMore) return Match::kMore;
  }
  return scan.literal(kFunctionOpen);
}

}  // namespace

CallHeader match_call_header(const PieceBuffer& in, size_t pos, const std::vector<ToolSpec>& tools,
                             bool is_bare) {
  CallHeader header;
  if (tools.empty()) return header;
  Scanner scan(in, pos);
  const PieceKind kind = scan.kind();
  header.is_control = kind == PieceKind::kControl;
  header.match = header_start(scan, is_bare);
  if (header.match != Match::kYes) return header;
  // Text is handed on as soon as no declared name fits; behind a real tag the name is wanted whole,
  // to report it.
  const bool is_eager = is_bare || kind == PieceKind::kOrdinary;
  if (is_eager && !is_prefix_of_any(scan.partial_name(), tools)) {
    header.match = Match::kNo;
    return header;
  }
  std::string_view name;
  header.match = scan.name(&name);
  if (header.match != Match::kYes) return header;
  header.num_bytes = scan.pos() - pos;
  header.match = follows_header(scan, is_bare);
  if (header.match != Match::kYes) return header;
  header.tool = find_tool(name, tools);
  if (header.tool != nullptr) return header;
  if (!is_eager) header.undeclared = name;
  header.match = Match::kNo;
  return header;
}

CallReader::CallReader(const CallHeader& header, size_t call_idx)
    : tool_(header.tool), is_control_(header.is_control), call_idx_(call_idx) {}

void CallReader::begin(std::vector<ChatEvent>* events) {
  events->push_back({ChatEvent::Kind::kToolCallBegin, std::string(tool_->name()), call_idx_, true});
}

bool CallReader::read(PieceBuffer& in, std::vector<ChatEvent>* events) {
  events_ = events;
  while (state_ != State::kDone && step(in)) {
  }
  return state_ == State::kDone;
}

bool CallReader::step(PieceBuffer& in) {
  switch (state_) {
    case State::kBetween:
      return step_between(in);
    case State::kValueStart:
      return step_value_start(in);
    case State::kValue:
      return step_value(in);
    case State::kTail:
      return step_tail(in);
    case State::kDone:
      return false;
  }
  return false;
}

bool CallReader::step_between(PieceBuffer& in) {
  size_t num_spaces = 0;
  const std::string_view text = in.text();
  while (num_spaces < text.size() && is_ascii_space(text[num_spaces])) ++num_spaces;
  in.consume(num_spaces);
  Scanner scan(in, 0);
  if (scan.at_end() && !in.is_finished()) return false;

  Scanner parameter = scan;
  std::string_view name;
  Match opens = parameter.literal(kParameterOpen);
  if (opens == Match::kYes) opens = parameter.name(&name);
  if (opens == Match::kYes) {
    start_value(name);
    in.consume(parameter.pos());
    state_ = State::kValueStart;
    return true;
  }
  Scanner closer = scan;
  const Match function = closer.literal(kFunctionClose);
  const Match call = closer.literal(kCallClose);  // moves only where the other did not match
  if (function == Match::kYes || call == Match::kYes) {
    finish_call(true);
    in.consume(function == Match::kYes ? kFunctionClose.size() : kCallClose.size());
    state_ = function == Match::kYes ? State::kTail : State::kDone;
    return true;
  }
  const Match next_call = Scanner(scan).literal(kCallOpen);
  if (next_call != Match::kYes && any_of({opens, function, call, next_call}) == Match::kMore)
    return false;
  if (is_cut_structure(scan)) in.consume(in.text().size());
  finish_call(next_call == Match::kYes);
  state_ = State::kDone;
  return true;
}

bool CallReader::step_value_start(PieceBuffer& in) {
  const std::string_view text = in.text();
  if (text.empty() || text == "\r") {
    if (!in.is_finished()) return false;
  } else if (text.starts_with("\n")) {
    in.consume(1);
  } else if (text.starts_with("\r\n")) {
    in.consume(2);
  }
  state_ = State::kValue;
  return true;
}

bool CallReader::step_value(PieceBuffer& in) {
  const std::string_view text = in.text();
  if (text.empty()) {
    if (!in.is_finished()) return false;
    end_value(true);
    finish_call(false);
    state_ = State::kDone;
    return true;
  }
  const size_t num_plain = std::min(text.find_first_of("\n<"), text.size());
  if (num_plain > 0) {
    add_value(text.substr(0, num_plain));
    in.consume(num_plain);
    return true;
  }
  const bool is_newline = text.front() == '\n';  // the closer's own newline, if one follows
  const Closing closing = closing_at(in, is_newline ? 1 : 0, is_newline || is_empty_value_);
  const Match function = Scanner(in, 0).literal(kFunctionOpen);
  if (closing.match == Match::kMore || function == Match::kMore) return false;
  if (closing.match == Match::kYes) {
    apply(closing, in);
  } else {
    holds_function_ |= function == Match::kYes;
    add_value(text.substr(0, 1));
    in.consume(1);
  }
  return true;
}

bool CallReader::step_tail(PieceBuffer& in) {
  Scanner scan(in, 0);
  if (scan.gap() == Match::kMore) return false;
  const bool is_cut = !scan.at_end() && scan.is_cut_tag(kCallClose);
  const Match close = scan.literal(kCallClose);
  if (close == Match::kMore) return false;
  if (close == Match::kYes) in.consume(scan.pos());
  if (is_cut) in.consume(in.text().size());
  state_ = State::kDone;
  return true;
}

CallReader::Closing CallReader::closing_at(const PieceBuffer& in, size_t pos,
                                           bool is_line_start) const {
  if (pos == in.text().size()) return {in.is_finished() ? Match::kNo : Match::kMore};
  if (in.text()[pos] != '<') return {};
  Closing candidates[] = {
      parameter_close(in, pos), function_close(in, pos), call_close(in, pos),
      is_line_start ? next_parameter(in, pos) : Closing(),
      is_control_ ? Closing{call_tag(Scanner(in, pos), kCallOpen), Closer::kNextCall, pos}
                  : Closing()};
  Closing best;
  for (const Closing& candidate : candidates) {
    if (candidate.match == Match::kYes) return candidate;
    if (candidate.match == Match::kMore) best = candidate;
  }
  return best;
}

CallReader::Closing CallReader::parameter_close(const PieceBuffer& in, size_t pos) const {
  Scanner scan(in, pos);
  if (const Match tag = scan.literal(kParameterClose); tag != Match::kYes) return {tag};
  return {follows_parameter(scan), Closer::kParameter, scan.pos()};
}

CallReader::Closing CallReader::function_close(const PieceBuffer& in, size_t pos) const {
  Scanner scan(in, pos);
  if (const Match tag = scan.literal(kFunctionClose); tag != Match::kYes) return {tag};
  return {follows_function(scan), Closer::kFunction, scan.pos()};
}

CallReader::Closing CallReader::call_close(const PieceBuffer& in, size_t pos) const {
  Scanner scan(in, pos);
  const bool is_real = scan.kind() == PieceKind::kControl;
  if (is_control_ && !is_real) return {};
  if (const Match tag = scan.literal(kCallClose); tag != Match::kYes) return {tag};
  const Closing closing{Match::kYes, Closer::kCall, scan.pos()};
  if (is_real) return closing;
  if (scan.gap() == Match::kMore) return {Match::kMore};
  const Match next = Scanner(scan).literal(kCallOpen);
  return {scan.at_final_end() ? Match::kYes : next, closing.closer, closing.end};
}

CallReader::Closing CallReader::next_parameter(const PieceBuffer& in, size_t pos) const {
  if (holds_function_) return {};
  Scanner scan(in, pos);
  if (const Match tag = scan.literal(kParameterOpen); tag != Match::kYes) return {tag};
  std::string_view name;
  if (const Match read = scan.name(&name); read != Match::kYes) return {read};
  const JsonValue* parameters = tool_->parameters();
  const JsonValue* properties = parameters != nullptr ? parameters->find("properties") : nullptr;
  const bool is_declared = properties == nullptr || properties->find(name) != nullptr;
  const bool is_new = name != key_ && !keys_.contains(name);
  return {is_declared && is_new ? Match::kYes : Match::kNo, Closer::kNextParameter, pos};
}

Match CallReader::call_tag(Scanner scan, std::string_view tag) const {
  if (is_control_ && !scan.at_end() && scan.kind() != PieceKind::kControl) return Match::kNo;
  return scan.literal(tag);
}

Match CallReader::follows_parameter(Scanner scan) const {
  if (scan.gap() == Match::kMore) return Match::kMore;
  if (is_cut_structure(scan)) return Match::kYes;
  Scanner function = scan;
  Match function_ends = function.literal(kFunctionClose);
  if (function_ends == Match::kYes) function_ends = follows_function(function);
  return any_of(
      {parameter_open(scan), function_ends, call_tag(scan, kCallClose), call_tag(scan, kCallOpen)});
}

Match CallReader::follows_function(Scanner scan) const {
  if (scan.gap() == Match::kMore) return Match::kMore;
  if (scan.is_cut_tag(kCallClose)) return Match::kYes;
  return any_of({call_tag(scan, kCallClose), call_tag(scan, kCallOpen)});
}

void CallReader::apply(const Closing& closing, PieceBuffer& in) {
  end_value(false);
  in.consume(closing.end);
  switch (closing.closer) {
    case Closer::kParameter:
    case Closer::kNextParameter:
      state_ = State::kBetween;
      return;
    case Closer::kFunction:
      state_ = State::kTail;
      break;
    case Closer::kCall:
    case Closer::kNextCall:
    case Closer::kNone:
      state_ = State::kDone;
      break;
  }
  finish_call(true);
}

void CallReader::arguments(std::string text) {
  events_->push_back({ChatEvent::Kind::kToolCallArguments, std::move(text), call_idx_, true});
}

std::string CallReader::member_start() {
  std::string text(1, has_members_ ? ',' : '{');
  has_members_ = true;
  text += json_quote(key_);
  text += ':';
  return text;
}

void CallReader::start_value(std::string_view key) {
  key_ = key;
  is_repeated_ = !keys_.emplace(key).second;
  types_ = value_types(tool_->parameters(), key);
  value_.clear();
  is_empty_value_ = true;
  holds_function_ = false;
  is_streaming_ = false;
  if (!is_repeated_ && types_.only(ValueTypes::kString)) stream_value();
}

void CallReader::stream_value() {
  arguments(member_start() + "\"");
  is_streaming_ = true;
  add_value(std::exchange(value_, {}));
}

void CallReader::add_value(std::string_view text) {
  if (text.empty()) return;
  is_empty_value_ = false;
  if (is_repeated_) return;
  if (is_streaming_) {
    const std::string quoted = json_quote(text);
    arguments(quoted.substr(1, quoted.size() - 2));
    return;
  }
  value_ += text;
  const bool is_nullable_string =
      types_.only(ValueTypes::kString | ValueTypes::kNull) && types_.has(ValueTypes::kString);
  if (is_nullable_string && value_.size() > kMaxNullBytes) stream_value();
}

void CallReader::end_value(bool is_cut) {
  if (is_repeated_) return;
  // A string that was cut is delivered as far as it came; half a number would be another number.
  if (is_cut && !is_streaming_ && types_.has(ValueTypes::kString)) stream_value();
  if (is_streaming_) return arguments("\"");
  if (is_cut) return;
  arguments(member_start() + dump_json(typed_value(value_, types_)));
}

void CallReader::finish_call(bool is_complete) {
  arguments(has_members_ ? "}" : "{}");
  events_->push_back({ChatEvent::Kind::kToolCallEnd, "", call_idx_, is_complete});
}

}  // namespace sluice::chat
