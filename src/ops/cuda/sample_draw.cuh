#pragma once
// The noise of decode/noise.cc, and the best score of a lane, a warp and a block.

#include "ops/cuda/sample_row.cuh"

namespace sluice::cuda::sampling {

/// Bounds |estimate - noise|: __logf's error is at most 2^-21.4 over a log of at least 2^-9, and 3 ulp of at most 37.
constexpr float kNoiseSlack = 1.0f / 1024.0f;

struct Words {
  uint32_t high, low;
};

/// The first two words of philox4x32-10.
__device__ inline Words random_words(const SampleRow& p, uint32_t id) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
  const auto pos = static_cast<uint64_t>(p.position);
  uint32_t c0 = id, c1 = static_cast<uint32_t>(pos), c2 = static_cast<uint32_t>(pos >> 32), c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(p.seed), k1 = static_cast<uint32_t>(p.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * c0;
    const uint64_t product1 = kMultiplier1 * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1};
}

__device__ inline double gumbel_noise(const SampleRow& p, int32_t id) {
  const Words words = random_words(p, static_cast<uint32_t>(id));
  const uint64_t bits = (static_cast<uint64_t>(words.high) << 20) | (words.low >> 12);
  const double uniform = (static_cast<double>(bits) + 0.5) * 0x1p-52;
  return -log(-log(uniform));
}

/// gumbel_noise within kNoiseSlack. Close to 1 the uniform number u is taken as its distance y from 1: -log(u) = y + y^2 / 2 + ...
__device__ inline float estimate_noise(const SampleRow& p, int32_t id) {
  const Words words = random_words(p, static_cast<uint32_t>(id));
  const bool near_one = words.high >= 0xff800000u;
  const uint32_t flip = near_one ? 0xffffffffu : 0u;
  const float high = static_cast<float>(words.high ^ flip);
  const float low = static_cast<float>((words.low ^ flip) >> 12) + 0.5f;
  const float y = fmaf(high, 0x1p-32f, low * 0x1p-52f);
  const float exponential = near_one ? fmaf(0.5f * y, y, y) : -__logf(y);
  return -__logf(exponential);
}

__device__ inline void estimate_eight(const SampleRow& p, const Eight& eight,
                                      float (&noise)[kLaneIds]) {
#pragma unroll
  for (int i = 0; i < kLaneIds; ++i) noise[i] = estimate_noise(p, eight.first_id + i);
}

__device__ inline double exact_score(const SampleRow& p, float logit, int32_t id) {
  return static_cast<double>(logit / p.temperature) + gumbel_noise(p, id);
}

/// Bounds |estimated score - score|, what fp32 loses included.
__device__ inline float slack(float score) {
  return fmaf(fabsf(score), 0x1p-21f, kNoiseSlack);
}

__device__ inline float warp_max_float(float x) {
  return warp_reduce(x, Max());
}

/// Joins the kept ids (bit i of `kept`: id i) into the lane's `best`. `bar`: a score that some id of the warp surely has.
__device__ inline void draw_eight(const SampleRow& p, const Eight& eight, uint32_t kept,
                                  const float (&noise)[kLaneIds], float& bar, Draw& best) {
  const float scale = 1.0f / p.temperature;
  float scores[kLaneIds];
  float highest = -FLT_MAX;
#pragma unroll
  for (int i = 0; i < kLaneIds; ++i) {
    // Within fp32's range whatever the logit: ids beyond it are all looked at closely.
    scores[i] = fminf(fmaxf(fmaf(eight.logit(i), scale, noise[i]), -1e37f), 1e37f);
    if ((kept >> i & 1u) != 0) highest = fmaxf(highest, scores[i]);
  }
  highest = warp_max_float(highest);
  bar = fmaxf(bar, highest - slack(highest));
  uint32_t close = 0;
#pragma unroll
  for (int i = 0; i < kLaneIds; ++i) {
    if (scores[i] + slack(scores[i]) >= bar) close |= 1u << i;
  }
  for (close &= kept; close != 0; close &= close - 1) {
    const int i = __ffs(static_cast<int>(close)) - 1;
    const int32_t id = eight.first_id + i;
    best = better(best, {exact_score(p, eight.logit(i), id), id});
  }
}

__device__ inline Draw warp_best(Draw best) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    best = better(best, {__shfl_xor_sync(kAllLanes, best.score, step),
                         __shfl_xor_sync(kAllLanes, best.id, step)});
  }
  return best;
}

__device__ inline Draw block_best(Draw best) {
  __shared__ Draw per_warp[kWarps];
  best = warp_best(best);
  if (lane_id() == 0) per_warp[warp_id()] = best;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) best = better(best, per_warp[w]);
  __syncthreads();
  return best;
}

}  // namespace sluice::cuda::sampling
