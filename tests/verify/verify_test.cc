// verify on the embedded model: a right engine passes, each wrong one is rejected, and by how much.

#include "verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "model/checkpoint.h"
#include "tests/verify/faulty_model.h"
#include "verify/checkpoint_hash.h"

namespace sluice {
namespace {

using testing::EditedModel;
using testing::Fault;

const Path kGolden = Path(SLUICE_SOURCE_DIR) / "tests/golden/model/tiny_agent";
const Path kModel = Path(SLUICE_SOURCE_DIR) / "models/tiny-agent";
/// Of the controls: the ops, two chunks and the short prompts show each fault.
constexpr int64_t kShortIds = 65;

const LoadedModel& model() {
  static const LoadedModel loaded = *load_model(kModel, LoadOptions());
  return loaded;
}

Golden golden() {
  return *load_golden(kGolden, model().weights.config);
}

/// With short continuations, which take most of the time.
Golden short_golden() {
  constexpr size_t kContinuation = 8;
  Golden out = golden();
  for (GoldenCase& c : out.cases) c.greedy_ids.resize(kContinuation);
  return out;
}

Backend best_backend() {
  return *choose_backend("cpu", "");
}

VerifyReport verify(const ModelWeights& weights, const Backend& backend, const Golden& golden,
                    int64_t num_ids_max, bool identity) {
  VerifyOptions options;
  options.num_ids_max = num_ids_max;
  options.identity = identity;
  options.num_cuts = 3;
  options.num_identity_ids = 150;
  return *verify_model(weights, backend, &golden, options);
}

TEST(Verify, TheGoldenIsOfTheEmbeddedModel) {
  EXPECT_EQ(golden().checkpoint_hash, *checkpoint_hash(kModel));
}

TEST(Verify, BothFormsOfThePromptPass) {
  for (const GdnForm form : {GdnForm::kStep, GdnForm::kChunk}) {
    Backend backend = best_backend();
    backend.prefill_form = form;
    const VerifyReport report = verify(model().weights, backend, golden(), kShortIds, true);
    EXPECT_TRUE(report.passed()) << report_table(report);
  }
}

/// With the oracle's own bf16 weights nothing is left but the order of sums, so its rounding of the weights is no excuse.
TEST(Verify, Bf16WeightsPassWithoutTheRoundingOfWeightsAsAnExcuse) {
  EditedModel edited(model().weights, best_backend());
  edited.for_each_linear([&](WeightView& w) { w = edited.as_bf16(w); });
  Golden strict = golden();
  for (GoldenCase& c : strict.cases) {
    c.dither.reset();
    for (GoldenState& state : c.states) state.dither_noise = 0.0;
  }
  const VerifyReport report = verify(edited.weights, edited.backend(), strict, 129, false);
  EXPECT_TRUE(report.passed()) << report_table(report);
}

/// Names of the checks that failed for some fault.
std::set<std::string> failed_checks() {
  const Golden recorded = short_golden();
  std::set<std::string> failed;
  for (const Fault& fault : testing::faults()) {
    EditedModel edited(model().weights, best_backend());
    fault.apply(edited);
    const VerifyReport report =
        verify(edited.weights, edited.backend(), recorded, kShortIds, fault.breaks_identity);
    const Check* worst = report.worst_failure();
    EXPECT_NE(worst, nullptr) << fault.name;
    if (worst == nullptr) continue;
    for (const Check& check : report.checks) {
      if (!check.passed) failed.insert(check.name);
    }
    std::printf("%-44s %2d checks failed; worst: %s %s, %.4g against %.4g\n",
                std::string(fault.name).c_str(), report.num_failed(), worst->name.c_str(),
                worst->subject.c_str(), worst->value, worst->limit);
  }
  return failed;
}

TEST(Verify, EveryFaultIsRejectedAndEveryCheckRejectsAFault) {
  const std::set<std::string> failed = failed_checks();
  const VerifyReport right =
      verify(model().weights, best_backend(), short_golden(), kShortIds, true);
  EXPECT_TRUE(right.passed()) << report_table(right);
  for (const Check& check : right.checks) {
    EXPECT_TRUE(failed.contains(check.name)) << check.name << " rejected nothing";
  }
}

/// A second backend, and one with a wrong op: there the best ids part where neither is in doubt.
TEST(Verify, ASecondBackendAgreesAndAWrongOneDoesNot) {
  const auto agreement_of = [](const Backend& backend) {
    VerifyOptions options;
    options.num_ids_max = kShortIds;
    options.identity = false;
    options.against = choose_backend("cpu", "ref").value();
    const Golden recorded = short_golden();
    const VerifyReport report = *verify_model(model().weights, backend, &recorded, options);
    const auto found = std::ranges::find(report.checks, "two backends", &Check::name);
    EXPECT_NE(found, report.checks.end());
    return *found;
  };
  const Check right = agreement_of(best_backend());
  EXPECT_TRUE(right.passed) << right.value << " against " << right.limit;
  EditedModel wrong(model().weights, best_backend());
  const auto fault = std::ranges::find(testing::faults(), "KV off by one position", &Fault::name);
  ASSERT_NE(fault, testing::faults().end());
  fault->apply(wrong);
  EXPECT_FALSE(agreement_of(wrong.backend()).passed);
}

}  // namespace
}  // namespace sluice
