// Tokens drawn on the device against the host's sampler, over every kind of logits and parameters that a backend is asked to draw from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "decode/draw_request.h"
#include "decode/sampler.h"
#include "ops/cuda/cuda_ops.h"

namespace sluice {
namespace {

const OpTable& cuda() {
  static const OpTable& table = **cuda_ops();
  return table;
}

enum class Kind { kSmooth, kPeaked, kTies, kAllEqual, kMinusInfinity, kNan, kInfinity };
constexpr Kind kKinds[] = {Kind::kSmooth,        Kind::kPeaked, Kind::kTies,    Kind::kAllEqual,
                           Kind::kMinusInfinity, Kind::kNan,    Kind::kInfinity};

void fill_row(Kind kind, std::mt19937_64& rng, std::span<bf16> row) {
  std::normal_distribution<float> normal(0.0f, kind == Kind::kPeaked ? 12.0f : 3.0f);
  for (bf16& logit : row) {
    float value = normal(rng);
    if (kind == Kind::kTies) value = std::round(value);
    if (kind == Kind::kAllEqual) value = 1.5f;
    if (kind == Kind::kMinusInfinity && rng() % 4 != 0) value = -INFINITY;
    logit = to_bf16(value);
  }
  if (kind == Kind::kNan) row[rng() % row.size()] = to_bf16(NAN);
  if (kind == Kind::kInfinity) row[rng() % row.size()] = to_bf16(INFINITY);
}

constexpr int32_t kNumLogprobs[] = {-1, 0, 5, -1, kLogprobsMax};

std::vector<SamplingParams> all_params() {
  std::vector<SamplingParams> out;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 1.7f}) {
    for (const int32_t top_k : {0, 1, 20, 64}) {
      for (const float top_p : {1.0f, 0.95f, 0.4f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          SamplingParams params;
          params.temperature = temperature;
          params.top_k = top_k;
          params.top_p = top_p;
          params.min_p = min_p;
          params.seed = out.size() * 977 + 5;
          params.num_logprobs = kNumLogprobs[out.size() % std::size(kNumLogprobs)];
          if (can_be_drawn_by_backend(params)) out.push_back(params);
        }
      }
    }
  }
  return out;
}

/// A device's step that holds nothing but draws.
class Draws {
 public:
  explicit Draws(int64_t vocab_size) : vocab_size_(vocab_size) {
    OpDims dims;
    dims.hidden = dims.intermediate = 128;
    dims.vocab_size = vocab_size;
    dims.gdn = {.num_k_heads = 1, .num_v_heads = 2};
    dims.attention = {.num_heads = 2, .num_kv_heads = 1};
    dims.num_rows_max = kDrawnMax;
    dims.context_max = 64;
    state_ = open_backend_state(cuda(), dims).value();
    logits_ = cuda()
                  .memory
                  ->allocate(static_cast<size_t>(kDrawnMax * vocab_size) * sizeof(bf16), "logits",
                             MemoryKind::kPrivate)
                  .value();
  }

  struct Drawn {
    std::vector<int32_t> ids;
    std::vector<DrawnLogits> logits;
  };
  /// logits [rows, vocab_size].
  Drawn run(std::span<const bf16> logits, std::span<const DrawRequest> draws, int32_t num_defined) {
    const auto num_rows = static_cast<int64_t>(draws.size());
    cuda().memory->upload(logits_.data(), logits.data(), logits.size_bytes());
    const std::vector<int32_t> ids(draws.size());
    std::vector<RowRun> runs;
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < num_rows; ++i) {
      runs.push_back({.first_row = i, .num_rows = 1});
      rows.push_back(i);
    }
    StepRows step = {ids, runs, rows};
    step.num_rows = step.num_logit_rows = cuda().padded_rows(num_rows);
    step.draws = draws;
    OpContext context;
    context.state = state_.get();
    SLUICE_CHECK(!cuda().begin_step(step, context));
    cuda().draw({MatView<bf16>(reinterpret_cast<bf16*>(logits_.data()), step.num_logit_rows,
                               vocab_size_, vocab_size_),
                 num_defined},
                context);
    cuda().end_step(context);
    cuda().await_step(context);
    return {{context.drawn, context.drawn + num_rows},
            {context.drawn_logits, context.drawn_logits + num_rows}};
  }

 private:
  int64_t vocab_size_;
  std::unique_ptr<BackendState> state_;
  Buffer logits_;
};

/// What the host draws; kNoToken where it refuses.
SampledToken on_host(Sampler& sampler, std::span<const bf16> row, const SamplingParams& params,
                     int64_t position) {
  Result<SampledToken> token = sampler.sample(row, params, TokenCounts(), position);
  return token.ok() ? *std::move(token) : SampledToken{kNoToken, {}};
}

/// Equal, both no numbers, or apart by the last place of a float: sums of exponentials have another order.
bool is_near(double a, float b) {
  if (std::isnan(a) || std::isinf(a)) return std::isnan(a) ? std::isnan(b) : a == b;
  return std::abs(a - b) <= 2.4e-7 * std::max(1.0, std::abs(a));
}

void expect_logprobs(const DrawnLogits& logits, const TokenLogprobs& wanted) {
  EXPECT_TRUE(is_near(logits.drawn - logits.log_sum_exp, wanted.drawn))
      << logits.drawn << " less " << logits.log_sum_exp << ", not " << wanted.drawn;
  for (size_t i = 0; i < wanted.top.size(); ++i) {
    EXPECT_EQ(logits.tops[i].id, wanted.top[i].id) << i;
    EXPECT_TRUE(is_near(logits.tops[i].logit - logits.log_sum_exp, wanted.top[i].logprob)) << i;
  }
}

struct Vocabulary {
  int64_t size;
  int32_t num_defined;
  std::vector<int64_t> steps;  // rows of each
};

const std::vector<int64_t> kManySteps = {1, 2, 3, 7, 8, 13, 33, 64, 64, 64, 64, 64};

class GpuDraws : public ::testing::TestWithParam<Vocabulary> {};

TEST_P(GpuDraws, AreTheHosts) {
  const auto& [size, num_defined, steps] = GetParam();
  const std::vector<SamplingParams> params = all_params();
  Sampler sampler(size, num_defined);
  Draws draws(size);
  std::mt19937_64 rng(static_cast<uint64_t>(size));
  std::vector<bf16> logits(static_cast<size_t>(kDrawnMax * size));
  size_t next = 0;
  int64_t num_compared = 0;
  int64_t num_logprobs = 0;
  int64_t num_unsound = 0;
  for (const int64_t num_rows : steps) {
    std::vector<DrawRequest> requests;
    std::vector<SamplingParams> used;
    for (int64_t i = 0; i < num_rows; ++i) {
      const size_t at = next++;
      const std::span row(logits.data() + i * size, static_cast<size_t>(size));
      fill_row(kKinds[at % std::size(kKinds)], rng, row);
      used.push_back(params[at % params.size()]);
      requests.push_back(draw_request(used.back(), 100 + i));
    }
    const std::span<const bf16> rows(logits.data(), static_cast<size_t>(num_rows * size));
    const Draws::Drawn drawn = draws.run(rows, requests, num_defined);
    for (int64_t i = 0; i < num_rows; ++i) {
      const auto row = rows.subspan(static_cast<size_t>(i * size), static_cast<size_t>(size));
      const auto at = static_cast<size_t>(i);
      const SampledToken wanted = on_host(sampler, row, used[at], 100 + i);
      EXPECT_EQ(drawn.ids[at], wanted.id) << num_rows << " rows, row " << i;
      num_unsound += wanted.id == kNoToken;
      num_logprobs += wanted.logprobs.present;
      if (wanted.logprobs.present) expect_logprobs(drawn.logits[at], wanted.logprobs);
      ++num_compared;
    }
  }
  EXPECT_GT(num_unsound, num_compared / 8);  // both ways were seen
  EXPECT_LT(num_unsound, num_compared / 2);
  EXPECT_GT(num_logprobs, num_compared / 4);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GpuDraws,
                         ::testing::Values(Vocabulary{2400, 2387, kManySteps},
                                           Vocabulary{4096, 4096, kManySteps},
                                           // The host takes long for each of these rows.
                                           Vocabulary{248320, 248077, {1, 3, 33, 64}}));

/// For the sanitizers.
INSTANTIATE_TEST_SUITE_P(Short, GpuDraws, ::testing::Values(Vocabulary{2400, 2387, {3, 8}}));

}  // namespace
}  // namespace sluice
