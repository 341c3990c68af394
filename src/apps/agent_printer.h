#pragma once

#include <cstdio>
#include <string_view>

#include "apps/agent.h"

namespace sluice {

/// Whether `stream` is a terminal that wants colour (NO_COLOR, https://no-color.org, is unset).
bool wants_colour(std::FILE* stream);

/// Streams a conversation to `out`: a header for each part, tool results indented and cut to a few
/// lines. What the model and the tools wrote is stripped of control characters.
class AgentPrinter : public AgentView {
 public:
  AgentPrinter(std::FILE* out, bool colour) : out_(out), colour_(colour) {}

  void user(std::string_view text);
  void on_event(const chat::ChatEvent& event) override;
  void on_tool_result(std::string_view name, const ToolResult& result) override;
  /// Ends the last line; an error follows, and there are no figures.
  void broken_off();
  /// Ends the last line and prints the line of figures.
  void summary(const AskStats& stats);

 private:
  enum class Part { kNone, kThought, kAnswer, kCall };

  void begin(Part part);
  void end_line();
  void write(std::string_view text);
  void style(std::string_view code);
  std::string_view skip_leading_space(std::string_view text);

  std::FILE* out_;
  bool colour_;
  Part part_ = Part::kNone;
  bool at_part_start_ = false;
  bool at_line_start_ = true;
};

}  // namespace sluice
