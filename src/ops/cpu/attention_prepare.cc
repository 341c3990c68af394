// Implements attn_prepare of ops/attention.h. Test: tests/ops attn_prepare.
// Accumulation: the norm's, see vec_rows.h; every other value stands alone.
#include <cstring>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/vec_rows.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

/// rb( rb(a cos) + rb(b sin) ), the last rounding left to the store.
Vec rotated(Vec a, Vec cos, Vec b, Vec sin) {
  return add(round_bf16(mul(a, cos)), round_bf16(mul(b, sin)));
}

/// Head `x` normed, rounded, its first 2 * half dims rotated in place of the norm's output.
void prepare_head(const AttnPrepareArgs& args, const bf16* x, const float* weight, int64_t position,
                  bf16* out) {
  const int64_t dim = args.shape.head_dim;
  const Vec inv = broadcast(inverse_rms(x, dim, args.eps));
  for_each_vec(dim, [&](int64_t i, int64_t n) {
    const Vec scale = add(broadcast(1.0f), load_upto(weight + i, n));
    store_upto(out + i, mul(mul(load_upto(x + i, n), inv), scale), n);
  });
  const int64_t half = args.shape.rotary_dim / 2;
  const float* cos = args.cos.row(position);
  const float* sin = args.sin.row(position);
  for_each_vec(half, [&](int64_t i, int64_t n) {
    const Vec lo = load_upto(out + i, n);
    const Vec hi = load_upto(out + i + half, n);
    const Vec c = load_upto(cos + i, n);
    const Vec s = load_upto(sin + i, n);
    store_upto(out + i, rotated(lo, c, sub(zero(), hi), s), n);
    store_upto(out + i + half, rotated(hi, c, lo, s), n);
  });
}

void prepare_row(const AttnPrepareArgs& args, const RowRun& run, int64_t row) {
  const int64_t dim = args.shape.head_dim;
  const int64_t position = run.position + row - run.first_row;
  for (int64_t h = 0; h < args.shape.num_heads; ++h) {
    prepare_head(args, args.qg.row(row) + h * 2 * dim, args.q_norm.data(), position,
                 args.q.row(row) + h * dim);
  }
  const int32_t page = run.page_table[position / kKvPageTokens];
  const int64_t token = position % kKvPageTokens;
  for (int64_t h = 0; h < args.shape.num_kv_heads; ++h) {
    prepare_head(args, args.k.row(row) + h * dim, args.k_norm.data(), position,
                 args.kv.k_row(page, h, token));
    std::memcpy(args.kv.v_row(page, h, token), args.v.row(row) + h * dim,
                static_cast<size_t>(dim) * sizeof(bf16));
  }
}

}  // namespace

void attn_prepare(const AttnPrepareArgs& args, OpContext& context) {
  const int64_t width = (args.shape.num_heads + 2 * args.shape.num_kv_heads) * args.shape.head_dim;
  for (const RowRun& run : args.runs) {
    for_each_row(context, run.num_rows, width,
                 [&](int64_t i) { prepare_row(args, run, run.first_row + i); });
  }
}

}  // namespace sluice::SLUICE_CPU_NS
