#include "verify/diff.h"

#include <cstdio>

#include "apps/run_prompt.h"
#include "apps/verify.h"
#include "engine/backend.h"
#include "model/checkpoint.h"

namespace sluice {
namespace {

Result<std::vector<int32_t>> ids_to_run(const DiffCommandOptions& options,
                                        const ModelConfig& config) {
  if (!options.ids.empty()) return parse_ids(options.ids);
  return random_ids(config, options.seed, options.num_ids);
}

void print(const DiffResult& result, const DiffCommandOptions& options) {
  std::printf("%lld outputs of %s compared with %s, each op on the same inputs\n",
              static_cast<long long>(result.num_compared), options.backends[1].c_str(),
              options.backends[0].c_str());
  if (!result.departure) {
    std::printf("no op departs by more than %g ulps; the largest difference is %.3g, in %s\n",
                options.max_ulps, result.largest,
                result.largest_tensor.empty() ? "none" : result.largest_tensor.c_str());
    return;
  }
  const Departure& d = *result.departure;
  std::printf("first to depart: %s, op %s\n", d.tensor.c_str(), d.op.c_str());
  std::printf("  at position %lld, column %lld: %s %.9g, %s %.9g\n",
              static_cast<long long>(d.position), static_cast<long long>(d.difference.col),
              options.backends[0].c_str(), static_cast<double>(d.difference.b),
              options.backends[1].c_str(), static_cast<double>(d.difference.a));
  std::printf("  %lld representable values apart; %.3g ulps at the row's size (allowed %g)\n",
              static_cast<long long>(d.plain_ulps), d.difference.max, options.max_ulps);
  std::printf("  %lld of %lld elements equal, rms %.3g ulps\n",
              static_cast<long long>(d.difference.num_equal),
              static_cast<long long>(d.difference.num_elements), d.difference.rms);
}

Result<bool> diff(const DiffCommandOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const Backend a, backend_named(options.backends[0]));
  SLUICE_ASSIGN_OR_RETURN(const Backend b, backend_named(options.backends[1]));
  SLUICE_ASSIGN_OR_RETURN(const Path dir, model_dir(options.model));
  SLUICE_ASSIGN_OR_RETURN(const LoadedModel model, load_model(dir, LoadOptions()));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          ids_to_run(options, model.weights.config));
  SLUICE_ASSIGN_OR_RETURN(
      const DiffResult result,
      diff_backends(model.weights, a, b, ids,
                    {options.layer, options.after, options.max_ulps, options.model.num_threads}));
  print(result, options);
  return !result.departure.has_value();
}

}  // namespace

int run_diff(const DiffCommandOptions& options) {
  const Result<bool> same = diff(options);
  if (!same.ok()) return exit_code_of(same.status());
  return *same ? 0 : 1;
}

}  // namespace sluice
