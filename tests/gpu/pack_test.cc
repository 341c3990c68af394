// Packed weights, read back and put into rows again by packed.h's own words.
#include "ops/cuda/pack.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/bf16.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device.h"
#include "ops/cuda/packed.h"

namespace sluice {
namespace {

float widen_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  float x =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0f + mantissa, exponent - 25);
  if (exponent == 31) x = (bits & 1023) != 0 ? NAN : INFINITY;
  return bits >> 15 != 0 ? -x : x;
}

/// A packed weight on the device, and what came back of it.
struct Packed {
  std::vector<uint8_t> data;
  std::vector<float> scales;
  WeightView view;

  explicit Packed(const WeightView& from) {
    const MemoryTable& memory = *(*cuda_ops())->memory;
    const Buffer buffer =
        memory.allocate(cuda::packed_bytes(from) + 64, "weight", MemoryKind::kPrivate).value();
    view = cuda::pack_weight(from, buffer.data() + 64);  // an arena's alignment, not the packer's
    const bool is_bf16 = from.format == WeightFormat::kBf16;
    const int64_t groups = (from.num_out + cuda::kRowGroup - 1) / cuda::kRowGroup;
    data = fetch(memory, static_cast<const uint8_t*>(view.data),
                 groups * cuda::kRowGroup * from.num_in * (is_bf16 ? 2 : 1));
    scales = fetch(memory, view.scales,
                   is_bf16 ? from.num_out : (from.num_out + 127) / 128 * from.scale_cols());
  }
};

/// Index of W[n, k] among a block format's bytes (FP8) or values (f16).
size_t fp8_place(int64_t n, int64_t k, int64_t num_in) {
  const int64_t block = n / 8 * (num_in / 64) + k / 64;
  const int64_t t = k % 32 / 8;
  const int64_t word = k % 64 / 32 * 2 + k % 8 / 4;
  return static_cast<size_t>(block * 512 + (n % 8 * 4 + t) * 16 + word * 4 + k % 4);
}
size_t f16_place(int64_t n, int64_t k, int64_t num_in) {
  const int64_t block = n / 8 * (num_in / 64) + k / 64;
  return static_cast<size_t>(block * 512 + k % 64 / 32 * 256 + (n % 8 * 4 + k % 32 / 8) * 8 +
                             k % 8);
}

struct Shape {
  int64_t num_out, num_in;
};
/// Edges of the row group; the last ones are longer than a staging buffer (32 MiB), the very last in both formats.
constexpr Shape kShapes[] = {{1, 128},   {7, 128},    {8, 256},    {9, 384},
                             {129, 128}, {1000, 640}, {5003, 8192}};

TEST(PackedWeights, Fp8RoundTrip) {
  std::mt19937 rng(3);
  for (const auto& [num_out, num_in] : kShapes) {
    std::vector<uint8_t> codes(static_cast<size_t>(num_out * num_in));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(rng());
    WeightView from{WeightFormat::kFp8Block128, codes.data(), nullptr, num_out, num_in};
    std::vector<float> scales(static_cast<size_t>((num_out + 127) / 128 * from.scale_cols()));
    for (float& scale : scales)
      scale = std::ldexp(1.0f + static_cast<float>(rng() % 1000) / 1000.0f, -9);
    from.scales = scales.data();
    const Packed packed(from);
    EXPECT_EQ(packed.view.num_out, num_out);
    int64_t num_wrong = 0;
    for (int64_t n = 0; n < (num_out + 7) / 8 * 8; ++n) {
      for (int64_t k = 0; k < num_in; ++k) {
        const int wanted = n < num_out ? codes[static_cast<size_t>(n * num_in + k)] : 0;
        num_wrong += packed.data[fp8_place(n, k, num_in)] != wanted;
      }
    }
    EXPECT_EQ(num_wrong, 0) << num_out << " x " << num_in;
    for (size_t i = 0; i < scales.size(); ++i) ASSERT_EQ(packed.scales[i], 16.0f * scales[i]) << i;
  }
}

/// Values of very different size in a row, rows of very different size; a row of zeros, one with an infinity.
std::vector<bf16> bf16_values(const Shape& shape, std::mt19937& rng) {
  std::vector<bf16> values(static_cast<size_t>(shape.num_out * shape.num_in));
  for (int64_t n = 0; n < shape.num_out; ++n) {
    const int row_exponent = static_cast<int>(rng() % 200) - 110;
    for (int64_t k = 0; k < shape.num_in; ++k) {
      const float x = 1.0f + static_cast<float>(rng() % 128) / 128.0f;
      const int exponent = row_exponent - static_cast<int>(rng() % 21);
      bf16& value = values[static_cast<size_t>(n * shape.num_in + k)];
      value = to_bf16(std::ldexp(rng() % 2 != 0 ? x : -x, exponent));
      if (n % 5 == 4) value = bf16{0};
    }
    if (n % 7 == 6) values[static_cast<size_t>(n * shape.num_in)] = to_bf16(INFINITY);
  }
  return values;
}

TEST(PackedWeights, Bf16RoundTrip) {
  std::mt19937 rng(4);
  for (const Shape& shape : kShapes) {
    const auto& [num_out, num_in] = shape;
    const std::vector<bf16> values = bf16_values(shape, rng);
    const Packed packed({WeightFormat::kBf16, values.data(), nullptr, num_out, num_in});
    const auto* f16 = reinterpret_cast<const uint16_t*>(packed.data.data());
    int64_t num_wrong = 0;
    for (int64_t n = 0; n < (num_out + 7) / 8 * 8; ++n) {
      for (int64_t k = 0; k < num_in; ++k) {
        const float got = widen_f16(f16[f16_place(n, k, num_in)]);
        const float factor = n < num_out ? packed.scales[static_cast<size_t>(n)] / 16.0f : 0.0f;
        const float wanted =
            n < num_out ? to_float(values[static_cast<size_t>(n * num_in + k)]) : 0.0f;
        num_wrong += got * factor != wanted && !(n >= num_out && got == 0.0f);
      }
    }
    EXPECT_EQ(num_wrong, 0) << num_out << " x " << num_in;
  }
}

TEST(PackedWeights, StagingComesAndGoes) {
  const std::vector<uint8_t> codes(128 * 128, 0x38);
  const float scale = 0.5f;
  const WeightView from{WeightFormat::kFp8Block128, codes.data(), &scale, 128, 128};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Packed(from).scales[0], 8.0f);
    cuda::release_staging();
  }
}

/// With the GPU's memory full: an error that names the size, and uploads that need no buffers.
TEST(PackedWeights, RefusedStagingIsAnError) {
  const MemoryTable& memory = cuda::device_memory();
  const std::vector<uint8_t> bytes(size_t{8} << 20, 0x5a);
  const Buffer target = memory.allocate(bytes.size(), "target", MemoryKind::kPrivate).value();
  std::vector<Buffer> all;
  for (size_t size = size_t{64} << 30; size >= size_t{2} << 20; size /= 2) {
    for (;;) {
      Result<Buffer> taken = memory.allocate(size, "all there is", MemoryKind::kPrivate);
      if (!taken.ok()) break;
      all.push_back(*std::move(taken));
    }
  }
  const Status refused = cuda::open_staging();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("32 MiB"), std::string::npos) << refused.message();
  memory.upload(target.data(), bytes.data(), bytes.size());
  EXPECT_EQ(fetch(memory, reinterpret_cast<const uint8_t*>(target.data()),
                  static_cast<int64_t>(bytes.size())),
            bytes);
  all.clear();
  EXPECT_TRUE(cuda::open_staging().ok());
  cuda::release_staging();
}

}  // namespace
}  // namespace sluice
