#include "tests/ops/gdn_case.h"

#include <algorithm>

namespace sluice {
namespace {

// fp32 sums of 128 terms err by some 1e-6 of their row; a value that cancels to almost nothing may
// therefore be many of its own ulps away.
constexpr Tolerance kOutput{.ulps = 1, .floor = 2e-5, .mismatch = 0.01};
// The state is not rounded below fp32, so its bits need not agree.
constexpr Tolerance kState{.ulps = 4, .floor = 1e-5, .mismatch = 1.0};

double beta_value(Rng& rng) {
  return static_cast<double>(rb(static_cast<float>(rng.uniform())));
}

struct Tensors {
  TensorRef<bf16> qkv;
  TensorRef<float> g, beta, state;
  TensorRef<bf16> o;
};

TensorRef<float> add_state(OpCase& c, const GdnShape& shape, const GdnCase& p, GdnForm form,
                           Rng& rng) {
  const int64_t size = shape.state_size();
  const auto num_slots = static_cast<int32_t>(2 * p.runs.size() + 1);
  const auto state = c.world.filled<float>(
      "state", num_slots, size, [&] { return 0.05 * rng.normal(); }, p.pad);
  c.world.tensors[state.index].tolerance = kState;
  for (const GdnRun& r : p.runs) {
    const auto i = static_cast<int32_t>(c.runs.size());
    const int32_t first = i == 0 ? 0 : c.runs.back().first_row + c.runs.back().num_rows;
    const RowRun run{.first_row = first,
                     .num_rows = r.rows,
                     .position = r.position,
                     .slot = num_slots - 1 - 2 * i,
                     .checkpoint_slot = r.checkpoint ? num_slots - 2 - 2 * i : kNoSlot};
    c.runs.push_back(run);
    c.name += fmt::format(" [{}, +{}){}", r.position, r.rows, r.checkpoint ? "*" : "");
    c.world.allow_writes(state, run.slot, 0, size);
    if (r.position == 0) std::fill_n(c.world.mat(state).row(run.slot), size, 0.0f);
    const bool crosses = (r.position + r.rows) / kGdnChunk > r.position / kGdnChunk;
    if (form == GdnForm::kChunk && r.checkpoint && crosses) {
      c.world.allow_writes(state, run.checkpoint_slot, 0, size);
    }
  }
  return state;
}

void make_keys_alike(World& world, const Tensors& t) {
  const MatView<bf16> qkv = world.mat(t.qkv);
  for (int64_t r = 1; r < qkv.num_rows; ++r) std::copy_n(qkv.row(0), qkv.num_cols / 2, qkv.row(r));
  std::ranges::fill(world.span(t.g), -1e-6f);
  std::ranges::fill(world.span(t.beta), 1.0f);
}

}  // namespace

OpCase gdn_case(const GdnCase& p, GdnForm form) {
  const GdnShape shape{.num_k_heads = p.k_heads,
                       .num_v_heads = p.v_heads,
                       .head_k_dim = p.k_dim,
                       .head_v_dim = p.v_dim};
  Rng rng(static_cast<uint64_t>(p.k_heads * 1000 + p.v_heads));
  OpCase c{.name = fmt::format("heads={}:{} dims={}x{} qk={} g=[{}, {}] pad={}{}", p.k_heads,
                               p.v_heads, p.k_dim, p.v_dim, p.qk, p.g_low, p.g_high, p.pad,
                               p.same_keys ? " same_keys" : "")};
  Tensors t;
  t.state = add_state(c, shape, p, form, rng);
  const int64_t rows = c.runs.back().first_row + c.runs.back().num_rows;
  int64_t i = 0;
  t.qkv = c.world.filled<bf16>(
      "qkv", rows, shape.qkv_width(),
      [&] {
        const bool is_qk = i++ % shape.qkv_width() < 2 * shape.key_width();
        const double x = rng.normal();
        return (is_qk ? p.qk : 0.5) * x / (1.0 + std::exp(-x));  // what the SiLU leaves
      },
      p.pad);
  t.g = c.world.filled<float>(
      "g", rows, p.v_heads, [&] { return -rng.log_uniform(p.g_low, p.g_high); }, p.pad);
  t.beta = c.world.filled<float>(
      "beta", rows, p.v_heads, [&] { return beta_value(rng); }, p.pad);
  t.o = c.world.output<bf16>("o", rows, shape.value_width(), kOutput, p.pad);
  if (p.same_keys) make_keys_alike(c.world, t);

  c.cuts_anywhere = form == GdnForm::kStep;
  c.call = [=](const OpTable& table, World& world, OpContext& context,
               std::span<const RowRun> runs) {
    const RowWindow window(runs);
    const MatView<float> slots = world.mat(t.state);
    const GdnArgs args{.shape = shape,
                       .qkv = window.rows(world.mat(t.qkv)),
                       .g = window.rows(world.mat(t.g)),
                       .beta = window.rows(world.mat(t.beta)),
                       .runs = window.runs,
                       .state = {.data = slots.data, .slot_stride = slots.stride},
                       .o = window.rows(world.mat(t.o))};
    (form == GdnForm::kStep ? table.gdn_step : table.gdn_chunk)(args, context);
  };
  return c;
}

}  // namespace sluice
