// Projections of a prompt's rows (ops/cuda/gemm_prefill.h): against fp64, and bit for bit against themselves in every tile, every company and every epilogue.
#include "ops/cuda/gemm_prefill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/views.h"

namespace sluice {
namespace {

using cuda::GemmEpilogue;
using cuda::PrefillTile;

constexpr PrefillTile kTiles[] = {{32, 1},  {48, 1},  {64, 1},  {72, 1},  {88, 1},  {104, 1},
                                  {128, 1}, {160, 1}, {176, 1}, {208, 1}, {256, 1}, {256, 2}};
constexpr bool kFp8 = true;
constexpr bool kBf16 = false;

const MemoryTable& memory() {
  return *(*cuda_ops())->memory;
}

template <typename T>
struct OnDevice {
  Buffer buffer;
  T* data;

  explicit OnDevice(const std::vector<T>& values)
      : buffer(memory()
                   .allocate(values.size() * sizeof(T) + 16, "test", MemoryKind::kPrivate)
                   .value()),
        data(reinterpret_cast<T*>(buffer.data())) {
    memory().upload(data, values.data(), values.size() * sizeof(T));
  }
};

std::vector<bf16> random_values(int64_t count, float size, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<bf16> values(static_cast<size_t>(count));
  for (bf16& value : values) value = to_bf16(normal(rng));
  return values;
}

/// A weight on the host and, packed, on the device. FP8: the first block and the last have a scale of zero.
struct Weight {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<bf16> values;
  WeightView host;
  Buffer buffer;
  cuda::PackedWeight packed;

  Weight(bool is_fp8, int64_t num_out, int64_t num_in, uint32_t seed) {
    std::mt19937 rng(seed);
    host = {is_fp8 ? WeightFormat::kFp8Block128 : WeightFormat::kBf16, nullptr, nullptr, num_out,
            num_in};
    if (is_fp8) {
      codes.resize(static_cast<size_t>(num_out * num_in));
      for (uint8_t& code : codes) code = static_cast<uint8_t>(rng() & 0xf7);  // no NaN
      scales.resize(static_cast<size_t>((num_out + 127) / 128 * host.scale_cols()));
      for (float& scale : scales) {
        scale = rb(std::ldexp(1.0f + static_cast<float>(rng() % 1000) / 1000.0f, -14));
      }
      scales.front() = scales.back() = 0.0f;
      host.data = codes.data();
      host.scales = scales.data();
    } else {
      values = random_values(num_out * num_in, 0.02f, seed);
      host.data = values.data();
    }
    buffer = memory().allocate(cuda::packed_bytes(host), "weight", MemoryKind::kPrivate).value();
    packed = cuda::weight_of(cuda::pack_weight(host, buffer.data()));
  }

  double at(int64_t n, int64_t k) const {
    const auto i = static_cast<size_t>(n * host.num_in + k);
    if (values.empty()) {
      const auto s = static_cast<size_t>(n / 128 * host.scale_cols() + k / 128);
      return static_cast<double>(e4m3_to_float(codes[i])) * scales[s];
    }
    return to_float(values[i]);
  }
};

/// Rows of X as values and as operands.
struct Input {
  std::vector<bf16> values;
  int64_t num_in;
  OnDevice<uint16_t> operands;

  Input(int64_t num_rows, int64_t num_in_)
      : values(random_values(num_rows * num_in_, 1.0f, 5)),
        num_in(num_in_),
        operands(std::vector<uint16_t>(values.size())) {
    const OnDevice<bf16> from(values);
    const OnDevice<int> flag({0});
    cuda::OperandsArgs args = {};
    args.values = from.data;
    args.stride = args.out_stride = num_in;
    args.num_rows = static_cast<int>(num_rows);
    args.num_cols = static_cast<int>(num_in);
    args.operands = operands.data;
    args.range_flag = flag.data;
    SLUICE_CUDA_CHECK(cuda::launch_operands(args, cuda::device().stream));
    fetch(memory(), flag.data, 1);  // behind the launch
  }
};

/// What launches share. Tickets must come back as zeros.
struct Workspace {
  Buffer partials = memory()
                        .allocate(static_cast<size_t>(cuda::kGemmPrefillPartialBytes), "partials",
                                  MemoryKind::kPrivate)
                        .value();
  OnDevice<int> tickets{std::vector<int>(cuda::kGemmTickets)};
  OnDevice<int> flag{std::vector<int>(1)};

  ~Workspace() {
    const std::vector<int> left = fetch(memory(), tickets.data, cuda::kGemmTickets);
    for (const int ticket : left) EXPECT_EQ(ticket, 0);
  }
};

/// One launch's outputs, on the host: of each segment [num_rows, num_out], or of gate|up the values, then the operands (as f16 bits).
struct Launch {
  const Input& input;
  std::vector<const Weight*> weights;
  Workspace& workspace;

  cuda::Gemm gemm(int first_row, int num_rows) const {
    cuda::Gemm gemm = {};
    gemm.x = input.operands.data + first_row * input.num_in;
    gemm.x_stride = input.num_in;
    gemm.num_rows = num_rows;
    gemm.num_in = static_cast<int>(input.num_in);
    gemm.num_segments = static_cast<int>(weights.size());
    gemm.range_flag = workspace.flag.data;
    gemm.workspace = {reinterpret_cast<float*>(workspace.partials.data()), workspace.tickets.data};
    return gemm;
  }

  static void start(const cuda::Gemm& gemm, const PrefillTile* tile) {
    cudaStream_t stream = cuda::device().stream;
    SLUICE_CUDA_CHECK(tile != nullptr ? cuda::launch_gemm_prefill_tile(gemm, *tile, stream)
                                      : cuda::launch_gemm_prefill(gemm, stream));
  }

  /// `old` are the values of every output beforehand; a row behind the last must keep its own. Strides are `more` longer than rows.
  std::vector<std::vector<bf16>> store(int first_row, int num_rows, const PrefillTile* tile,
                                       GemmEpilogue epilogue = GemmEpilogue::kStore,
                                       bf16 old = {0xffff}, int64_t more = 0) const {
    cuda::Gemm gemm = this->gemm(first_row, num_rows);
    gemm.epilogue = epilogue;
    std::vector<OnDevice<bf16>> outs;
    for (size_t i = 0; i < weights.size(); ++i) {
      const int64_t stride = weights[i]->host.num_out + more;
      outs.emplace_back(std::vector<bf16>(static_cast<size_t>((num_rows + 1) * stride), old));
      gemm.segments[i] = {weights[i]->packed, outs[i].data, stride};
    }
    start(gemm, tile);
    std::vector<std::vector<bf16>> rows(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      const int64_t num_out = weights[i]->host.num_out;
      const int64_t stride = num_out + more;
      const std::vector<bf16> all = fetch(memory(), outs[i].data, (num_rows + 1) * stride);
      for (int64_t at = 0; at < (num_rows + 1) * stride; ++at) {
        if (at / stride < num_rows && at % stride < num_out) {
          rows[i].push_back(all[static_cast<size_t>(at)]);
        } else {
          EXPECT_EQ(all[static_cast<size_t>(at)], old) << "outside, at " << at;
        }
      }
    }
    return rows;
  }
};

/// Of sampled outputs, those farther from fp64 than half a bf16 step and a bit. Those of one block of K are taken `scale_error` times as large.
int64_t num_far(const Launch& launch, const std::vector<std::vector<bf16>>& outs, int num_rows,
                double scale_error) {
  std::mt19937 rng(9);
  const int64_t wrong = std::min<int64_t>(1, launch.input.num_in / 128 - 1);
  int64_t count = 0;
  for (size_t i = 0; i < outs.size(); ++i) {
    const Weight& weight = *launch.weights[i];
    for (int sample = 0; sample < 500; ++sample) {
      const int64_t n =
          sample == 0 ? weight.host.num_out - 1 : static_cast<int64_t>(rng()) % weight.host.num_out;
      const int64_t m = sample == 0 ? num_rows - 1 : static_cast<int64_t>(rng()) % num_rows;
      double sum = 0.0;
      double squares = 0.0;
      for (int64_t k = 0; k < launch.input.num_in; ++k) {
        const double x =
            to_float(launch.input.values[static_cast<size_t>(m * launch.input.num_in + k)]);
        const double term = weight.at(n, k) * x * (k / 128 == wrong ? scale_error : 1.0);
        sum += term;
        squares += term * term;
      }
      const double got = to_float(outs[i][static_cast<size_t>(m * weight.host.num_out + n)]);
      const double allowed = std::abs(sum) / 256 * 1.01 + 3e-5 * std::sqrt(squares);
      count += !(std::abs(got - sum) <= allowed);
    }
  }
  return count;
}

/// Rows [first, first + num_rows) of each output.
std::vector<std::vector<bf16>> rows_of(const Launch& launch,
                                       const std::vector<std::vector<bf16>>& outs, int first,
                                       int num_rows) {
  std::vector<std::vector<bf16>> rows;
  for (size_t i = 0; i < outs.size(); ++i) {
    const int64_t num_out = launch.weights[i]->host.num_out;
    rows.emplace_back(outs[i].begin() + first * num_out,
                      outs[i].begin() + (first + num_rows) * num_out);
  }
  return rows;
}

/// fp64, every tile, cuts of the rows, and the residual epilogue.
void check_all(const std::vector<const Weight*>& weights, int num_rows) {
  Workspace workspace;
  const Input input(num_rows, weights[0]->host.num_in);
  const Launch launch{input, weights, workspace};
  const auto outs = launch.store(0, num_rows, nullptr);
  EXPECT_EQ(num_far(launch, outs, num_rows, 1.0), 0);
  EXPECT_GT(num_far(launch, outs, num_rows, 1.03125), 20) << "a wrong scale must show";
  for (const PrefillTile& tile : kTiles) {
    EXPECT_EQ(launch.store(0, num_rows, &tile), outs) << tile.tokens << " x " << tile.blocks;
  }
  for (const int cut : {1, 8, 63, 64, 65, 130, 177, 257}) {
    if (cut >= num_rows) continue;
    EXPECT_EQ(launch.store(0, cut, nullptr), rows_of(launch, outs, 0, cut)) << cut;
    EXPECT_EQ(launch.store(cut, num_rows - cut, nullptr),
              rows_of(launch, outs, cut, num_rows - cut));
  }
  const bf16 old = to_bf16(0.71f);
  for (const int64_t more : {8, 3}) {
    EXPECT_EQ(launch.store(0, num_rows, nullptr, GemmEpilogue::kStore, {0xffff}, more), outs);
    auto sums = outs;
    for (auto& out : sums) {
      for (bf16& value : out) value = to_bf16(to_float(old) + to_float(value));
    }
    EXPECT_EQ(launch.store(0, num_rows, nullptr, GemmEpilogue::kResidual, old, more), sums);
  }
}

TEST(GemmPrefill, FormatsAndTailsInOneLaunch) {
  const Weight first(kFp8, 520, 1024, 1);
  const Weight second(kBf16, 200, 1024, 2);
  const Weight third(kFp8, 16, 1024, 3);
  const Weight fourth(kBf16, 48, 1024, 4);
  check_all({&first, &second, &third, &fourth}, 300);
}

TEST(GemmPrefill, OneBlockOfK) {
  const Weight weight(kBf16, 6, 128, 1);
  check_all({&weight}, 70);
}

TEST(GemmPrefill, SplitTilesOfLongK) {
  const Weight weight(kFp8, 2560, 8448, 1);  // 20 tiles in four slices
  check_all({&weight}, 300);
}

TEST(GemmPrefill, SplitTail) {
  const Weight weight(kBf16, 132 * 128 + 40, 1024, 2);  // the last tile in eight
  check_all({&weight}, 140);
}

/// Of the stored values of gate and up.
std::vector<bf16> gate_up_of(const std::vector<std::vector<bf16>>& outs) {
  std::vector<bf16> values;
  for (size_t i = 0; i < outs[0].size(); ++i) {
    const double gate = to_float(outs[0][i]);
    const float s = rb(static_cast<float>(gate / (1.0 + std::exp(-gate))));
    values.push_back(to_bf16(s * to_float(outs[1][i])));
  }
  return values;
}

TEST(GemmPrefill, GateUp) {
  constexpr int kRows = 140;
  constexpr int64_t kOut = 704;
  for (const bool is_fp8 : {true, false}) {
    Workspace workspace;
    const Input input(kRows, 512);
    const Weight gate(is_fp8, kOut, 512, 1);
    const Weight up(is_fp8, kOut, 512, 2);
    const Launch launch{input, {&gate, &up}, workspace};
    const std::vector<bf16> wanted = gate_up_of(launch.store(0, kRows, nullptr));
    const OnDevice<bf16> values(std::vector<bf16>(static_cast<size_t>(kRows * kOut)));
    const OnDevice<uint16_t> operands(std::vector<uint16_t>(static_cast<size_t>(kRows * kOut)));
    cuda::Gemm gemm = launch.gemm(0, kRows);
    gemm.epilogue = GemmEpilogue::kGateUp;
    gemm.segments[0] = {gate.packed, values.data, kOut};
    gemm.segments[1] = {up.packed, nullptr, 0};
    gemm.operand = operands.data;
    gemm.operand_stride = kOut;
    for (const PrefillTile& tile : kTiles) {
      Launch::start(gemm, &tile);
      const std::vector<bf16> got = fetch(memory(), values.data, kRows * kOut);
      const std::vector<uint16_t> got_operands = fetch(memory(), operands.data, kRows * kOut);
      int64_t num_off = 0;
      int64_t num_wrong = 0;
      for (int64_t m = 0; m < kRows; ++m) {
        for (int64_t n = 0; n < kOut; ++n) {
          const auto at = static_cast<size_t>(m * kOut + n);
          num_off += got[at] != wanted[at];
          const auto place =
              static_cast<size_t>(m * kOut + cuda::operand_place(static_cast<int>(n)));
          num_wrong +=
              std::abs(f16_to_float(got_operands[place]) * 16.0f - to_float(got[at])) > 0x1p-21f;
        }
      }
      EXPECT_LT(num_off, kRows * kOut / 1000) << "ties of the bf16 rounding only";
      EXPECT_EQ(num_wrong, 0);
    }
    EXPECT_EQ(fetch(memory(), workspace.flag.data, 1)[0], 0);
  }
}

TEST(GemmPrefill, SaysWhatAnOperandCannotHold) {
  Workspace workspace;
  const Input input(3, 128);
  Weight large(kBf16, 64, 128, 2);
  for (bf16& value : large.values) value = to_bf16(60000.0f);
  large.packed = cuda::weight_of(cuda::pack_weight(large.host, large.buffer.data()));
  const OnDevice<uint16_t> operands(std::vector<uint16_t>(3 * 64));
  const Launch launch{input, {&large, &large}, workspace};
  cuda::Gemm gemm = launch.gemm(0, 3);
  gemm.epilogue = GemmEpilogue::kGateUp;
  gemm.segments[0] = {large.packed, nullptr, 0};
  gemm.segments[1] = {large.packed, nullptr, 0};
  gemm.operand = operands.data;
  gemm.operand_stride = 64;
  Launch::start(gemm, nullptr);
  EXPECT_EQ(fetch(memory(), workspace.flag.data, 1)[0], 1);
}

TEST(GemmPrefill, RefusesWhatItDoesNotTake) {
  Workspace workspace;
  const Input input(3, 256);
  const Weight weight(kFp8, 64, 256, 1);
  const Launch launch{input, {&weight}, workspace};
  cuda::Gemm gemm = launch.gemm(0, 3);
  gemm.segments[0] = {weight.packed, nullptr, 64};
  gemm.epilogue = GemmEpilogue::kStoreFp32;
  EXPECT_EQ(cuda::launch_gemm_prefill(gemm, cuda::device().stream), cudaErrorInvalidValue);
  gemm.epilogue = GemmEpilogue::kStore;
  gemm.num_in = 128;
  EXPECT_EQ(cuda::launch_gemm_prefill(gemm, cuda::device().stream), cudaErrorInvalidValue);
  gemm.num_in = 256;
  gemm.num_rows = 0;
  EXPECT_EQ(cuda::launch_gemm_prefill(gemm, cuda::device().stream), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace sluice
