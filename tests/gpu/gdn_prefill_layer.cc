#include "tests/gpu/gdn_prefill_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/gpu/gdn_prefill_probe.h"
#include "tests/ops/rng.h"

namespace sluice {
namespace {

void must(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

std::vector<bf16> bf16_values(Rng& rng, size_t count, double scale, double mean = 0.0) {
  std::vector<bf16> values(count);
  for (bf16& x : values) x = to_bf16(static_cast<float>(rng.normal() * scale + mean));
  return values;
}
std::vector<float> float_values(Rng& rng, size_t count, double scale, double mean = 0.0) {
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(rng.normal() * scale + mean);
  return values;
}

cuda::Rows<const bf16> rows_of(const DeviceArray<bf16>& array, int num_rows, int num_cols) {
  return {array.data(), num_rows, num_cols, num_cols};
}

}  // namespace

PrefillLayer::PrefillLayer(const PrefillShape& of) : shape(of) {
  Rng rng(shape.seed);
  const auto rows = static_cast<size_t>(step_rows());
  const auto heads = static_cast<size_t>(shape.num_v_heads);
  const bool slow = shape.decays_slowly;
  qkv = bf16_values(rng, rows * num_channels(), 1.0);
  z = bf16_values(rng, rows * width(), 1.5);
  a = bf16_values(rng, rows * heads, 1.0);
  b = bf16_values(rng, rows * heads, 2.0, slow ? 2.0 : 0.0);
  ring = bf16_values(rng, kPrefillSlots * ring_stride(), 1.0);
  conv_weight = float_values(rng, static_cast<size_t>(num_channels()) * kConvTaps, 0.4);
  A_log = float_values(rng, heads, slow ? 0.0 : 1.5, slow ? -6.0 : -1.0);
  dt_bias = float_values(rng, heads, slow ? 0.0 : 1.5, slow ? -5.0 : -2.0);
  norm = float_values(rng, 128, 0.2, 1.0);
  state = float_values(rng, kPrefillSlots * state_stride(), 0.1);
  if (shape.position == 0) std::fill_n(state.begin(), state_stride(), 0.0f);
  const auto scale_vectors = [&](int begin, float factor) {
    for (int row = begin; row < std::min(begin + 4, shape.num_rows); ++row) {
      bf16* q = &qkv[static_cast<size_t>(kPrefillRowsBefore + row) * num_channels()];
      for (int c = 0; c < 2 * shape.num_k_heads * 128; ++c) q[c] = to_bf16(to_float(q[c]) * factor);
    }
  };
  scale_vectors(20, 0.0f);
  scale_vectors(40, 1e-4f);
  scale_vectors(50, 1e3f);
}

RowRun PrefillLayer::run(int begin, int end) const {
  RowRun run;
  run.first_row = kPrefillRowsBefore + begin;
  run.num_rows = end - begin;
  run.position = shape.position + begin;
  run.slot = 0;
  run.checkpoint_slot = 1;
  return run;
}

bool PrefillResult::operator==(const PrefillResult& other) const {
  const auto same_bytes = [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
  };
  return same_bytes(operands, other.operands) && same_bytes(state, other.state) &&
         same_bytes(ring, other.ring) && range_flag == other.range_flag;
}

bool PrefillResult::has_rows_of(const PrefillResult& other, const PrefillLayer& layer,
                                int num_rows) const {
  const auto first = static_cast<int64_t>(kPrefillRowsBefore) * layer.width();
  const auto count = static_cast<int64_t>(num_rows) * layer.width();
  return std::equal(operands.begin() + first, operands.begin() + first + count,
                    other.operands.begin() + first);
}

PrefillDevice::PrefillDevice(const PrefillLayer& layer, int scratch_chunks)
    : layer_(layer),
      qkv_(layer.qkv.size()),
      z_(layer.z.size()),
      a_(layer.a.size()),
      b_(layer.b.size()),
      ring_(layer.ring.size()),
      conv_weight_(layer.conv_weight.size()),
      A_log_(layer.A_log.size()),
      dt_bias_(layer.dt_bias.size()),
      norm_(layer.norm.size()),
      state_(layer.state.size()),
      operands_(static_cast<size_t>(layer.step_rows()) * layer.width()),
      range_flag_(1),
      scratch_(cuda::gdn_prefill_scratch_bytes(layer.shape.num_k_heads, layer.shape.num_v_heads,
                                               scratch_chunks)) {
  qkv_.set(layer.qkv);
  z_.set(layer.z);
  a_.set(layer.a);
  b_.set(layer.b);
  conv_weight_.set(layer.conv_weight);
  A_log_.set(layer.A_log);
  dt_bias_.set(layer.dt_bias);
  norm_.set(layer.norm);
  reset();
}

void PrefillDevice::reset() {
  const int no_flag = 0;
  ring_.set(layer_.ring);
  state_.set(layer_.state);
  range_flag_.set(std::span(&no_flag, 1));
  operands_.poison();
  scratch_.poison();
}

cuda::GdnPrefill PrefillDevice::args(int scratch_chunks) const {
  const PrefillShape& shape = layer_.shape;
  const int rows = layer_.step_rows();
  cuda::GdnPrefill args = {};
  args.num_k_heads = shape.num_k_heads;
  args.num_v_heads = shape.num_v_heads;
  args.qkv = rows_of(qkv_, rows, layer_.num_channels());
  args.z = rows_of(z_, rows, layer_.width());
  args.a = rows_of(a_, rows, shape.num_v_heads);
  args.b = rows_of(b_, rows, shape.num_v_heads);
  args.conv_weight = conv_weight_.data();
  args.A_log = A_log_.data();
  args.dt_bias = dt_bias_.data();
  args.norm = norm_.data();
  args.eps = kPrefillEps;
  args.conv = {ring_.data(), static_cast<int64_t>(layer_.ring_stride()), layer_.num_channels()};
  args.state = {state_.data(), static_cast<int64_t>(layer_.state_stride())};
  args.operands = operands_.data();
  args.range_flag = range_flag_.data();
  args.scratch = scratch_.data();
  args.scratch_chunks = scratch_chunks;
  return args;
}

void PrefillDevice::launch(std::span<const RowRun> runs, int scratch_chunks,
                           const cuda::Fp8Operands& fp8) {
  cuda::GdnPrefill prefill = args(scratch_chunks);
  prefill.fp8 = fp8;
  must(cuda::launch_gdn_prefill(prefill, runs.data(), static_cast<int>(runs.size()), nullptr));
}

PrefillResult PrefillDevice::result() const {
  must(cudaDeviceSynchronize());
  return {operands_.fetch(), state_.fetch(), ring_.fetch(), range_flag_.fetch()[0]};
}

std::vector<bf16> PrefillDevice::convolved() {
  const int num_rows = layer_.shape.num_rows;
  const DeviceArray<bf16> out(static_cast<size_t>(num_rows) * layer_.num_channels());
  must(cuda::launch_prefill_conv(args(1), layer_.run(0, num_rows), out.data()));
  must(cudaDeviceSynchronize());
  return out.fetch();
}

}  // namespace sluice
