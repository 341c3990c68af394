#include "apps/agent_printer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "apps/tools/text.h"

namespace sluice {
namespace {

constexpr int kResultLinesMax = 16;

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kCyan = "\x1b[36m";

double per_second(int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

bool wants_colour(std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  return ::isatty(::fileno(stream)) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

void AgentPrinter::user(std::string_view text) {
  end_line();
  style(kBold);
  write("> " + printable_text(text));
  end_line();
}

void AgentPrinter::on_event(const chat::ChatEvent& event) {
  using Kind = chat::ChatEvent::Kind;
  switch (event.kind) {
    case Kind::kReasoning:
      begin(Part::kThought);
      write(printable_text(skip_leading_space(event.text)));
      break;
    case Kind::kContent:
      begin(Part::kAnswer);
      write(printable_text(skip_leading_space(event.text)));
      break;
    case Kind::kToolCallBegin:
      part_ = Part::kNone;  // each call has a line of its own
      begin(Part::kCall);
      write(printable_line(event.text) + " ");
      break;
    case Kind::kToolCallArguments:
      write(printable_line(event.text));
      break;
    case Kind::kToolCallEnd:
      if (!event.is_complete) write(" [incomplete]");
      end_line();
      break;
  }
  std::fflush(out_);
}

void AgentPrinter::on_tool_result(std::string_view, const ToolResult& result) {
  end_line();
  std::string_view rest = result.text;
  for (int i = 0; !rest.empty(); ++i) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    style(result.failed ? kRed : kDim);
    if (i == kResultLinesMax) {
      write(fmt::format("    ... ({} more lines)", std::ranges::count(rest, '\n') + 1));
      rest = {};
    } else {
      write("    " + printable_text(line));
    }
    end_line();
  }
  std::fflush(out_);
}

void AgentPrinter::broken_off() {
  end_line();
  std::fflush(out_);
}

void AgentPrinter::summary(const AskStats& stats) {
  end_line();
  style(kDim);
  write(fmt::format(
      "[{} {}, {} prompt tokens, first token after {:.0f} ms, {} tokens, {:.1f} tokens/s]",
      stats.num_steps, stats.num_steps == 1 ? "turn" : "turns", stats.num_prompt_tokens,
      stats.ttft_s * 1e3, stats.num_generated_tokens,
      per_second(stats.num_decoded_tokens, stats.decode_s)));
  end_line();
  write("\n");
  std::fflush(out_);
}

void AgentPrinter::begin(Part part) {
  if (part_ == part) return;
  end_line();
  part_ = part;
  at_part_start_ = true;
  if (part == Part::kThought) {
    style(kDim);
    write("  thought: ");
  } else if (part == Part::kCall) {
    style(kCyan);
    write("  call: ");
  } else {
    write("  answer: ");
  }
}

void AgentPrinter::end_line() {
  if (!at_line_start_) {
    style(kReset);
    write("\n");
  }
  part_ = Part::kNone;
}

void AgentPrinter::write(std::string_view text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), out_);
  at_line_start_ = text.back() == '\n';
}

void AgentPrinter::style(std::string_view code) {
  if (colour_) std::fwrite(code.data(), 1, code.size(), out_);
}

std::string_view AgentPrinter::skip_leading_space(std::string_view text) {
  if (!at_part_start_) return text;
  while (!text.empty() && (text.front() == '\n' || text.front() == ' ')) text.remove_prefix(1);
  at_part_start_ = text.empty();
  return text;
}

}  // namespace sluice
