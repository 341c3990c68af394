// Implements ops/embed.h, ops/norm.h and gdn_gates of ops/gdn.h: what works on a row alone.
#include "ops/cuda/launch.h"
#include "ops/cuda/math.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGateThreads = 64;

__device__ bool is_padding(const StepView& step, int64_t row) {
  return step.rows[row].run < 0;
}

/// A block a row; null: zeros.
__device__ void copy_row(const bf16* from, const Rows<bf16>& out, int64_t row) {
  bf16* to = out.data + row * out.stride;
  for (int64_t i = threadIdx.x; i < out.num_cols; i += blockDim.x) {
    to[i] = from == nullptr ? bf16{0} : from[i];
  }
}

__global__ void embed_kernel(Rows<const bf16> table, StepView step, Rows<bf16> out) {
  const int64_t row = blockIdx.x;
  const bf16* from =
      is_padding(step, row) ? nullptr : table.data + step.rows[row].token_id * table.stride;
  copy_row(from, out, row);
}

__global__ void gather_kernel(Rows<const bf16> x, StepView step, Rows<bf16> out) {
  const int64_t row = step.logit_rows[blockIdx.x];
  copy_row(row < 0 ? nullptr : x.data + row * x.stride, out, blockIdx.x);
}

__global__ void rms_norm_kernel(Rows<const bf16> x, const float* weight, float eps, StepView step,
                                Rows<bf16> out) {
  if (is_padding(step, blockIdx.x)) return;
  __shared__ float per_warp[kWarp];
  const bf16* from = x.data + blockIdx.x * x.stride;
  bf16* to = out.data + blockIdx.x * out.stride;
  float squares = 0.0f;
  for (int64_t i = threadIdx.x; i < x.num_cols; i += blockDim.x) {
    const float v = widen(from[i]);
    squares = fmaf(v, v, squares);
  }
  const float mean = block_sum(squares, per_warp) / static_cast<float>(x.num_cols);
  const float inverse = 1.0f / sqrtf(mean + eps);
  for (int64_t i = threadIdx.x; i < x.num_cols; i += blockDim.x) {
    to[i] = narrow(widen(from[i]) * inverse * (1.0f + weight[i]));
  }
}

/// A block a row and head, a thread an element.
__global__ void gated_rms_norm_kernel(Rows<const bf16> o, Rows<const bf16> z, const float* weight,
                                      float eps, StepView step, Rows<bf16> out) {
  if (is_padding(step, blockIdx.x)) return;
  __shared__ float per_warp[kWarp];
  const int64_t col = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const float value = widen(o.data[blockIdx.x * o.stride + col]);
  const float mean = block_sum(value * value, per_warp) / static_cast<float>(blockDim.x);
  const float n = round_bf16(value * (1.0f / sqrtf(mean + eps)));
  const float y = round_bf16(weight[threadIdx.x] * n);
  out.data[blockIdx.x * out.stride + col] =
      narrow(y * silu(widen(z.data[blockIdx.x * z.stride + col])));
}

/// In double: a few values a row, whose exponent every later state carries.
__global__ void gdn_gates_kernel(Rows<const bf16> a, Rows<const bf16> b, const float* A_log,
                                 const float* dt_bias, StepView step, Rows<float> g,
                                 Rows<float> beta) {
  const int64_t row = blockIdx.x;
  if (is_padding(step, row)) return;
  for (int64_t h = threadIdx.x; h < a.num_cols; h += blockDim.x) {
    const double dt = static_cast<double>(widen(a.data[row * a.stride + h])) + dt_bias[h];
    const double softplus = dt > 20.0 ? dt : log1p(exp(dt));
    g.data[row * g.stride + h] = static_cast<float>(-exp(static_cast<double>(A_log[h])) * softplus);
    const double gate = static_cast<double>(widen(b.data[row * b.stride + h]));
    beta.data[row * beta.stride + h] = round_bf16(static_cast<float>(1.0 / (1.0 + exp(-gate))));
  }
}

}  // namespace

cudaError_t launch_embed(Rows<const bf16> table, const StepView& step, Rows<bf16> out,
                         cudaStream_t stream) {
  embed_kernel<<<static_cast<unsigned>(out.num_rows), kThreads, 0, stream>>>(table, step, out);
  return cudaGetLastError();
}

cudaError_t launch_gather(Rows<const bf16> x, const StepView& step, Rows<bf16> out,
                          cudaStream_t stream) {
  gather_kernel<<<static_cast<unsigned>(out.num_rows), kThreads, 0, stream>>>(x, step, out);
  return cudaGetLastError();
}

cudaError_t launch_rms_norm(Rows<const bf16> x, const float* weight, float eps,
                            const StepView& step, Rows<bf16> out, cudaStream_t stream) {
  rms_norm_kernel<<<static_cast<unsigned>(x.num_rows), kThreads, 0, stream>>>(x, weight, eps, step,
                                                                              out);
  return cudaGetLastError();
}

cudaError_t launch_gated_rms_norm(Rows<const bf16> o, Rows<const bf16> z, const float* weight,
                                  int head_dim, float eps, const StepView& step, Rows<bf16> out,
                                  cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(o.num_rows), static_cast<unsigned>(o.num_cols / head_dim));
  gated_rms_norm_kernel<<<grid, head_dim, 0, stream>>>(o, z, weight, eps, step, out);
  return cudaGetLastError();
}

cudaError_t launch_gdn_gates(Rows<const bf16> a, Rows<const bf16> b, const float* A_log,
                             const float* dt_bias, const StepView& step, Rows<float> g,
                             Rows<float> beta, cudaStream_t stream) {
  gdn_gates_kernel<<<static_cast<unsigned>(a.num_rows), kGateThreads, 0, stream>>>(
      a, b, A_log, dt_bias, step, g, beta);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
