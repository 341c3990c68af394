#include "decode/noise.h"

#include <cmath>

namespace sluice {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double gumbel_noise(uint64_t seed, int64_t position, int32_t token_id) {
  const auto pos = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> words =
      philox4x32({static_cast<uint32_t>(token_id), static_cast<uint32_t>(pos),
                  static_cast<uint32_t>(pos >> 32), 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  // 52 bits plus a half step: strictly inside (0, 1), so both logarithms are finite.
  const uint64_t bits = (static_cast<uint64_t>(words[0]) << 20) | (words[1] >> 12);
  const double uniform = (static_cast<double>(bits) + 0.5) * 0x1p-52;
  return -std::log(-std::log(uniform));
}

}  // namespace sluice
