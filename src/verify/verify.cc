#include "verify/verify.h"

#include <algorithm>

#include "engine/placed_weights.h"
#include "verify/accuracy.h"
#include "verify/agreement.h"
#include "verify/op_check.h"
#include "verify/recurrence.h"

namespace sluice {
namespace {

/// The golden's ids where it has that many, else the model's ids at random.
std::vector<int32_t> identity_ids(const ModelConfig& config, const Golden* golden,
                                  const VerifyOptions& options) {
  const GoldenCase* longest = nullptr;
  if (golden != nullptr) {
    for (const GoldenCase& c : golden->cases) {
      if (longest == nullptr || c.ids.size() > longest->ids.size()) longest = &c;
    }
  }
  std::vector<int32_t> ids;
  if (longest != nullptr) ids = longest->ids;
  const auto missing = options.num_identity_ids - static_cast<int64_t>(ids.size());
  const std::vector<int32_t> more = random_ids(config, options.seed, missing);
  ids.insert(ids.end(), more.begin(), more.end());
  ids.resize(static_cast<size_t>(options.num_identity_ids));
  return ids;
}

int64_t longest_session(const Golden& golden) {
  size_t longest = 1;
  for (const GoldenCase& c : golden.cases) {
    longest = std::max(longest, c.ids.size() + c.greedy_ids.size());
  }
  return static_cast<int64_t>(longest);
}

Status check_against_oracle(const ModelWeights& host_weights, const ModelWeights& weights,
                            const Backend& backend, const Golden& golden,
                            const VerifyOptions& options, VerifyReport* report) {
  SLUICE_ASSIGN_OR_RETURN(const Envelope exact, make_envelope(golden));
  const bool is_fp8 = backend.prefill_math == PrefillMath::kFp8;
  const Envelope envelope = is_fp8 ? widened_for_fp8(exact) : exact;
  RunnerLimits limits;
  limits.num_threads = options.num_threads;
  limits.context_max = longest_session(golden);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner,
                          ModelRunner::create(weights, backend, limits));
  check_accuracy(*runner, golden, envelope, options.num_ids_max, report);
  if (options.against) {
    SLUICE_ASSIGN_OR_RETURN(const PlacedWeights placed,
                            PlacedWeights::create(host_weights, *options.against->ops, nullptr));
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> other,
                            ModelRunner::create(placed.weights(), *options.against, limits));
    check_agreement(*runner, *other, golden, envelope, options.num_ids_max, report);
  }
  report->checks.push_back(runner->range_check("all cases"));
  return check_ops(weights, backend, golden.ops, options.num_threads, report);
}

}  // namespace

Result<VerifyReport> verify_model(const ModelWeights& host_weights, const Backend& backend,
                                  const Golden* golden, const VerifyOptions& options) {
  VerifyReport report;
  SLUICE_ASSIGN_OR_RETURN(const PlacedWeights placed,
                          PlacedWeights::create(host_weights, *backend.ops, nullptr));
  const ModelWeights& weights = placed.weights();
  if (golden != nullptr) {
    SLUICE_RETURN_IF_ERROR(
        check_against_oracle(host_weights, weights, backend, *golden, options, &report));
  }
  SLUICE_RETURN_IF_ERROR(check_recurrence(weights.config, backend, options.num_threads, &report));
  if (!options.identity) return report;
  const std::vector<int32_t> ids = identity_ids(weights.config, golden, options);
  SLUICE_RETURN_IF_ERROR(check_identity(
      weights, backend, ids, {options.num_threads, options.num_cuts, options.seed}, &report));
  return report;
}

}  // namespace sluice
