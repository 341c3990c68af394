#include "apps/run_prompt.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "apps/encode_prompt.h"
#include "apps/interrupt.h"
#include "apps/tools/text.h"
#include "base/json.h"
#include "chat/render.h"

namespace sluice {
namespace {

Result<std::vector<int32_t>> prompt_ids(const RunPromptOptions& options, const Engine& engine) {
  if (!options.ids.empty()) return parse_ids(options.ids);
  if (!options.as_chat) return engine.tokenizer().encode(options.prompt, AddedTokens::kMatch);
  chat::RenderOptions render_options;
  render_options.enable_thinking = options.enable_thinking;
  SLUICE_ASSIGN_OR_RETURN(
      const chat::Prompt prompt,
      chat::render(engine.chat_template(), {chat::ChatMessage::user(options.prompt)}, {},
                   render_options));
  return encode_prompt(engine.tokenizer(), prompt);
}

std::string logprobs_line(const TokenEvent& event) {
  std::vector<std::string> top;
  for (const TokenLogprob& token : event.logprobs.top) {
    top.push_back(fmt::format("[{}, {:.5f}]", token.id, token.logprob));
  }
  return fmt::format(R"({{"id": {}, "text": {}, "logprob": {:.5f}, "top": [{}]}})", event.id,
                     json_quote(event.text), event.logprobs.drawn, fmt::join(top, ", "));
}

/// Prints tokens as they come, in the form that was asked for.
class TokenPrinter {
 public:
  TokenPrinter(const RunPromptOptions& options, const Engine& engine)
      : options_(options), engine_(engine) {}

  void print(const TokenEvent& event) {
    if (options_.num_logprobs >= 0) {
      std::printf("%s\n", logprobs_line(event).c_str());
    } else if (!options_.ids.empty()) {
      std::printf("%s%d", is_first_ ? "" : " ", event.id);
    } else if (!engine_.tokenizer().is_special(event.id)) {
      // A pipe gets the model's bytes; a terminal gets none that move its cursor.
      const std::string text = is_terminal_ ? printable_text(event.text) : event.text;
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    is_first_ = false;
    std::fflush(stdout);
  }

  void finish() const {
    if (options_.num_logprobs < 0) std::printf("\n");
    std::fflush(stdout);
  }

 private:
  const RunPromptOptions& options_;
  const Engine& engine_;
  const bool is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  bool is_first_ = true;
};

GenerateParams generate_params(const RunPromptOptions& options, const Engine& engine) {
  GenerateParams params;
  params.sampling = sampling_params(options.sampling, options.model, engine.generation_config());
  params.sampling.num_logprobs = options.num_logprobs;
  params.max_tokens = options.max_tokens;
  params.stop_strings = options.stop_strings;
  params.ignore_model_stops = options.ignore_model_stops;
  return params;
}

void print_figures(const GenerateResult& result) {
  const double rate = result.decode_s > 0.0
                          ? static_cast<double>(result.num_generated_tokens - 1) / result.decode_s
                          : 0.0;
  std::fprintf(stderr,
               "[%lld prompt tokens, first token after %.0f ms, %lld tokens, %.1f tokens/s, "
               "ended by: %s]\n",
               static_cast<long long>(result.num_prompt_tokens), result.ttft_s * 1e3,
               static_cast<long long>(result.num_generated_tokens), rate,
               std::string(finish_reason_name(result.reason)).c_str());
}

Status run(const RunPromptOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          open_engine(options.model, !options.ids.empty()));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, prompt_ids(options, *engine));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->create_session());
  SLUICE_RETURN_IF_ERROR(session->append(ids));
  catch_interrupts();
  TokenPrinter printer(options, *engine);
  SLUICE_ASSIGN_OR_RETURN(
      const GenerateResult result,
      session->generate(generate_params(options, *engine), [&](const TokenEvent& event) {
        printer.print(event);
        return !interrupt_requested();
      }));
  printer.finish();
  print_figures(result);
  if (result.reason == FinishReason::kCancelled) return cancelled("interrupted");
  return Status();
}

}  // namespace

Result<std::vector<int32_t>> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" ,\t\n"), text.size());
    const std::string_view piece = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (piece.empty()) continue;
    int32_t id = 0;
    const auto [last, error] = std::from_chars(piece.data(), piece.data() + piece.size(), id);
    if (error != std::errc() || last != piece.data() + piece.size()) {
      return invalid_argument(
          "\"{}\" is no token id; expected numbers with spaces or commas between them", piece);
    }
    ids.push_back(id);
  }
  return ids;
}

int run_prompt(const RunPromptOptions& options) {
  return exit_code_of(run(options));
}

}  // namespace sluice
