#pragma once
// What cuda_ops.cc asks of the kernels. Plain structs and pointers only: nvcc's host pass cannot read base/status.h (fmt 9).

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "ops/cuda/packed.h"
#include "ops/row_run.h"
#include "ops/step_view.h"

namespace sluice::cuda {

/// A MatView without its checks.
template <typename T>
struct Rows {
  T* data;
  int64_t num_rows;
  int64_t num_cols;
  int64_t stride;
};

// Behind everything launched before, as a launch among launches: a decode loop calls nothing else of the driver.
cudaError_t launch_copy(void* to, const void* from, size_t num_bytes, cudaStream_t stream);
cudaError_t launch_clear(void* to, size_t num_bytes, cudaStream_t stream);

/// Does this build hold code that the current device runs?
cudaError_t check_device_code();

// Ops of a step's rows leave out padding rows.

/// Padding rows of `out` are zeroed.
cudaError_t launch_embed(Rows<const bf16> table, const StepView& step, Rows<bf16> out,
                         cudaStream_t stream);
/// out[i] = x[step.logit_rows[i]]; zeros for padding.
cudaError_t launch_gather(Rows<const bf16> x, const StepView& step, Rows<bf16> out,
                          cudaStream_t stream);
cudaError_t launch_rms_norm(Rows<const bf16> x, const float* weight, float eps,
                            const StepView& step, Rows<bf16> out, cudaStream_t stream);
cudaError_t launch_gated_rms_norm(Rows<const bf16> o, Rows<const bf16> z, const float* weight,
                                  int head_dim, float eps, const StepView& step, Rows<bf16> out,
                                  cudaStream_t stream);
cudaError_t launch_gdn_gates(Rows<const bf16> a, Rows<const bf16> b, const float* A_log,
                             const float* dt_bias, const StepView& step, Rows<float> g,
                             Rows<float> beta, cudaStream_t stream);
cudaError_t launch_conv1d(Rows<const bf16> x, const float* weight, const StepView& step,
                          const ConvLayerView& state, Rows<bf16> out, cudaStream_t stream);

/// Heads are 128 wide.
struct GdnStep {
  int num_k_heads, num_v_heads;
  Rows<const bf16> qkv;
  Rows<const float> g, beta;
  RecurrentLayerView state;
  Rows<bf16> o;
};
cudaError_t launch_gdn_step(const GdnStep& args, const StepView& step, cudaStream_t stream);

/// head_dim is 256.
struct AttnPrepare {
  int num_heads, num_kv_heads, rotary_dim;
  Rows<const bf16> qg, k, v;
  const float *q_norm, *k_norm;
  float eps;
  Rows<const float> cos, sin;
  KvLayerView kv;
  Rows<bf16> q;
};
cudaError_t launch_attn_prepare(const AttnPrepare& args, const StepView& step, cudaStream_t stream);

struct Attention {
  int num_heads, num_kv_heads;
  Rows<const bf16> q, qg;
  KvLayerView kv;
  Rows<bf16> out;
};
cudaError_t launch_attention(const Attention& args, const StepView& step, cudaStream_t stream);

}  // namespace sluice::cuda
