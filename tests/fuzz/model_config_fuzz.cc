// Any text as config.json: a status, or a config whose tensor table can be counted without overflow.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/budget.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto generation = parse_generation_config(json, "fuzz");
  const auto config = parse_model_config(json, "fuzz");
  if (!config.ok()) return 0;
  SLUICE_CHECK_EQ(config->layer_types.size(), static_cast<size_t>(config->num_hidden_layers));
  const std::vector<TensorSpec> tensors = checkpoint_tensors(*config, {});
  SLUICE_CHECK_GT(model_totals(tensors).text.num_bytes, 0);
  SLUICE_CHECK_GT(step_bytes(tensors, StepPart::kTarget).total(), 0);
  SLUICE_CHECK_GE(sequence_bytes(*config).recurrent_state, 0);
  if (generation.ok()) (void)stop_token_ids(*config, *generation);
  return 0;
}
