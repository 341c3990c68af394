// Implements attn_prepare and attention of ops/attention.h for steps of many rows on sm_90a, as one composition of two or three kernels.
//
// Idea: flash attention with wgmma, query heads of a KV head packed into the rows of a tile, weights from registers, keys and values by multicast copies
// (attention_prefill_kernel.cuh), norms, rotation and gates in a pass before it (attention_prefill_prepare.cuh).
//
// Rounding: q and k as prepare_kernel of attention.cu, bit for bit; s = rb( rb(q.k) / 16 ). Weights are taken relative to the running maximum of the span
// and rounded once, p = rb(exp(s - m)); the sum l adds the rounded p. o and l in fp32; out = rb( rb(o * (1 / l)) * rb(sigmoid(gate)) ).
//
// Order (attention_prefill_plan.cuh): tiles of 64 keys in order inside spans that lie at absolute positions, spans joined in order. A tile or a span of which a row sees nothing
// changes nothing, and a row of a matrix instruction does not know its neighbours: bits depend on the row's own context only, not on the cut of a
// prompt, the company, or the plan. They are not those of the decode kernels (a leaf of 64 from nothing, a tree of radix 4), whose order would need a second set of sums in
// registers.
#include <algorithm>

#include "ops/cuda/attention_prefill_kernel.cuh"
#include "ops/cuda/attention_prefill_prepare.cuh"
#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/tensor_map.h"

namespace sluice::cuda {
namespace prefill {
namespace {

/// The pages as rows of 256 values, cut into panels of 64: a block's share of a tile. How many pages there are is the page tables' affair.
bool encode_keys(const KvLayerView& kv, CUtensorMap* map) {
  const cuuint64_t dims[3] = {64, 1u << 31, kPanels};
  const cuuint64_t strides[2] = {kHeadDim * 2, 128};
  const cuuint32_t box[3] = {64, kKeys, kPanels / kClusterTiles};
  const cuuint32_t steps[3] = {1, 1, 1};
  return encode_tiled() != nullptr &&
         encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, kv.data, dims, strides, box,
                        steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Where things lie in the scratch.
struct Layout {
  size_t parked, parts, states, end;
};
Layout layout_of(const Plan& plan) {
  const auto images = static_cast<size_t>(plan.images_per_head) * plan.num_kv_heads;
  const size_t num_parts = images * static_cast<size_t>(plan.split_spans);
  constexpr size_t kPartBytes = kPartFloats * sizeof(float);
  Layout at;
  at.parked = images * kTileImage;
  at.parts = at.parked + static_cast<size_t>(plan.num_clusters) * kClusterTiles * kPartBytes;
  at.states = at.parts + num_parts * kPartBytes;
  at.end = at.states + num_parts * kTileRows * sizeof(State);
  return at;
}

Plan plan_of(int num_rows, int num_runs, int num_heads, int num_kv_heads, int num_sms) {
  Plan plan{};
  plan.num_kv_heads = num_kv_heads;
  plan.group = num_heads / num_kv_heads;
  plan.num_clusters = num_sms / kClusterTiles;
  plan.images_per_head = images_of(num_rows, num_runs, plan.group);
  return plan;
}

/// Whole contexts of so few units would leave multiprocessors idle.
bool has_few_units(const Plan& plan, int num_rows) {
  return ceil_div(num_rows * plan.group, kUnitRows) * plan.num_kv_heads < 2 * plan.num_clusters;
}

/// Would a run with all rows, at the end of the longest context, be done sooner with its context split?
bool split_pays(Plan plan, int num_rows, int context_max) {
  if (!has_few_units(plan, num_rows)) return false;
  const DeviceRun run = {0, num_rows, std::max(0, context_max - num_rows), 0, -1, 0};
  const int64_t whole = longest_work(plan, run);
  plan.split_spans = spans_of(context_max);
  return longest_work(plan, run) < whole;
}

bool well_formed(const AttentionPrefill& op) {
  if (op.num_kv_heads < 1 || op.num_heads % op.num_kv_heads != 0) return false;
  return op.num_sms >= kClusterTiles && op.kv.page_stride % kHeadDim == 0 &&
         op.qg.stride % 8 == 0 && op.k.stride % 8 == 0 && op.v.stride % 8 == 0;
}

/// False where the launch is not well formed, the scratch too small, or the driver without tensor maps.
bool fill_params(const AttentionPrefill& op, const StepView& step, Params* params) {
  if (!well_formed(op)) return false;
  params->op = op;
  params->zero = 0;
  Plan& plan = params->plan;
  plan = plan_of(step.num_rows, step.num_runs, op.num_heads, op.num_kv_heads, op.num_sms);
  plan.tiles_from_first_row = op.tiles_from_first_row;
  const auto context_max = static_cast<int>(op.context_max);
  const int spans = spans_of(context_max);
  const bool wanted =
      op.split > 0 || (op.split < 0 && split_pays(plan, step.num_rows, context_max));
  if (wanted && spans > 1) plan.split_spans = spans;
  if (layout_of(plan).end > op.scratch_bytes) plan.split_spans = 0;
  const Layout at = layout_of(plan);
  if (at.end > op.scratch_bytes) return false;
  params->queries = static_cast<uint8_t*>(op.scratch);
  params->parked = reinterpret_cast<float*>(params->queries + at.parked);
  params->parts = reinterpret_cast<float*>(params->queries + at.parts);
  params->states = reinterpret_cast<State*>(params->queries + at.states);
  return encode_keys(op.kv, &params->keys);
}

cudaError_t launch_prepare(const Params& params, const StepView& step, cudaStream_t stream) {
  const AttentionPrefill& op = params.op;
  const int warps =
      prepare_warps(step.num_rows, op.num_heads) + prepare_warps(step.num_rows, op.num_kv_heads);
  const int blocks = ceil_div(warps, kPrepareWarps);
  return launch_chained<prepare_kernel>(
      {dim3(static_cast<unsigned>(blocks)), kPrepareWarps * kWarp}, stream, params, step);
}

cudaError_t launch_products(const Params& params, const StepView& step, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(params.plan.num_clusters * kClusterTiles);
  return launch_chained<attention_kernel>({dim3(grid), kThreads, sizeof(Shared)}, stream, params,
                                          step);
}

}  // namespace
}  // namespace prefill

size_t attention_prefill_scratch_bytes(int num_rows, int num_runs, int num_heads, int num_kv_heads,
                                       int num_sms) {
  return prefill::layout_of(prefill::plan_of(num_rows, num_runs, num_heads, num_kv_heads, num_sms))
      .end;
}

size_t attention_prefill_split_bytes(int num_rows, int num_runs, int num_heads, int num_kv_heads,
                                     int64_t context_max, int num_sms) {
  prefill::Plan plan = prefill::plan_of(num_rows, num_runs, num_heads, num_kv_heads, num_sms);
  if (prefill::has_few_units(plan, num_rows)) {
    plan.split_spans = prefill::spans_of(static_cast<int>(context_max));
  }
  return prefill::layout_of(plan).end;
}

cudaError_t launch_attention_prefill(const AttentionPrefill& op, const StepView& step,
                                     cudaStream_t stream) {
  prefill::Params params;
  if (!prefill::fill_params(op, step, &params)) return cudaErrorInvalidValue;
  cudaError_t error = prefill::launch_prepare(params, step, stream);
  if (error != cudaSuccess) return error;
  error = prefill::launch_products(params, step, stream);
  if (error != cudaSuccess || params.plan.split_spans == 0) return error;
  return launch_chained<prefill::merge_kernel>(
      {dim3(static_cast<unsigned>(4 * op.num_sms)), prefill::kConsumers}, stream, params, step);
}

}  // namespace sluice::cuda
