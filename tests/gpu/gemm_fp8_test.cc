// launch_gemm_fp8 against the exact product of what was quantised, in fp64; everything else of it against its own fp32 totals, bit for bit.
#include "ops/cuda/gemm_fp8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random_values.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/fp8_twin.h"

namespace sluice {
namespace {

/// Root mean square error of sampled outputs against theirs. The tensor cores sum 128 products in fewer bits than fp32: measured 2e-4 on an H200.
constexpr double kBound = 1e-3;

/// Quantised activations on the device; row m of `wanted` is row m.
struct Activations {
  int num_rows, num_in, scale_stride;
  std::vector<bf16> plain;
  Quantised wanted;
  DeviceArray<uint8_t> values;
  DeviceArray<float> scales;

  Activations(int rows, int k, uint64_t key)
      : num_rows(rows),
        num_in(k),
        scale_stride((rows + 3) / 4 * 4),
        plain(random_plain(rows, k, key)),
        wanted(quantise(plain, rows, k)),
        values(plain.size()),
        scales(static_cast<size_t>(k / 128 * scale_stride)) {
    const DeviceArray<bf16> from(plain);
    const DeviceArray<int> flag(std::vector<int>{0});
    cuda::Fp8OperandsArgs args = {};
    args.values = from.data();
    args.stride = num_in;
    args.num_rows = num_rows;
    args.num_cols = num_in;
    args.to = operands();
    args.range_flag = flag.data();
    EXPECT_EQ(cuda::launch_fp8_operands(args, nullptr), cudaSuccess);
    EXPECT_EQ(flag.fetch()[0], 0);
  }
  static std::vector<bf16> random_plain(int rows, int k, uint64_t key) {
    std::vector<bf16> out(static_cast<size_t>(rows) * static_cast<size_t>(k));
    for (size_t i = 0; i < out.size(); ++i) {
      // Columns differ in size, as activations' do.
      const float size =
          std::exp2(4.0f * random_uniform(key + 1, i % static_cast<size_t>(k)) - 2.0f);
      out[i] = to_bf16(size * random_normal(key, i));
    }
    return out;
  }
  cuda::Fp8Operands operands() const {
    return {values.data(), num_in, scales.data(), scale_stride};
  }
  /// Rows from `first` (a multiple of 4) on.
  cuda::Fp8Operands operands_from(int first) const {
    return {values.data() + static_cast<int64_t>(first) * num_in, num_in, scales.data() + first,
            scale_stride};
  }
};

struct Weight {
  Fp8Weight host;
  DeviceArray<uint8_t> data;
  DeviceArray<float> scales;

  Weight(int num_out, int num_in, uint64_t key)
      : host(random_fp8_weight(num_out, num_in, key)),
        data(host.packed()),
        scales(host.packed_scales()) {}
  cuda::PackedWeight view() const {
    return {data.data(), scales.data(), nullptr, host.num_out, host.num_in};
  }
};

/// One for all launches, poisoned; tickets must be zero before and after.
struct Workspace {
  DeviceArray<float> partials{cuda::kGemmFp8PartialBytes / sizeof(float)};
  DeviceArray<int> tickets{std::vector<int>(size_t{cuda::kGemmTickets}, 0)};
  static Workspace& get() {
    static Workspace workspace;
    return workspace;
  }
  bool is_left_clean() const {
    const std::vector<int> left = tickets.fetch();
    return std::ranges::all_of(left, [](int t) { return t == 0; });
  }
};

cuda::GemmFp8 gemm_of(const cuda::Fp8Operands& x, int num_rows, int num_in) {
  cuda::GemmFp8 gemm = {};
  gemm.workspace = {Workspace::get().partials.data(), Workspace::get().tickets.data()};
  gemm.x = x;
  gemm.num_rows = num_rows;
  gemm.num_in = num_in;
  return gemm;
}

using Weights = std::vector<Weight>;

Weights random_weights(const std::vector<int>& num_outs, int num_in) {
  Weights weights;
  for (size_t i = 0; i < num_outs.size(); ++i) weights.emplace_back(num_outs[i], num_in, 100 + i);
  return weights;
}

/// fp32 totals, [num_rows, num_out] of each weight one behind the other.
std::vector<std::vector<float>> totals(const cuda::Fp8Operands& x, int num_rows,
                                       const Weights& weights) {
  cuda::GemmFp8 gemm = gemm_of(x, num_rows, weights[0].host.num_in);
  gemm.epilogue = cuda::GemmEpilogue::kStoreFp32;
  std::vector<DeviceArray<float>> out;
  for (const Weight& weight : weights) {
    out.emplace_back(static_cast<size_t>(num_rows) * static_cast<size_t>(weight.host.num_out));
    gemm.segments[gemm.num_segments++] = {weight.view(), out.back().data(), weight.host.num_out};
  }
  EXPECT_EQ(cuda::launch_gemm_fp8(gemm, nullptr), cudaSuccess);
  std::vector<std::vector<float>> fetched;
  for (const DeviceArray<float>& array : out) fetched.push_back(array.fetch());
  return fetched;
}

/// Relative root mean square error of samples, edges among them.
double error_of(const std::vector<float>& got, const Quantised& x, const Fp8Weight& w) {
  constexpr int kSamples = 400;
  double error = 0.0;
  double size = 0.0;
  for (int i = 0; i < kSamples; ++i) {
    const bool is_edge = i < 16;
    const int m = is_edge ? x.num_rows - 1 - i % x.num_rows
                          : static_cast<int>(random_bits(1, static_cast<uint64_t>(i)) %
                                             static_cast<uint64_t>(x.num_rows));
    const int n = is_edge ? w.num_out - 1 - i % w.num_out
                          : static_cast<int>(random_bits(2, static_cast<uint64_t>(i)) %
                                             static_cast<uint64_t>(w.num_out));
    const double wanted = exact_product(x, m, w, n);
    const double off =
        static_cast<double>(
            got[static_cast<size_t>(m) * static_cast<size_t>(w.num_out) + static_cast<size_t>(n)]) -
        wanted;
    error += off * off;
    size += wanted * wanted;
  }
  return std::sqrt(error / size);
}

bool same_bits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

struct Case {
  std::vector<int> num_outs;
  int num_in;
  std::vector<int> row_counts;  // the largest first
};
/// Edges of token tiles, pieces and tiles; row tiles that end early; several segments; the 27B's own K.
const Case kCases[] = {
    {{128}, 128, {300, 1, 64, 127, 128, 129, 256, 257}},
    {{8, 264, 6}, 384, {257, 7, 128, 200}},
    {{640, 24, 136, 256}, 1024, {700, 65, 130, 513}},
    {{1032}, 6144, {520, 40, 136, 384}},
    {{300, 200}, 17408, {260, 3, 128}},
};

TEST(GemmFp8, TotalsAreTheExactProductsAndTheirBitsTheRowsOwn) {
  for (const Case& c : kCases) {
    const Activations x(c.row_counts[0], c.num_in, 1);
    const Weights weights = random_weights(c.num_outs, c.num_in);
    const auto all = totals(x.operands(), x.num_rows, weights);
    for (size_t i = 0; i < weights.size(); ++i) {
      const double error = error_of(all[i], x.wanted, weights[i].host);
      EXPECT_LT(error, kBound) << c.num_in << " " << c.num_outs[i];
      std::printf("K %d, N %d: relative error %.2e\n", c.num_in, c.num_outs[i], error);
    }
    for (const int num_rows : c.row_counts) {
      const int first = (x.num_rows - num_rows) / 8 * 4;
      const auto head = totals(x.operands(), num_rows, weights);
      const auto middle = totals(x.operands_from(first), num_rows, weights);
      for (size_t i = 0; i < weights.size(); ++i) {
        const auto width = static_cast<size_t>(c.num_outs[i]);
        EXPECT_TRUE(same_bits(head[i].data(), all[i].data(), head[i].size()))
            << c.num_in << " rows " << num_rows << " segment " << i;
        EXPECT_TRUE(same_bits(middle[i].data(), all[i].data() + static_cast<size_t>(first) * width,
                              middle[i].size()))
            << c.num_in << " rows " << num_rows << " from " << first << " segment " << i;
      }
    }
  }
}

/// The check of totals sees what is wrong: neighbouring scales, the order of another operand, one block left out.
TEST(GemmFp8, TheErrorBoundRejectsWrongProducts) {
  const Activations x(64, 1024, 1);
  const Weights weights = random_weights({256}, 1024);
  const auto got = totals(x.operands(), 64, weights);
  ASSERT_LT(error_of(got[0], x.wanted, weights[0].host), kBound);
  Quantised turned = x.wanted;
  std::rotate(turned.scales.begin(), turned.scales.begin() + 64, turned.scales.end());
  EXPECT_GT(error_of(got[0], turned, weights[0].host), 20 * kBound);
  Quantised misplaced = x.wanted;
  for (size_t i = 0; i < misplaced.codes.size(); ++i)
    misplaced.codes[i] =
        x.wanted.codes[i / 1024 * 1024 +
                       static_cast<size_t>(cuda::operand_place(static_cast<int>(i % 1024)))];
  EXPECT_GT(error_of(got[0], misplaced, weights[0].host), 20 * kBound);
  Quantised cut = x.wanted;
  for (int m = 0; m < 64; ++m) std::fill_n(cut.codes.begin() + m * 1024, 32, uint8_t{0});
  EXPECT_GT(error_of(got[0], cut, weights[0].host), 20 * kBound);
}

TEST(GemmFp8, StoresRoundOnceAndStayInside) {
  for (const bool adds : {false, true}) {
    const Activations x(300, 384, 1);
    const Weights weights = random_weights({264, 128}, 384);
    const auto sums = totals(x.operands(), x.num_rows, weights);
    for (const int num_rows : {5, 128, 300}) {
      cuda::GemmFp8 gemm = gemm_of(x.operands(), num_rows, 384);
      gemm.epilogue = adds ? cuda::GemmEpilogue::kResidual : cuda::GemmEpilogue::kStore;
      std::vector<std::vector<bf16>> old;
      std::vector<DeviceArray<bf16>> out;
      for (const Weight& weight : weights) {
        const int64_t stride = weight.host.num_out + 8;
        old.emplace_back(static_cast<size_t>((num_rows + 2) * stride));
        for (size_t i = 0; i < old.back().size(); ++i)
          old.back()[i] = to_bf16(random_normal(21, i));
        out.emplace_back(old.back());
        gemm.segments[gemm.num_segments++] = {weight.view(), out.back().data(), stride};
      }
      ASSERT_EQ(cuda::launch_gemm_fp8(gemm, nullptr), cudaSuccess);
      for (size_t s = 0; s < weights.size(); ++s) {
        const std::vector<bf16> got = out[s].fetch();
        const int num_out = weights[s].host.num_out;
        int num_wrong = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          const auto m = static_cast<int>(i) / (num_out + 8);
          const int n = static_cast<int>(i) % (num_out + 8);
          bf16 wanted = old[s][i];
          if (m < num_rows && n < num_out) {
            const float y = to_float(to_bf16(sums[s][static_cast<size_t>(m * num_out + n)]));
            wanted = to_bf16(adds ? to_float(wanted) + y : y);
          }
          num_wrong += got[i].bits != wanted.bits;
        }
        EXPECT_EQ(num_wrong, 0) << adds << " rows " << num_rows << " segment " << s;
      }
    }
  }
}

/// Operands of down_proj: from their own totals, up to what the approximate exponential moves; bits by row count.
void expect_quantised_product(int num_out, int num_in, int most_rows) {
  const Activations x(most_rows, num_in, 1);
  const Weights weights = random_weights({num_out, num_out}, num_in);
  const auto sums = totals(x.operands(), most_rows, weights);
  std::vector<bf16> product(static_cast<size_t>(most_rows * num_out));
  for (size_t i = 0; i < product.size(); ++i) {
    const float gate = to_float(to_bf16(sums[0][i]));
    const float up = to_float(to_bf16(sums[1][i]));
    const float silu = to_float(to_bf16(gate / (1.0f + std::exp(-gate))));
    product[i] = to_bf16(silu * up);
  }
  const Quantised wanted = quantise(product, most_rows, num_out);
  std::vector<uint8_t> first_codes;
  for (const int num_rows : {most_rows, 1, 128, 200}) {
    const int stride = (num_rows + 3) / 4 * 4;
    const DeviceArray<uint8_t> values(static_cast<size_t>((num_rows + 1) * num_out));
    const DeviceArray<float> scales(static_cast<size_t>(num_out / 128 * stride));
    const DeviceArray<int> flag(std::vector<int>{0});
    cuda::GemmFp8 gemm = gemm_of(x.operands(), num_rows, num_in);
    gemm.epilogue = cuda::GemmEpilogue::kGateUp;
    gemm.num_segments = 2;
    for (int i = 0; i < 2; ++i)
      gemm.segments[i] = {weights[static_cast<size_t>(i)].view(), nullptr, 0};
    gemm.operand = {values.data(), num_out, scales.data(), stride};
    gemm.range_flag = flag.data();
    ASSERT_EQ(cuda::launch_gemm_fp8(gemm, nullptr), cudaSuccess);
    const std::vector<uint8_t> codes = values.fetch();
    const std::vector<float> got_scales = scales.fetch();
    EXPECT_EQ(flag.fetch()[0], 0);
    if (first_codes.empty()) first_codes = codes;
    EXPECT_TRUE(std::equal(codes.begin(), codes.end() - num_out, first_codes.begin())) << num_rows;
    EXPECT_TRUE(
        std::all_of(codes.end() - num_out, codes.end(), [](uint8_t c) { return c == 0xff; }));
    int num_off = 0;
    int num_far = 0;
    for (int m = 0; m < num_rows; ++m) {
      for (int k = 0; k < num_out; ++k) {
        const uint8_t code = codes[static_cast<size_t>(m * num_out + cuda::fp8_operand_place(k))];
        const uint8_t want = wanted.codes[static_cast<size_t>(m * num_out + k)];
        num_off += code != want;
        num_far += std::abs((code & 127) - (want & 127)) > 1;
      }
      for (int b = 0; b < num_out / 128; ++b) {
        const float want = wanted.scales[static_cast<size_t>(b * most_rows + m)];
        EXPECT_NEAR(got_scales[static_cast<size_t>(b * stride + m)], want, want / 100);
      }
    }
    EXPECT_LE(num_off, num_rows * num_out / 100 + 4) << num_rows;
    EXPECT_EQ(num_far, 0) << num_rows;
  }
}

TEST(GemmFp8, GateUpQuantisesItsProduct) {
  expect_quantised_product(384, 1024, 300);
  // The last 16 tiles are split: of 1,024 rows in turn, of fewer by several blocks.
  expect_quantised_product(82 * 128, 512, 1024);
  EXPECT_TRUE(Workspace::get().is_left_clean());
}

/// An f16 weight as packed.h has it, rows of different size; and activations as they are.
struct ExactWeight {
  int num_out, num_in;
  std::vector<float> values;  // bf16
  DeviceArray<uint16_t> data;
  DeviceArray<float> factors;

  ExactWeight(int n, int k, uint64_t key)
      : num_out(n),
        num_in(k),
        values(random_values(n, k, key)),
        data(packed()),
        factors(row_factors()) {}
  static std::vector<float> random_values(int n, int k, uint64_t key) {
    std::vector<float> out(static_cast<size_t>(n) * static_cast<size_t>(k));
    for (size_t i = 0; i < out.size(); ++i) {
      const auto row = static_cast<int>(i / static_cast<size_t>(k));
      out[i] = to_float(to_bf16(std::ldexp(0.02f * random_normal(key, i), row % 5)));
    }
    return out;
  }
  /// Brings 0.02 * 6 * 2^4 and less to 2^14 and less.
  static int shift(int row) { return 15 - row % 5; }
  std::vector<uint16_t> packed() const {
    const auto num_groups = static_cast<size_t>((num_out + 7) / 8);
    std::vector<uint16_t> out(num_groups * 8 * static_cast<size_t>(num_in), 0);
    for (int n = 0; n < num_out; ++n) {
      for (int k = 0; k < num_in; ++k) {
        const auto block = static_cast<size_t>(n / 8 * (num_in / 64) + k / 64);
        const auto in_block = static_cast<size_t>(k % 64 / 32 * 256 + n % 8 * 32 + k % 32);
        const float value = std::ldexp(values[static_cast<size_t>(n * num_in + k)], shift(n));
        out[block * 512 + in_block] = f16_bits(value);
      }
    }
    return out;
  }
  std::vector<float> row_factors() const {
    std::vector<float> out;
    for (int n = 0; n < num_out; ++n) out.push_back(std::ldexp(16.0f, -shift(n)));
    return out;
  }
  static uint16_t f16_bits(float x) {
    const auto half = static_cast<_Float16>(x);
    uint16_t bits;
    std::memcpy(&bits, &half, sizeof(bits));
    return bits;
  }
  cuda::PackedWeight view() const {
    return {reinterpret_cast<const uint8_t*>(data.data()), nullptr, factors.data(), num_out,
            num_in};
  }
};

/// f16 weights beside FP8 ones: bits by row count, the FP8 ones' as without them, errors of a rounding to bf16, nothing outside.
TEST(GemmFp8, TakesFewRowsOfF16Along) {
  for (const int num_in : {128, 5120}) {
    constexpr int kRows = 300;
    const Activations x(kRows, num_in, 1);
    const Weights weights = random_weights({264}, num_in);
    const ExactWeight sides[2] = {{48, num_in, 31}, {6, num_in, 32}};
    std::vector<uint16_t> exact(x.plain.size());
    for (size_t i = 0; i < exact.size(); ++i)
      exact[i] = ExactWeight::f16_bits(to_float(x.plain[i]) * 0.0625f);
    const DeviceArray<uint16_t> exact_x(exact);
    std::vector<std::vector<bf16>> all;
    for (const int num_rows : {kRows, 1, 64, 128, 129, 200, 257}) {
      const auto rows = static_cast<size_t>(num_rows);
      const DeviceArray<bf16> out((rows + 1) * 264);
      const DeviceArray<bf16> alone((rows + 1) * 264);
      const DeviceArray<bf16> side_out[2] = {DeviceArray<bf16>((rows + 1) * 50),
                                             DeviceArray<bf16>((rows + 1) * 50)};
      cuda::GemmFp8 gemm = gemm_of(x.operands(), num_rows, num_in);
      gemm.epilogue = cuda::GemmEpilogue::kStore;
      gemm.num_segments = 1;
      gemm.segments[0] = {weights[0].view(), alone.data(), 264};
      ASSERT_EQ(cuda::launch_gemm_fp8(gemm, nullptr), cudaSuccess);
      gemm.segments[0].out = out.data();
      for (int i = 0; i < 2; ++i) gemm.segments[1 + i] = {sides[i].view(), side_out[i].data(), 50};
      gemm.num_segments = 3;
      gemm.exact_x = exact_x.data();
      gemm.exact_stride = num_in;
      ASSERT_EQ(cuda::launch_gemm_fp8(gemm, nullptr), cudaSuccess);
      const auto same = [](const std::vector<bf16>& a, const std::vector<bf16>& b, size_t count) {
        return std::memcmp(a.data(), b.data(), count * sizeof(bf16)) == 0;
      };
      EXPECT_TRUE(same(out.fetch(), alone.fetch(), (rows + 1) * 264)) << num_rows;
      for (size_t i = 0; i < 2; ++i) {
        const std::vector<bf16> got = side_out[i].fetch();
        if (all.size() < 2) all.push_back(got);
        EXPECT_TRUE(same(got, all[i], rows * 50)) << num_in << " rows " << num_rows;
        for (size_t m = 0; m < rows + 1; ++m) {
          const auto first = static_cast<size_t>(m < rows ? sides[i].num_out : 0);
          for (size_t n = first; n < 50; ++n) ASSERT_EQ(got[m * 50 + n].bits, 0xffff);
        }
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      double errors[2] = {};  // against the product, and against one of k turned by two
      double size = 0.0;
      for (size_t at = 0; at < 300; ++at) {
        const size_t m = at % kRows;
        const size_t n = at * 7 % static_cast<size_t>(sides[i].num_out);
        double wanted[2] = {};
        for (size_t k = 0; k < static_cast<size_t>(num_in); ++k) {
          const auto width = static_cast<size_t>(num_in);
          for (size_t turn = 0; turn < 2; ++turn)
            wanted[turn] += static_cast<double>(to_float(x.plain[m * width + k])) *
                            static_cast<double>(sides[i].values[n * width + (k ^ (2 * turn))]);
        }
        for (size_t turn = 0; turn < 2; ++turn)
          errors[turn] += std::pow(to_float(all[i][m * 50 + n]) - wanted[turn], 2.0);
        size += wanted[0] * wanted[0];
      }
      std::printf("f16 beside FP8, K %d: relative error %.2e\n", num_in,
                  std::sqrt(errors[0] / size));
      EXPECT_LT(std::sqrt(errors[0] / size), 0x1p-8);
      EXPECT_GT(std::sqrt(errors[1] / size), 0.1);
    }
  }
}

TEST(GemmFp8, NamesWhatItDoesNotTake) {
  const Activations x(8, 128, 1);
  const Weights weights = random_weights({128}, 128);
  const DeviceArray<bf16> out(size_t{8 * 128});
  cuda::GemmFp8 gemm = gemm_of(x.operands(), 8, 128);
  gemm.num_segments = 1;
  gemm.segments[0] = {weights[0].view(), out.data(), 128};
  EXPECT_EQ(cuda::launch_gemm_fp8(gemm, nullptr), cudaSuccess);
  cuda::GemmFp8 bad = gemm;
  bad.segments[0].out_stride = 129;
  EXPECT_EQ(cuda::launch_gemm_fp8(bad, nullptr), cudaErrorInvalidValue);
  bad = gemm;
  bad.segments[0].weight.scales = nullptr;  // BF16 alone
  EXPECT_EQ(cuda::launch_gemm_fp8(bad, nullptr), cudaErrorInvalidValue);
  bad = gemm;
  bad.x.scale_stride = 7;
  EXPECT_EQ(cuda::launch_gemm_fp8(bad, nullptr), cudaErrorInvalidValue);
  bad = gemm;
  bad.num_rows = 0;
  EXPECT_EQ(cuda::launch_gemm_fp8(bad, nullptr), cudaErrorInvalidValue);
  bad = gemm;
  bad.num_segments = 2;
  bad.segments[1] = gemm.segments[0];
  bad.segments[1].weight.scales = nullptr;  // f16 of too many rows
  bad.segments[1].weight.row_factors = gemm.segments[0].weight.scales;
  EXPECT_EQ(cuda::launch_gemm_fp8(bad, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

/// The mode's own envelope: what quantising activations does to a projection, against the same weights and activations as they are.
TEST(GemmFp8, EnvelopeAgainstExactActivations) {
  const Activations x(128, 5120, 1);
  const Weights weights = random_weights({256}, 5120);
  const auto got = totals(x.operands(), 128, weights);
  double error = 0.0;
  double size = 0.0;
  for (int i = 0; i < 400; ++i) {
    const auto m = static_cast<size_t>(random_bits(1, static_cast<uint64_t>(i)) % 128);
    const auto n = static_cast<size_t>(random_bits(2, static_cast<uint64_t>(i)) % 256);
    double exact = 0.0;
    for (size_t k = 0; k < 5120; ++k) {
      exact += static_cast<double>(to_float(x.plain[m * 5120 + k])) *
               weights[0].host.value(static_cast<int>(n), static_cast<int>(k));
    }
    const double off = static_cast<double>(got[0][m * 256 + n]) - exact;
    error += off * off;
    size += exact * exact;
  }
  const double relative = std::sqrt(error / size);
  std::printf("FP8 activations against exact ones, K 5120: relative error %.2e\n", relative);
  EXPECT_LT(relative, 0.04);
  EXPECT_GT(relative, 0.005);
}

}  // namespace
}  // namespace sluice
