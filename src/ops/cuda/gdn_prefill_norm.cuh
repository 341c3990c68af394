#pragma once
// Behind the scan: gated_rms_norm into operands, f16 or e4m3, and the conv ring.

#include "ops/cuda/fp8_quantise.cuh"
#include "ops/cuda/fragments.cuh"
#include "ops/cuda/gdn_prefill_layout.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kNormThreads = 256;
constexpr int kLanesOfNorm = 16;                        // a row's, eight columns each
constexpr int kNormRows = kNormThreads / kLanesOfNorm;  // at a time
constexpr int kNormTurns = kRows / kNormRows;

/// words[i] of lane 4 a + b goes to words[b] of lane 4 a + i.
__device__ __forceinline__ void transpose_words(uint32_t (&words)[4]) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool is_upper = (threadIdx.x & static_cast<unsigned>(step)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const uint32_t sent = is_upper ? words[i] : words[i + step];
      const uint32_t got = __shfl_xor_sync(kAllLanes, sent, step);
      words[i] = is_upper ? got : words[i];
      words[i + step] = is_upper ? words[i + step] : got;
    }
  }
}

/// Normalised, weighted, gated: two values of o.
__device__ __forceinline__ uint32_t norm_pair(uint32_t o, uint32_t z, float inverse,
                                              float2 weight) {
  const uint32_t n = narrow_pair(low_bf16(o) * inverse, high_bf16(o) * inverse);
  const uint32_t y = narrow_pair(weight.x * low_bf16(n), weight.y * high_bf16(n));
  return narrow_pair(low_bf16(y) * quick_silu(low_bf16(z)),
                     high_bf16(y) * quick_silu(high_bf16(z)));
}

/// Where the first of four operands lies that a lane stores: of its four lanes' 32 values of k, the step and half of its own number.
__device__ __forceinline__ int operands_at(int lane) {
  const int word = lane % 4;  // pair of each group of eight: k = 2 word, 2 word + 1
  return operand_place(lane / 4 * 32 + 2 * word);
}

__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
  for (int step = kLanesOfNorm / 2; step >= 1; step /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, step);
  }
  return x;
}

/// Eight values of each of kLanesOfNorm lanes, one group of 128, as e4m3.
__device__ __forceinline__ void store_fp8(const GdnPrefill& args, int64_t row, int head, int lane,
                                          const uint32_t (&pairs)[4]) {
  constexpr uint32_t kSizes = 0x7fff7fffu;
  uint32_t both = __vmaxu2(__vmaxu2(pairs[0] & kSizes, pairs[1] & kSizes),
                           __vmaxu2(pairs[2] & kSizes, pairs[3] & kSizes));
#pragma unroll
  for (int step = kLanesOfNorm / 2; step >= 1; step /= 2) {
    both = __vmaxu2(both, __shfl_xor_sync(kAllLanes, both, step));
  }
  const float max = widen(bf16{static_cast<uint16_t>(::max(both & 0xffffu, both >> 16))});
  const Fp8Scale scale(max);
  if (row < 0) return;
  uint8_t* to = args.fp8.values + row * args.fp8.stride + head * kHeadDim;
  *reinterpret_cast<uint2*>(to + fp8_operand_place(8 * lane)) =
      make_uint2(quantise_quad(pairs[0], pairs[1], scale.inverse),
                 quantise_quad(pairs[2], pairs[3], scale.inverse));
  if (lane != 0) return;
  args.fp8.scales[head * args.fp8.scale_stride + row] = scale.stored;
  if (!(max < INFINITY)) raise_flag(args.range_flag);
}

/// A chunk of a value head.
__device__ __forceinline__ void norm_rows(const GdnPrefill& args, const Chunk& chunk, int head,
                                          const uint8_t* image) {
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfNorm;
  const int first = static_cast<int>(threadIdx.x) / kLanesOfNorm;
  const bf16* z_from = args.z.data + chunk.step_row * args.z.stride + head * kHeadDim + 8 * lane;
  uint4 o[kNormTurns], z[kNormTurns];
#pragma unroll
  for (int i = 0; i < kNormTurns; ++i) {
    const int row = first + i * kNormRows;
    z[i] =
        row < chunk.count ? load_early(z_from + row * args.z.stride) : make_uint4(0u, 0u, 0u, 0u);
  }
  float2 weight[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    weight[p] = *reinterpret_cast<const float2*>(args.norm + 8 * lane + 2 * p);
  }
  pdl_wait();
  pdl_launch();
#pragma unroll
  for (int i = 0; i < kNormTurns; ++i) {
    o[i] = *reinterpret_cast<const uint4*>(image + unit_at(first + i * kNormRows, lane));
  }
  const int64_t width = static_cast<int64_t>(args.num_v_heads) * kHeadDim;
  uint16_t* to = args.operands + chunk.step_row * width + head * kHeadDim + operands_at(lane);
#pragma unroll
  for (int i = 0; i < kNormTurns; ++i) {
    const int row = first + i * kNormRows;
    const uint32_t mine[4] = {o[i].x, o[i].y, o[i].z, o[i].w};
    const uint32_t gate[4] = {z[i].x, z[i].y, z[i].z, z[i].w};
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      squares = fmaf(low_bf16(mine[p]), low_bf16(mine[p]), squares);
      squares = fmaf(high_bf16(mine[p]), high_bf16(mine[p]), squares);
    }
    const float inverse = gdn::inverse_root(sum_of_lanes(squares) / kHeadDim + args.eps);
    uint32_t words[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) words[p] = norm_pair(mine[p], gate[p], inverse, weight[p]);
    if (args.fp8.values != nullptr) {
      store_fp8(args, row < chunk.count ? chunk.step_row + row : -1, head, lane, words);
      continue;
    }
    bool is_out = false;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      words[p] = operands_of(words[p]);
      is_out = is_out || is_out_of_range(words[p]);
    }
    transpose_words(words);
    if (row >= chunk.count) continue;
    if (is_out) raise_flag(args.range_flag);
    *reinterpret_cast<uint4*>(to + row * width) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

/// Inputs of rows [begin, end) of a run into a slot's ring, by `threads` threads, 16 bytes at a time.
__device__ __forceinline__ void keep_rows(const GdnPrefill& args, const Run& run, int slot,
                                          int begin, int end, int thread, int threads) {
  const int vectors = static_cast<int>(args.conv.num_channels) / gdn::kVector;
  bf16* ring = args.conv.data + slot * args.conv.slot_stride;
#pragma unroll 2
  for (int i = thread; i < (end - begin) * vectors; i += threads) {
    const int row = begin + i / vectors;
    const int channel = i % vectors * gdn::kVector;
    const int64_t column = (run.position + row) % kConvRingColumns;
    *reinterpret_cast<uint4*>(ring + column * args.conv.num_channels + channel) =
        *reinterpret_cast<const uint4*>(args.qkv.data + (run.first_row + row) * args.qkv.stride +
                                        channel);
  }
}

/// The run's newest inputs into its ring, and those before the boundary into the checkpoint's. Ahead of the wait: the factors, which read the ring, are done, since the scan lets
/// this kernel begin only behind its own wait.
__device__ __forceinline__ void keep_inputs(const GdnPrefill& args, const Run& run, int thread,
                                            int threads) {
  keep_rows(args, run, run.slot, max(0, run.num_rows - gdn::kRingColumns), run.num_rows, thread,
            threads);
  const int boundary = run.num_rows / kRows * kRows;
  if (run.checkpoint_slot != kNoSlot && boundary > 0) {
    keep_rows(args, run, run.checkpoint_slot, boundary - gdn::kHistory, boundary, thread, threads);
  }
}

/// Grid (images, num_v_heads). The run's last blocks move its ring on, which nobody reads any more.
__global__ void __launch_bounds__(kNormThreads)
    gated_norm_kernel(Images images, const __grid_constant__ Batch batch,
                      const __grid_constant__ GdnPrefill args) {
  const int image = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const Chunk chunk = chunk_of(batch, image);
  if (chunk.is_last) {
    keep_inputs(args, *chunk.run, head * kNormThreads + static_cast<int>(threadIdx.x),
                args.num_v_heads * kNormThreads);
  }
  norm_rows(args, chunk, head, images.value_image(image, head));
}

}  // namespace sluice::cuda::gdn_prefill
