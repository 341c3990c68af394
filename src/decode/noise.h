#pragma once

#include <array>
#include <cstdint>

namespace sluice {

/// Philox4x32-10: four random words, a pure function of counter and key (Salmon et al., SC 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Standard Gumbel noise of one token id at one position of a request: the draw is argmax(logit / T + noise).
/// A pure function, so a draft and its target share their noise, and a run repeats alone or in a crowd.
/// Position is that of the drawn token. Finite for every input.
double gumbel_noise(uint64_t seed, int64_t position, int32_t token_id);

}  // namespace sluice
