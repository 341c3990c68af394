#include "apps/info.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/model_flags.h"
#include "apps/synth.h"
#include "apps/tools/text.h"
#include "engine/text_side.h"
#include "model/checkpoint.h"
#include "model/family.h"
#include "model/report.h"

namespace sluice {
namespace {

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Status check_bandwidth(const InfoOptions& options) {
  if (!options.bandwidth_gbs || *options.bandwidth_gbs > 0.0) return Status();
  return invalid_argument("--bandwidth is {}; expected GB/s above 0", *options.bandwidth_gbs);
}

Status show_size(const InfoOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config, family_config(options.size));
  SLUICE_ASSIGN_OR_RETURN(const WeightFormat linears, weight_format(options.format));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> stop_ids, stop_token_ids(config, {}));
  const std::vector<TensorSpec> tensors =
      checkpoint_tensors(config, family_format(options.size, linears));
  print(fmt::format("size        {} in {}, as published\n", options.size, options.format));
  print(describe_config(config, {}, stop_ids));
  print(describe_tensors(config, tensors));
  print(describe_budget(config, tensors, options.bandwidth_gbs));
  return Status();
}

/// What speaks for the model: without it only `run --ids` works.
std::string describe_text_side(const Path& dir, const ModelConfig& config) {
  const Result<Tokenizer> tokenizer = load_model_tokenizer(dir, config);
  std::string text = tokenizer.ok() ? fmt::format("tokenizer   {} ids\n", tokenizer->num_defined())
                                    : fmt::format("tokenizer   none: {}\n",
                                                  printable_line(tokenizer.status().message()));
  const Result<std::string> template_text = read_template_text(dir);
  const Result<const chat::ChatTemplate*> known =
      template_text.ok() ? chat::find_template(*template_text) : template_text.status();
  text += known.ok()
              ? fmt::format("template    {}\n", (*known)->name)
              : fmt::format("template    none: {}\n", printable_line(known.status().message()));
  return text;
}

Status show_checkpoint(const InfoOptions& options) {
  ModelFlags flags;
  flags.model_dir = options.model_dir;
  SLUICE_ASSIGN_OR_RETURN(const Path dir, model_dir(flags));
  LoadOptions load_options;
  load_options.verify_values = options.verify_values ? VerifyValues::kAll : VerifyValues::kSmall;
  SLUICE_ASSIGN_OR_RETURN(const LoadedModel model, load_model(dir, load_options));
  print(fmt::format("model       {}\n", printable_line(dir.string())));
  print(describe_config(model.weights.config, model.generation, model.stop_token_ids));
  print(describe_text_side(dir, model.weights.config));
  print(describe_tensors(model.weights.config, model.tensors));
  print(describe_budget(model.weights.config, model.tensors, options.bandwidth_gbs));
  for (const std::string& note : model.diagnostics.notes) {
    print(fmt::format("note: {}\n", printable_line(note)));
  }
  for (const std::string& warning : model.diagnostics.warnings) {
    std::fprintf(stderr, "sluice: warning: %s\n", printable_line(warning).c_str());
  }
  return Status();
}

}  // namespace

int run_info(const InfoOptions& options) {
  Status status = check_bandwidth(options);
  if (status.ok()) status = options.size.empty() ? show_checkpoint(options) : show_size(options);
  return exit_code_of(status);
}

}  // namespace sluice
