#include "apps/agent_command.h"

#include <unistd.h>

#include <cstdio>

#include "apps/agent.h"
#include "apps/agent_printer.h"
#include "apps/interrupt.h"
#include "apps/line_reader.h"
#include "apps/tools/builtin_tools.h"
#include "apps/tools/command_tools.h"
#include "chat/text.h"

namespace sluice {
namespace {

Result<ToolSet> make_tools(const AgentCommandOptions& options) {
  if (!options.with_tools) return ToolSet();
  if (!options.tools_file.empty()) {
    CommandLimits limits;
    limits.timeout_s = options.tool_timeout_s;
    limits.cancelled = interrupt_requested;
    return command_tools(options.tools_file, options.tool_command, limits);
  }
  SLUICE_ASSIGN_OR_RETURN(ConfinedDir dir, ConfinedDir::open(options.dir));
  return builtin_tools(std::make_shared<const ConfinedDir>(std::move(dir)), options.allow_write);
}

/// One conversation on standard output.
class AgentProgram {
 public:
  AgentProgram(const AgentCommandOptions& options, const Engine& engine, const ToolSet& tools,
               TurnSource* turns)
      : options_(options),
        printer_(stdout, wants_colour(stdout)),
        agent_(engine.chat_template(), tools,
               {options.system, options.max_steps, options.enable_thinking}, turns, &printer_,
               interrupt_requested) {}

  int run() {
    for (const std::string& task : options_.tasks) {
      printer_.user(task);
      if (!ask(task)) return 1;
      if (interrupt_requested()) return kInterruptedExitCode;
    }
    if (options_.interactive) return converse();
    return all_answered_ ? 0 : 1;
  }

 private:
  /// False when the conversation cannot go on.
  bool ask(const std::string& text) {
    const Result<AskReport> report = agent_.ask(text);
    if (!report.ok()) {
      printer_.broken_off();
      print_error(report.status());
      all_answered_ = false;
      return report.status().code() == StatusCode::kResourceExhausted;
    }
    printer_.summary(report->stats);
    if (report->end != AskEnd::kAnswered) {
      all_answered_ = false;
      print_error(invalid_argument("{}", ask_end_text(report->end)));
    }
    return true;
  }

  int converse() {
    LineReader lines(STDIN_FILENO);
    for (;;) {
      std::printf("> ");
      std::fflush(stdout);
      const std::optional<std::string> line = lines.next();
      if (take_interrupt()) {
        std::printf("\n");
        return kInterruptedExitCode;
      }
      if (!line.has_value()) break;
      if (chat::strip(*line).empty()) continue;
      if (!ask(*line)) return 1;
      take_interrupt();  // it cancelled that answer
    }
    std::printf("\n");
    return all_answered_ ? 0 : 1;
  }

  const AgentCommandOptions& options_;
  AgentPrinter printer_;
  Agent agent_;
  bool all_answered_ = true;
};

Result<int> run(const AgentCommandOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const ToolSet tools, make_tools(options));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, open_engine(options.model, false));
  GenerateParams params;
  params.sampling = sampling_params(options.sampling, options.model, engine->generation_config());
  params.max_tokens = options.max_tokens;
  params.cancelled = interrupt_requested;
  SLUICE_RETURN_IF_ERROR(params.sampling.validate());
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TurnSource> turns,
                          session_turns(engine.get(), params));
  catch_interrupts();
  return AgentProgram(options, *engine, tools, turns.get()).run();
}

}  // namespace

int run_agent(const AgentCommandOptions& options) {
  const Result<int> code = run(options);
  return code.ok() ? *code : exit_code_of(code.status());
}

}  // namespace sluice
