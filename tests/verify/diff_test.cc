// diff names the op that is wrong, and no other.

#include "verify/diff.h"

#include <gtest/gtest.h>

#include "tests/ops/gdn_twin.h"
#include "tests/support/random_model.h"
#include "tests/verify/faulty_model.h"

namespace sluice {
namespace {

using testing::EditedModel;
using testing::RandomModel;

const std::vector<int32_t> kIds = {7, 200, 31, 4, 99, 18, 18, 2};

const ModelWeights& weights() {
  static const RandomModel model({});
  return model.weights();
}

Backend backend(std::string_view isa) {
  return *choose_backend("cpu", isa);
}

TEST(Diff, ABackendDoesNotDepartFromItself) {
  DiffOptions options;
  options.max_ulps = 0.0;
  const DiffResult result =
      *diff_backends(weights(), backend("ref"), backend("ref"), kIds, options);
  EXPECT_FALSE(result.departure.has_value());
  EXPECT_EQ(result.largest, 0.0);
  // A prompt and four single rows, each three GDN layers of 14 outputs, an attention layer of 10, embedding, norm, logits.
  EXPECT_EQ(result.num_compared, 5 * (3 * 14 + 10 + 3));
}

TEST(Diff, TheFirstWrongOpIsNamed) {
  EditedModel edited(weights(), backend("ref"));
  edited.ops().gdn_step = [](const GdnArgs& args, OpContext&) {
    gdn_twin(args, GdnMistake::kDecayAfterUpdate);
  };
  const DiffResult result =
      *diff_backends(weights(), backend("ref"), edited.backend(), kIds, DiffOptions());
  ASSERT_TRUE(result.departure.has_value());
  EXPECT_EQ(result.departure->tensor, "layers.0.core");
  EXPECT_EQ(result.departure->op, "gdn");
  EXPECT_GT(result.departure->difference.max, 2.0);
  EXPECT_GT(result.departure->plain_ulps, 0);
}

TEST(Diff, TheSearchStartsWhereItIsTold) {
  EditedModel edited(weights(), backend("ref"));
  edited.ops().gdn_step = [](const GdnArgs& args, OpContext&) {
    gdn_twin(args, GdnMistake::kDecayAfterUpdate);
  };
  DiffOptions options;
  options.layer = 0;
  options.after = "core";
  const DiffResult later =
      *diff_backends(weights(), backend("ref"), edited.backend(), kIds, options);
  ASSERT_TRUE(later.departure.has_value());
  EXPECT_EQ(later.departure->tensor, "layers.1.core");
  options.layer = 3;
  options.after = "";
  EXPECT_FALSE(
      diff_backends(weights(), backend("ref"), edited.backend(), kIds, options)->departure);
}

TEST(Diff, WrongPlacesAreNamedWithTheRightOnes) {
  DiffOptions options;
  options.layer = 4;
  const Backend ref = backend("ref");
  EXPECT_EQ(diff_backends(weights(), ref, ref, kIds, options).status().message(),
            "layer 4; this model has layers 0 to 3");
  options.layer = 3;
  options.after = "conv";
  EXPECT_EQ(diff_backends(weights(), ref, ref, kIds, options).status().message(),
            "no output \"conv\" in layer 3; expected one of input_layernorm, qg, k, v, q, core, "
            "mixer, post_attention_layernorm, mlp, output");
  const std::vector<int32_t> unknown = {256};
  EXPECT_EQ(diff_backends(weights(), ref, ref, unknown, DiffOptions()).status().message(),
            "id 256 is not in the vocabulary; expected 0 to 255");
}

}  // namespace
}  // namespace sluice
