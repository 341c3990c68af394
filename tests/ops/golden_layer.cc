#include "tests/ops/golden_layer.h"

#include <algorithm>
#include <numeric>

#include "tests/ops/golden_set.h"

namespace sluice::golden {
namespace {

constexpr int64_t kHeads = 6;
constexpr int64_t kKvHeads = 1;
constexpr int64_t kHeadDim = 256;

class Layer {
 public:
  explicit Layer(std::string prefix) : prefix_(std::move(prefix)) {}

  Matrix<float> vector(const std::string& name) const {
    return GoldenSet::get().floats(prefix_ + name);
  }
  Matrix<bf16> linear(const Matrix<bf16>& x, const std::string& name) {
    const Matrix<bf16> weight = GoldenSet::get().bf16s(prefix_ + name + ".weight");
    return keep(name + ".out", run_linear(x, weight_view(weight)));
  }
  Matrix<bf16> norm(const Matrix<bf16>& x, const std::string& name) {
    return keep(name + ".out", run_rms_norm(x, vector(name + ".weight")));
  }
  Matrix<bf16> add_linear(const Matrix<bf16>& x, const std::string& name,
                          const Matrix<bf16>& residual) {
    const Matrix<bf16> weight = GoldenSet::get().bf16s(prefix_ + name + ".weight");
    keep(name + ".in", x);
    return run_linear_residual(x, weight_view(weight), residual);
  }
  /// The second half of every layer.
  LayerRun finish(const Matrix<bf16>& residual) {
    keep("post_attention_layernorm.in", residual);
    const Matrix<bf16> h = norm(residual, "post_attention_layernorm");
    const Matrix<bf16> gate = GoldenSet::get().bf16s(prefix_ + "mlp.gate_proj.weight");
    const Matrix<bf16> up = GoldenSet::get().bf16s(prefix_ + "mlp.up_proj.weight");
    const Matrix<bf16> product = run_gate_up(h, weight_view(gate), weight_view(up));
    LayerRun run;
    run.out = keep("out", add_linear(product, "mlp.down_proj", residual));
    run.trace = std::move(trace_);
    return run;
  }
  Matrix<bf16> keep(const std::string& name, Matrix<bf16> value) {
    trace_.emplace_back(name, value);
    return value;
  }

 private:
  std::string prefix_;
  Trace trace_;
};

void append(Matrix<bf16>& out, const Matrix<bf16>& more) {
  out.values.insert(out.values.end(), more.values.begin(), more.values.end());
  out.num_rows += more.num_rows;
  out.num_cols = more.num_cols;
}

std::vector<int32_t> calls_of(int64_t num_rows, int32_t num_prompt) {
  std::vector<int32_t> calls = {num_prompt};
  calls.resize(1 + static_cast<size_t>(num_rows - num_prompt), 1);
  return calls;
}

}  // namespace

Matrix<bf16> pick_rows(const Matrix<bf16>& m, const std::vector<int64_t>& rows) {
  Matrix<bf16> out(static_cast<int64_t>(rows.size()), m.num_cols);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(m.row(rows[i]), m.num_cols, out.row(static_cast<int64_t>(i)));
  }
  return out;
}

LayerRun run_gdn_layer(const std::string& prefix, const Matrix<bf16>& x, int32_t num_prompt) {
  Layer layer(prefix);
  const Matrix<bf16> h = layer.norm(x, "input_layernorm");
  const Matrix<bf16> qkv = layer.linear(h, "linear_attn.in_proj_qkv");
  const Matrix<bf16> z = layer.linear(h, "linear_attn.in_proj_z");
  const Matrix<bf16> b = layer.linear(h, "linear_attn.in_proj_b");
  const Matrix<bf16> a = layer.linear(h, "linear_attn.in_proj_a");
  const Matrix<float> packed = layer.vector("linear_attn.conv1d.weight");  // [channels * 1, 4]
  const Matrix<bf16> conv =
      layer.keep("linear_attn.conv1d", run_conv1d(qkv, packed, calls_of(x.num_rows, num_prompt)));
  const Gates gates =
      run_gdn_gates(a, b, layer.vector("linear_attn.A_log"), layer.vector("linear_attn.dt_bias"));
  GdnInput in{{}, conv, gates.g, gates.beta};
  in.shape.num_k_heads = 2;
  in.shape.num_v_heads = 6;
  Matrix<float> state(6 * 128, 128);
  Matrix<bf16> o = run_gdn_chunk(gdn_rows(in, 0, num_prompt), 0, state);
  for (int64_t r = num_prompt; r < x.num_rows; ++r) {
    append(o, run_gdn_step(gdn_rows(in, r, 1), static_cast<int32_t>(r), state));
  }
  layer.keep("linear_attn.core_attn_out", o);
  const Matrix<bf16> normed = layer.keep(
      "linear_attn.norm.out", run_gated_rms_norm(o, z, layer.vector("linear_attn.norm.weight")));
  return layer.finish(layer.add_linear(normed, "linear_attn.out_proj", x));
}

LayerRun run_attention_layer(const std::string& prefix, const Matrix<bf16>& x, int32_t num_prompt) {
  Layer layer(prefix);
  const Matrix<bf16> h = layer.norm(x, "input_layernorm");
  PrepareInput in;
  in.shape.num_heads = kHeads;
  in.shape.num_kv_heads = kKvHeads;
  in.qg = layer.linear(h, "self_attn.q_proj");
  in.k = layer.linear(h, "self_attn.k_proj");
  in.v = layer.linear(h, "self_attn.v_proj");
  in.q_norm = layer.vector("self_attn.q_norm.weight");
  in.k_norm = layer.vector("self_attn.k_norm.weight");
  in.positions.resize(static_cast<size_t>(x.num_rows));
  std::iota(in.positions.begin(), in.positions.end(), 0);
  Matrix<bf16> keys;
  const Matrix<bf16> q = run_attn_prepare(in, {}, keys);

  KvPages kv(kKvHeads, kHeadDim, x.num_rows);
  Matrix<bf16> out;
  int32_t done = 0;
  for (const int32_t rows : calls_of(x.num_rows, num_prompt)) {
    for (int64_t p = done; p < done + rows; ++p) kv.put(p, keys.row(p), in.v.row(p));
    std::vector<int64_t> part(static_cast<size_t>(rows));
    std::iota(part.begin(), part.end(), int64_t{done});
    append(out,
           run_attention(in.shape, pick_rows(q, part), pick_rows(in.qg, part), kv, done + rows));
    done += rows;
  }
  return layer.finish(layer.add_linear(out, "self_attn.o_proj", x));
}

}  // namespace sluice::golden
