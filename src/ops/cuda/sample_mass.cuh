#pragma once
// Top-p's probabilities as integers, so that their sum has no order (Sampler::keep_top_p).

#include "ops/cuda/sample_row.cuh"

namespace sluice::cuda::sampling {

__extension__ typedef unsigned __int128 Mass;  // of probabilities, in units of 2^-96

/// NaN counts as 0, as the host's comparisons have it.
__device__ inline Mass mass_of(double probability) {
  if (!(probability > 0.0)) return 0;
  const double scaled = probability * 0x1p32;
  const auto high = static_cast<uint64_t>(scaled);
  const auto low = static_cast<uint64_t>((scaled - static_cast<double>(high)) * 0x1p64);
  return (static_cast<Mass>(high) << 64) | low;
}

__device__ inline double to_double(Mass mass) {
  return static_cast<double>(static_cast<uint64_t>(mass >> 64)) * 0x1p-32 +
         static_cast<double>(static_cast<uint64_t>(mass)) * 0x1p-96;
}

__device__ inline Mass key_mass(uint32_t key, float temperature, double max) {
  return mass_of(exp(static_cast<double>(value_of(key) / temperature) - max));
}

template <typename Shuffle>
__device__ inline Mass shuffle_mass(Mass mass, Shuffle shuffle) {
  const uint64_t high = shuffle(static_cast<uint64_t>(mass >> 64));
  const uint64_t low = shuffle(static_cast<uint64_t>(mass));
  return (static_cast<Mass>(high) << 64) | low;
}

__device__ inline Mass warp_sum_mass(Mass mass) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    mass += shuffle_mass(mass, [=](uint64_t x) { return __shfl_xor_sync(kAllLanes, x, step); });
  }
  return mass;
}

}  // namespace sluice::cuda::sampling
