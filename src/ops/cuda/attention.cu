// Implements ops/attention.h, plainly: three passes over the keys with the oracle's roundings. The yardstick of the fast kernels.
//
// Order of sums: within a page of 256 positions by the block's fixed tree, pages in order, so a row's bits depend on its own context only.
#include "ops/cuda/launch.h"
#include "ops/cuda/math.cuh"

namespace sluice::cuda {
namespace {

constexpr int kHeadDim = 256;              // check_shape refuses others
static_assert(kHeadDim == kKvPageTokens);  // a thread is a dimension here and a position there

/// A block a row and head (query heads, then key heads), a thread a dimension.
__global__ void prepare_kernel(AttnPrepare args, StepView step) {
  __shared__ float per_warp[kWarp];
  __shared__ float normed[kHeadDim];
  const int dim = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const int64_t num_heads = args.num_heads;
  const bool is_query = blockIdx.y < num_heads;
  const int64_t head = is_query ? blockIdx.y : blockIdx.y - num_heads;
  const DeviceRow at = step.rows[row];
  if (at.run < 0) return;
  const bf16 raw = is_query ? args.qg.data[row * args.qg.stride + head * 2 * kHeadDim + dim]
                            : args.k.data[row * args.k.stride + head * kHeadDim + dim];
  const float value = widen(raw);
  const float mean = block_sum(value * value, per_warp) / static_cast<float>(kHeadDim);
  const float* weight = is_query ? args.q_norm : args.k_norm;
  normed[dim] = round_bf16(value * (1.0f / sqrtf(mean + args.eps)) * (1.0f + weight[dim]));
  __syncthreads();
  float x = normed[dim];
  const int half = static_cast<int>(args.rotary_dim) / 2;
  if (dim < 2 * half) {
    const int freq = dim % half;
    const float cos = args.cos.data[at.position * args.cos.stride + freq];
    const float sin = args.sin.data[at.position * args.sin.stride + freq];
    const float other = dim < half ? -normed[dim + half] : normed[dim - half];
    x = round_bf16(round_bf16(x * cos) + round_bf16(other * sin));
  }
  if (is_query) {
    args.q.data[row * args.q.stride + head * kHeadDim + dim] = narrow(x);
    return;
  }
  const int32_t page = step.pages[step.runs[at.run].first_page + at.position / kKvPageTokens];
  bf16* k_row = args.kv.data + page * args.kv.page_stride +
                (head * kKvPageTokens + at.position % kKvPageTokens) * kHeadDim;
  k_row[dim] = narrow(x);
  k_row[args.kv.num_kv_heads * kKvPageTokens * kHeadDim + dim] =
      args.v.data[row * args.v.stride + head * kHeadDim + dim];
}

/// rb( rb(q . k) / 16 ) of this thread's position in a page; minus infinity behind the row's own position.
__device__ float score(const float* q, const bf16* keys, int64_t position, int64_t last) {
  if (position > last) return -INFINITY;
  const bf16* k = keys + static_cast<int64_t>(threadIdx.x) * kHeadDim;
  float sum = 0.0f;
  for (int i = 0; i < kHeadDim; i += 8) {
    const uint4 part = *reinterpret_cast<const uint4*>(k + i);
    const auto* values = reinterpret_cast<const bf16*>(&part);
    for (int j = 0; j < 8; ++j) sum = fmaf(q[i + j], widen(values[j]), sum);
  }
  constexpr float kScale = 1.0f / 16.0f;
  return round_bf16(round_bf16(sum) * kScale);
}

/// A block a row and query head. A thread is a position of a page for scores and a dimension for outputs.
__global__ void attention_kernel(Attention args, StepView step) {
  __shared__ float per_warp[kWarp];
  __shared__ float q[kHeadDim];
  __shared__ float p[kKvPageTokens];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const int64_t head = blockIdx.y;
  const int64_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const DeviceRow at = step.rows[row];
  if (at.run < 0) return;
  const int32_t* pages = step.pages + step.runs[at.run].first_page;
  const int64_t last = at.position;
  const int64_t num_pages = last / kKvPageTokens + 1;
  const auto keys_of = [&](int64_t page) {
    return args.kv.data + pages[page] * args.kv.page_stride + kv_head * kKvPageTokens * kHeadDim;
  };
  q[thread] = widen(args.q.data[row * args.q.stride + head * kHeadDim + thread]);
  __syncthreads();
  float max = -INFINITY;
  for (int64_t page = 0; page < num_pages; ++page) {
    max = fmaxf(max, score(q, keys_of(page), page * kKvPageTokens + thread, last));
  }
  max = block_max(max, per_warp);
  float total = 0.0f;
  for (int64_t page = 0; page < num_pages; ++page) {
    const float s = score(q, keys_of(page), page * kKvPageTokens + thread, last);
    total += block_sum(expf(s - max), per_warp);
  }
  float sum = 0.0f;
  for (int64_t page = 0; page < num_pages; ++page) {
    const bf16* keys = keys_of(page);
    const float s = score(q, keys, page * kKvPageTokens + thread, last);
    p[thread] = round_bf16(expf(s - max) / total);
    __syncthreads();
    const bf16* values = keys + args.kv.num_kv_heads * kKvPageTokens * kHeadDim;
    const int64_t count = min(kKvPageTokens, last + 1 - page * kKvPageTokens);
    float partial = 0.0f;
    for (int64_t j = 0; j < count; ++j) {
      partial = fmaf(p[j], widen(values[j * kHeadDim + thread]), partial);
    }
    sum += partial;
    __syncthreads();
  }
  const float gate =
      widen(args.qg.data[row * args.qg.stride + head * 2 * kHeadDim + kHeadDim + thread]);
  args.out.data[row * args.out.stride + head * kHeadDim + thread] =
      narrow(round_bf16(sum) * round_bf16(sigmoid(gate)));
}

}  // namespace

cudaError_t launch_attn_prepare(const AttnPrepare& args, const StepView& step,
                                cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.qg.num_rows),
                  static_cast<unsigned>(args.num_heads + args.num_kv_heads));
  prepare_kernel<<<grid, kHeadDim, 0, stream>>>(args, step);
  return cudaGetLastError();
}

cudaError_t launch_attention(const Attention& args, const StepView& step, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.q.num_rows), static_cast<unsigned>(args.num_heads));
  attention_kernel<<<grid, kHeadDim, 0, stream>>>(args, step);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
