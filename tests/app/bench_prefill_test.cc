// Signatures of `sluice bench prefill`, which need no GPU; its times do.
#include <gtest/gtest.h>

#include "apps/bench/prefill_runner.h"
#include "tests/support/random_model.h"

namespace sluice {
namespace {

constexpr uint64_t kSeed = 5;

class BenchSignature : public ::testing::TestWithParam<GdnForm> {
 protected:
  BenchSignature() : model_({}) {
    backend_ = *choose_backend("cpu", "");
    backend_.prefill_form = GetParam();
    runner_ = *PrefillRunner::create(model_.weights(), backend_, {{}, 400, kSeed});
  }

  testing::RandomModel model_;
  Backend backend_;
  std::unique_ptr<PrefillRunner> runner_;
};

TEST_P(BenchSignature, RepeatsAndDoesNotDependOnTheCut) {
  const Result<Signature> whole = runner_->signature();
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->ids.size(), size_t{kGreedyIds});
  EXPECT_EQ(*runner_->signature(), *whole);
  const Status cuts = runner_->check_cuts(*whole, 6);
  EXPECT_TRUE(cuts.ok()) << cuts.message();
}

TEST_P(BenchSignature, AnotherSignatureIsNamed) {
  Signature other = *runner_->signature();
  other.hash ^= 1;
  const Status cuts = runner_->check_cuts(other, 1);
  EXPECT_EQ(cuts.code(), StatusCode::kDataLoss);
  EXPECT_NE(cuts.message().find("cut at"), std::string::npos) << cuts.message();
}

INSTANTIATE_TEST_SUITE_P(Forms, BenchSignature, ::testing::Values(GdnForm::kStep, GdnForm::kChunk));

}  // namespace
}  // namespace sluice
