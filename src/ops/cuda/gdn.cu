// Implements ops/conv1d.h and gdn_step of ops/gdn.h: row after row, the state in registers.
#include "ops/cuda/launch.h"
#include "ops/cuda/math.cuh"

namespace sluice::cuda {
namespace {

constexpr int kConvThreads = 128;
constexpr int kHeadDim = 128;  // check_shape refuses others
constexpr float kL2NormEps = 1e-6f;

/// A thread a channel and run: it slides over the run's rows with the last inputs in registers, and is the only one to
/// touch its channel of the ring.
__global__ void conv1d_kernel(Rows<const bf16> x, const float* weight, StepView step,
                              ConvLayerView state, Rows<bf16> out) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= x.num_cols) return;
  const DeviceRun run = step.runs[blockIdx.y];
  if (run.num_rows == 0) return;
  const auto column = [&](int32_t slot, int64_t position) -> bf16& {
    return state.data[slot * state.slot_stride +
                      (position % kConvRingColumns) * state.num_channels + channel];
  };
  const int64_t begin = run.position;
  const int64_t end = begin + run.num_rows;
  const int64_t boundary = end / kGdnChunk * kGdnChunk;
  const bool has_checkpoint = run.checkpoint_slot != kNoSlot && boundary > begin;
  const auto keep_for_checkpoint = [&](int64_t position, bf16 value) {
    if (has_checkpoint && position >= boundary - (kConvTaps - 1) && position < boundary) {
      column(run.checkpoint_slot, position) = value;
    }
  };
  bf16 taps[kConvTaps];  // inputs of positions p - 3 .. p
  for (int j = 0; j < kConvTaps - 1; ++j) {
    const int64_t position = begin - (kConvTaps - 1) + j;
    taps[j + 1] = position < 0 ? bf16{0} : column(run.slot, position);
    if (position >= 0) keep_for_checkpoint(position, taps[j + 1]);
  }
  float w[kConvTaps];
  for (int j = 0; j < kConvTaps; ++j) w[j] = weight[channel * kConvTaps + j];
  for (int64_t p = begin; p < end; ++p) {
    const int64_t row = run.first_row + (p - begin);
    for (int j = 0; j < kConvTaps - 1; ++j) taps[j] = taps[j + 1];
    taps[kConvTaps - 1] = x.data[row * x.stride + channel];
    float sum = 0.0f;
    for (int j = 0; j < kConvTaps; ++j) sum = fmaf(w[j], widen(taps[j]), sum);
    out.data[row * out.stride + channel] = narrow(silu(round_bf16(sum)));
    column(run.slot, p) = taps[kConvTaps - 1];
    keep_for_checkpoint(p, taps[kConvTaps - 1]);
  }
}

constexpr int kStepThreads = 2 * kHeadDim;
constexpr int kHalf = kHeadDim / 2;

/// q by the block's first half, k by its second: l2-normalised into shared memory, q scaled too.
__device__ void load_q_and_k(const GdnStep& args, int64_t row, int64_t key_head, float* per_warp,
                             float* qk) {
  const int thread = static_cast<int>(threadIdx.x);
  const int which = thread / kHeadDim;
  const bf16* from =
      args.qkv.data + row * args.qkv.stride + (which * args.num_k_heads + key_head) * kHeadDim;
  const float raw = widen(from[thread % kHeadDim]);
  const float sum = warp_sum(raw * raw);
  if (thread % kWarp == 0) per_warp[thread / kWarp] = sum;
  __syncthreads();
  constexpr int kWarpsOfHead = kHeadDim / kWarp;
  float squares = 0.0f;
  for (int i = 0; i < kWarpsOfHead; ++i) squares += per_warp[which * kWarpsOfHead + i];
  const float unit = raw * (1.0f / sqrtf(squares + kL2NormEps));
  qk[thread] = which == 0 ? unit * (1.0f / sqrtf(static_cast<float>(kHeadDim))) : unit;
  __syncthreads();
}

/// A block a run and value head. Two threads share a column of the state and hold it in registers over the run's rows.
__global__ void __launch_bounds__(kStepThreads, 1) gdn_step_kernel(GdnStep args, StepView step) {
  __shared__ float per_warp[kStepThreads / kWarp];
  __shared__ float qk[kStepThreads];
  const DeviceRun run = step.runs[blockIdx.y];
  if (run.num_rows == 0) return;
  const int64_t head = blockIdx.x;
  const int64_t key_head = head / (args.num_v_heads / args.num_k_heads);
  const int column = static_cast<int>(threadIdx.x) / 2;
  const int first = static_cast<int>(threadIdx.x) % 2 * kHalf;
  float* S = args.state.data + run.slot * args.state.slot_stride + head * kHeadDim * kHeadDim +
             first * kHeadDim + column;
  const float* q = qk + first;
  const float* k = qk + kHeadDim + first;
  float values[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) values[i] = S[i * kHeadDim];
  for (int32_t r = 0; r < run.num_rows; ++r) {
    const int64_t row = run.first_row + r;
    load_q_and_k(args, row, key_head, per_warp, qk);
    const float v = widen(
        args.qkv.data[row * args.qkv.stride + (2 * args.num_k_heads + head) * kHeadDim + column]);
    const float decay = expf(args.g.data[row * args.g.stride + head]);
    const float beta = args.beta.data[row * args.beta.stride + head];
    float memory = 0.0f;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      values[i] *= decay;
      memory = fmaf(values[i], k[i], memory);
    }
    memory += __shfl_xor_sync(0xffffffffu, memory, 1);
    const float d = (v - memory) * beta;
    float o = 0.0f;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      values[i] = fmaf(k[i], d, values[i]);
      o = fmaf(values[i], q[i], o);
    }
    o += __shfl_xor_sync(0xffffffffu, o, 1);
    if (first == 0) {
      args.o.data[row * args.o.stride + head * kHeadDim + column] = narrow(o);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kHalf; ++i) S[i * kHeadDim] = values[i];
}

}  // namespace

cudaError_t launch_conv1d(Rows<const bf16> x, const float* weight, const StepView& step,
                          const ConvLayerView& state, Rows<bf16> out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((x.num_cols + kConvThreads - 1) / kConvThreads),
                  static_cast<unsigned>(step.num_runs));
  conv1d_kernel<<<grid, kConvThreads, 0, stream>>>(x, weight, step, state, out);
  return cudaGetLastError();
}

cudaError_t launch_gdn_step(const GdnStep& args, const StepView& step, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.num_v_heads), static_cast<unsigned>(step.num_runs));
  gdn_step_kernel<<<grid, kStepThreads, 0, stream>>>(args, step);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
