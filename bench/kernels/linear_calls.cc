#include "bench/kernels/linear_calls.h"

#include <cstring>
#include <random>

namespace sluice::bench {
namespace {

struct Dims {
  const char* model;
  int64_t hidden, mlp, qkv, z, heads_v, q, kv, attention, vocab;
};

constexpr Dims kDims[] = {
    {"tiny", 384, 640, 1280, 768, 6, 3072, 256, 1536, 2432},
    {"0.8B", 1024, 3584, 6144, 2048, 16, 4096, 512, 2048, 248320},
    {"4B", 2560, 9216, 8192, 4096, 32, 8192, 1024, 4096, 248320},
    {"27B", 5120, 17408, 10240, 6144, 48, 12288, 1024, 6144, 248320},
};

void add_calls(const Dims& d, std::vector<CallShape>& out) {
  const auto add = [&](const char* name, CallKind kind, int64_t num_in,
                       std::vector<int64_t> num_outs, size_t first_bf16 = SIZE_MAX) {
    out.push_back({d.model, name, kind, num_in, std::move(num_outs), first_bf16});
  };
  add("gdn_in", CallKind::kLinear, d.hidden, {d.qkv, d.z, d.heads_v, d.heads_v}, 2);
  add("gdn_out", CallKind::kResidual, d.z, {d.hidden});
  add("attn_in", CallKind::kLinear, d.hidden, {d.q, d.kv, d.kv});
  add("attn_out", CallKind::kResidual, d.attention, {d.hidden});
  add("gate_up", CallKind::kGateUp, d.hidden, {d.mlp, d.mlp});
  add("down", CallKind::kResidual, d.mlp, {d.hidden});
  add("lm_head", CallKind::kLinear, d.hidden, {d.vocab});
}

/// Random e4m3 bytes near the shape of trained weights are also fair bf16 bytes; the codes of NaN are left out.
void fill(Buffer& buffer) {
  std::mt19937_64 rng(1);
  for (size_t i = 0; i + 8 <= buffer.size(); i += 8) {
    // Exponents of e4m3 2 to 13, so that neither format holds anything that is not normal.
    uint64_t word = rng() & 0xbfbfbfbfbfbfbfbfu;
    word |= 0x1010101010101010u;
    std::memcpy(buffer.data() + i, &word, 8);
  }
}

}  // namespace

size_t CallShape::num_bytes(WeightFormat format) const {
  size_t bytes = 0;
  for (size_t i = 0; i < num_outs.size(); ++i) {
    const WeightView w{.format = i < first_bf16 ? format : WeightFormat::kBf16,
                       .num_out = num_outs[i],
                       .num_in = num_in};
    bytes += w.num_bytes();
  }
  return bytes;
}

double CallShape::num_flops(int64_t rows) const {
  double sum = 0;
  for (const int64_t n : num_outs)
    sum += 2.0 * static_cast<double>(n) * static_cast<double>(num_in * rows);
  return sum;
}

std::vector<CallShape> call_shapes(const std::string& models) {
  std::vector<CallShape> all;
  for (const Dims& d : kDims) {
    if (models.empty() || models == d.model) add_calls(d, all);
  }
  return all;
}

Operands::Operands(Buffer weights, int64_t num_rows_max, int64_t width_max, size_t misalign)
    : weights_(std::move(weights)),
      misalign_(misalign),
      scales_(size_t{1} << 20, 1e-3f),
      x_(static_cast<size_t>(num_rows_max * width_max)),
      out_(static_cast<size_t>(num_rows_max * width_max)) {
  fill(weights_);
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (bf16& v : x_) v = to_bf16(normal(rng));
}

WeightView Operands::next_weight(WeightFormat format, int64_t num_out, int64_t num_in) {
  WeightView w{.format = format, .scales = scales_.data(), .num_out = num_out, .num_in = num_in};
  const size_t size = (w.num_bytes() + misalign_ + 4095) / 4096 * 4096;
  if (cursor_ + size > weights_.size()) cursor_ = 0;
  SLUICE_CHECK_LE(size, weights_.size());
  w.data = weights_.data() + cursor_ + misalign_;
  cursor_ += size;
  return w;
}

void Operands::run(const OpTable& table, OpContext& context, const CallShape& shape,
                   WeightFormat format, int64_t rows) {
  std::vector<Projection> projections;
  bf16* out = out_.data();
  for (size_t i = 0; i < shape.num_outs.size(); ++i) {
    const int64_t n = shape.num_outs[i];
    const WeightFormat f = i < shape.first_bf16 ? format : WeightFormat::kBf16;
    projections.push_back({next_weight(f, n, shape.num_in), MatView<bf16>(out, rows, n)});
    out += rows * n;
  }
  SLUICE_CHECK_LE(out - out_.data(), static_cast<int64_t>(out_.size()));
  const MatView<const bf16> x(x_.data(), rows, shape.num_in);
  switch (shape.kind) {
    case CallKind::kLinear:
      return table.linear({x, projections}, context);
    case CallKind::kResidual:
      return table.linear_residual({x, projections[0].weight, projections[0].out}, context);
    case CallKind::kGateUp:
      return table.gate_up({x, projections[0].weight, projections[1].weight, projections[0].out},
                           context);
  }
}

}  // namespace sluice::bench
