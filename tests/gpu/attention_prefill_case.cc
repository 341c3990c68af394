#include "tests/gpu/attention_prefill_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "ops/cuda/packed.h"

namespace sluice::testing {
namespace {

constexpr int kHeadDim = 256;
constexpr int kHalf = 32;  // of the rotated dims
constexpr float kEps = 1e-6f;
constexpr int kSparePages = 9;
constexpr size_t kScratchBytes = size_t{300} << 20;

std::vector<bf16> normal_values(size_t count, float sigma, std::mt19937* rng) {
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<bf16> values(count);
  for (bf16& x : values) x = to_bf16(normal(*rng));
  return values;
}

std::vector<float> norm_values(float mean, std::mt19937* rng) {
  std::normal_distribution<float> normal(mean, 0.3f);
  std::vector<float> values(kHeadDim);
  for (float& x : values) x = normal(*rng);
  return values;
}

std::vector<float> rope_values(int num_positions, double (*fn)(double)) {
  std::vector<float> values;
  for (int p = 0; p < num_positions; ++p) {
    for (int i = 0; i < kHalf; ++i) {
      const double angle = p * std::pow(1e7, -i / static_cast<double>(kHalf));
      values.push_back(rb(static_cast<float>(fn(angle))));
    }
  }
  return values;
}

float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  if (exponent == 31) return NAN;
  const float x =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024.0f, exponent - 25);
  return bits >> 15 != 0 ? -x : x;
}

/// What an operand stands for.
float operand_value(std::span<const uint16_t> row, int k) {
  return from_f16(row[static_cast<size_t>(cuda::operand_place(k))]) * 16.0f;
}

double root_mean(double sum, double norm) {
  return std::isfinite(sum) ? std::sqrt(sum / norm) : INFINITY;
}

}  // namespace

AttentionCase::AttentionCase(HeadCounts heads, int num_rows, uint64_t seed)
    : heads_(heads),
      num_rows_(num_rows),
      num_pages_(static_cast<int>(pages_for(num_rows))),
      q_norm_([&] {
        std::mt19937 rng(static_cast<uint32_t>(seed));
        return norm_values(0.6f, &rng);
      }()),
      k_norm_([&] {
        std::mt19937 rng(static_cast<uint32_t>(seed + 1));
        return norm_values(0.4f, &rng);
      }()),
      cos_(rope_values(num_rows, [](double x) { return std::cos(x); })),
      sin_(rope_values(num_rows, [](double x) { return std::sin(x); })),
      device_q_norm_(q_norm_),
      device_k_norm_(k_norm_),
      device_cos_(cos_),
      device_sin_(sin_),
      pool_(static_cast<size_t>(num_pages_ + kSparePages) *
            static_cast<size_t>(2 * heads.kv * kKvPageTokens * kHeadDim + 3 * kHeadDim)),
      range_flag_(1),
      scratch_(kScratchBytes) {
  std::mt19937 rng(static_cast<uint32_t>(seed + 2));
  const auto rows = static_cast<size_t>(num_rows);
  qg_ = normal_values(rows * static_cast<size_t>(heads.q) * 2 * kHeadDim, 2.0f, &rng);
  k_ = normal_values(rows * static_cast<size_t>(heads.kv) * kHeadDim, 1.5f, &rng);
  v_ = normal_values(rows * static_cast<size_t>(heads.kv) * kHeadDim, 1.0f, &rng);
  kv_.data = pool_.data();
  kv_.page_stride = 2 * heads.kv * kKvPageTokens * kHeadDim + 3 * kHeadDim;  // no power of two
  kv_.num_kv_heads = heads.kv;
  kv_.head_dim = kHeadDim;
  cuda::device_memory().clear(range_flag_.data(), sizeof(int));
}

std::vector<uint16_t> AttentionCase::run(std::span<const Piece> pieces, const Way& way) {
  std::mt19937_64 rng(way.page_seed);
  std::vector<int32_t> all(static_cast<size_t>(num_pages_ + kSparePages));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), rng);
  pages_ = all;  // a stranger's pages lie behind the session's own
  pool_.poison();
  std::vector<uint16_t> operands;
  const int width = heads_.q * kHeadDim;
  for (const Piece& piece : pieces) {
    const int rows = way.num_strangers + piece.end - piece.begin + way.num_padding;
    const DeviceArray<uint16_t> out(static_cast<size_t>(rows * width));
    launch(piece, way, out.data());
    const std::vector<uint16_t> values = out.fetch();
    const auto first = values.begin() + way.num_strangers * width;
    const auto last = first + (piece.end - piece.begin) * width;
    operands.insert(operands.end(), first, last);
    SLUICE_CHECK(std::all_of(last, values.end(), [](uint16_t x) { return x == 0xffff; }));
  }
  return operands;
}

void AttentionCase::launch(const Piece& piece, const Way& way, uint16_t* operands) {
  const int own = piece.end - piece.begin;
  std::vector<DeviceRow> rows;
  std::vector<DeviceRun> runs;
  if (way.num_strangers > 0) {
    for (int i = 0; i < way.num_strangers; ++i) rows.push_back({0, i, 0});
    runs.push_back({0, way.num_strangers, 0, 0, kNoSlot, num_pages_});
  }
  const auto run = static_cast<int32_t>(runs.size());
  runs.push_back({way.num_strangers, own, piece.begin, 0, kNoSlot, 0});
  for (int i = 0; i < own; ++i) rows.push_back({0, piece.begin + i, run});
  for (int i = 0; i < way.num_padding; ++i) rows.push_back({0, 0, -1});
  const auto inputs = [&](const std::vector<bf16>& from, int width) {
    const auto w = static_cast<size_t>(width);
    std::vector<bf16> values(from.begin(), from.begin() + way.num_strangers * width);
    const auto first = from.begin() + piece.begin * width;
    values.insert(values.end(), first, first + own * width);
    values.resize(rows.size() * w, bf16{0xffff});
    return DeviceArray<bf16>(values);
  };
  const int q_width = heads_.q * 2 * kHeadDim;
  const int kv_width = heads_.kv * kHeadDim;
  const DeviceArray<bf16> qg = inputs(qg_, q_width);
  const DeviceArray<bf16> k = inputs(k_, kv_width);
  const DeviceArray<bf16> v = inputs(v_, kv_width);
  const DeviceArray<DeviceRow> device_rows(rows);
  const DeviceArray<DeviceRun> device_runs(runs);
  const DeviceArray<int32_t> pages(pages_);
  const auto count = static_cast<int>(rows.size());
  cuda::AttentionPrefill args = {};
  args.num_heads = heads_.q;
  args.num_kv_heads = heads_.kv;
  args.qg = {qg.data(), count, q_width, q_width};
  args.k = {k.data(), count, kv_width, kv_width};
  args.v = {v.data(), count, kv_width, kv_width};
  args.q_norm = device_q_norm_.data();
  args.k_norm = device_k_norm_.data();
  args.eps = kEps;
  args.cos = {device_cos_.data(), num_rows_, kHalf, kHalf};
  args.sin = {device_sin_.data(), num_rows_, kHalf, kHalf};
  args.kv = kv_;
  args.operands = operands;
  args.range_flag = range_flag_.data();
  args.context_max = std::max(piece.end, way.num_strangers);
  args.num_sms = cuda::device().num_sms;
  args.scratch = scratch_.data();
  args.scratch_bytes = kScratchBytes;
  args.split = way.split;
  args.tiles_from_first_row = way.tiles_from_first_row;
  StepView step;
  step.rows = device_rows.data();
  step.runs = device_runs.data();
  step.pages = pages.data();
  step.num_rows = count;
  step.num_runs = static_cast<int32_t>(runs.size());
  SLUICE_CUDA_CHECK(cuda::launch_attention_prefill(args, step, cuda::device().stream));
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(cuda::device().stream));
}

std::vector<float> AttentionCase::prepared(const bf16* head, std::span<const float> norm,
                                           int position) const {
  // The order of the sum of squares is the kernels': 8 warps of 32.
  float sum = 0.0f;
  for (int i = 0; i < 8; ++i) {
    float y[32];
    for (int j = 0; j < 32; ++j) {
      const float x = to_float(head[32 * i + j]);
      y[j] = x * x;
    }
    for (int width = 16; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) y[j] = y[j] + y[j + width];
    }
    sum = i == 0 ? y[0] : sum + y[0];
  }
  const float scale = 1.0f / std::sqrt(sum / kHeadDim + kEps);
  std::vector<float> out(kHeadDim);
  for (size_t d = 0; d < kHeadDim; ++d) out[d] = rb(to_float(head[d]) * scale * (1.0f + norm[d]));
  for (size_t i = 0; i < kHalf; ++i) {
    const float c = cos_[static_cast<size_t>(position * kHalf) + i];
    const float s = sin_[static_cast<size_t>(position * kHalf) + i];
    const float low = out[i];
    const float high = out[i + kHalf];
    out[i] = rb(rb(low * c) + rb(-high * s));
    out[i + kHalf] = rb(rb(high * c) + rb(low * s));
  }
  return out;
}

std::vector<float> AttentionCase::key_of(int position, int kv_head) const {
  return prepared(&k_[static_cast<size_t>((position * heads_.kv + kv_head) * kHeadDim)], k_norm_,
                  position);
}

AttentionCase::Errors AttentionCase::errors(std::span<const uint16_t> operands,
                                            std::span<const int> rows) const {
  double ours = 0.0;
  double eager = 0.0;
  double norm = 0.0;
  const int group = heads_.q / heads_.kv;
  const auto width = static_cast<size_t>(heads_.q * kHeadDim);
  for (int kv_head = 0; kv_head < heads_.kv; ++kv_head) {
    std::vector<std::vector<float>> keys;
    const int last = *std::max_element(rows.begin(), rows.end());
    for (int j = 0; j <= last; ++j) keys.push_back(key_of(j, kv_head));
    for (const int row : rows) {
      const int head = kv_head * group + row % group;
      const bf16* from =
          &qg_[(static_cast<size_t>(row) * width + static_cast<size_t>(head * kHeadDim)) * 2];
      const std::vector<float> q = prepared(from, q_norm_, row);
      std::vector<double> weights(static_cast<size_t>(row) + 1);
      double max = -INFINITY;
      for (size_t j = 0; j < weights.size(); ++j) {
        const double dot = std::inner_product(q.begin(), q.end(), keys[j].begin(), 0.0);
        weights[j] = rb(static_cast<float>(dot)) / 16.0;
        max = std::max(max, weights[j]);
      }
      double sum = 0.0;
      for (double& w : weights) sum += w = std::exp(w - max);
      for (int d = 0; d < kHeadDim; ++d) {
        double exact = 0.0;
        double rounded = 0.0;
        for (size_t j = 0; j < weights.size(); ++j) {
          const double v = to_float(
              v_[(j * static_cast<size_t>(heads_.kv) + static_cast<size_t>(kv_head)) * kHeadDim +
                 static_cast<size_t>(d)]);
          exact += weights[j] / sum * v;
          rounded += rb(static_cast<float>(weights[j] / sum)) * v;
        }
        const float gate = rb(1.0f / (1.0f + std::exp(-to_float(from[kHeadDim + d]))));
        const double want = exact * gate;
        const double got = operand_value(operands.subspan(static_cast<size_t>(row) * width, width),
                                         head * kHeadDim + d);
        const double other = rb(rb(static_cast<float>(rounded)) * gate);
        ours += (got - want) * (got - want);
        eager += (other - want) * (other - want);
        norm += want * want;
      }
    }
  }
  return {root_mean(ours, norm), root_mean(eager, norm)};
}

int64_t AttentionCase::num_wrong_kv() const {
  const std::vector<bf16> pool = pool_.fetch();
  int64_t num_wrong = 0;
  for (int position = 0; position < num_rows_; ++position) {
    const int64_t page = pages_[static_cast<size_t>(position / kKvPageTokens)];
    for (int head = 0; head < heads_.kv; ++head) {
      const int64_t place =
          page * kv_.page_stride + (head * kKvPageTokens + position % kKvPageTokens) * kHeadDim;
      const bf16* k = pool.data() + place;
      const bf16* v = k + heads_.kv * kKvPageTokens * kHeadDim;
      const std::vector<float> key = key_of(position, head);
      const bf16* raw = &v_[static_cast<size_t>((position * heads_.kv + head) * kHeadDim)];
      for (size_t d = 0; d < kHeadDim; ++d) {
        num_wrong += to_float(k[d]) != key[d] || v[d].bits != raw[d].bits;
      }
    }
  }
  return num_wrong;
}

bool AttentionCase::is_out_of_range() const {
  return range_flag_.fetch()[0] != 0;
}

void AttentionCase::spoil_queries() {
  for (bf16& x : qg_) x = to_bf16(2.0f * to_float(x));
}

}  // namespace sluice::testing
