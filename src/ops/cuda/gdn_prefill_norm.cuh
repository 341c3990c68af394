#pragma once
// Behind the scan: gated_rms_norm into operands, and the conv ring.

#include "ops/cuda/fragments.cuh"
#include "ops/cuda/gdn_prefill_layout.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kNormThreads = 256;
constexpr int kNormWarps = kNormThreads / kWarp;
constexpr int kPitch = kRows / 2 + 1;  // words of a column of o in shared memory
constexpr int kRowsOfWarp = kRows / kNormWarps;
constexpr int kPairsOfLane = kHeadDim / 2 / kWarp;

__device__ __forceinline__ float silu_of(float x) {
  return gdn::silu_unbranched(x);
}

/// Grid (chunks of the segment, num_v_heads). A warp has kRowsOfWarp rows, a lane of a row the pairs of columns 64 p + 2 lane.
__global__ void __launch_bounds__(kNormThreads)
    norm_kernel(Images images, Segment segment, GdnPrefill args) {
  __shared__ uint32_t o[kHeadDim * kPitch];
  const int head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = (segment.first_chunk + static_cast<int>(blockIdx.x)) * kRows;  // of the run
  const int count = min(kRows, segment.run.num_rows - first);
  const int64_t step_row = segment.run.first_row + first;

  uint32_t z[kRowsOfWarp][kPairsOfLane];
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int row = warp + i * kNormWarps;
    const bf16* from = args.z.data + (step_row + row) * args.z.stride + head * kHeadDim + 2 * lane;
#pragma unroll
    for (int p = 0; p < kPairsOfLane; ++p)
      z[i][p] = row < count ? gdn::load_pair(from + p * 2 * kWarp) : 0u;
  }
  const auto* image =
      reinterpret_cast<const uint4*>(images.value_image(static_cast<int>(blockIdx.x), head));
  constexpr int kVectorsOfColumn = kRows / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kHeadDim * kVectorsOfColumn; i += kNormThreads) {
    const uint4 v = image[i];
    uint32_t* to = o + i / kVectorsOfColumn * kPitch + i % kVectorsOfColumn * 4;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
  __syncthreads();

  float2 weight[kPairsOfLane];
#pragma unroll
  for (int p = 0; p < kPairsOfLane; ++p) {
    weight[p] = *reinterpret_cast<const float2*>(args.norm + p * 2 * kWarp + 2 * lane);
  }
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int row = warp + i * kNormWarps;
    if (row >= count) break;
    const int place = place_of_row(row);
    const uint32_t selector = place % 2 == 0 ? 0x5410u : 0x7632u;
    uint32_t pairs[kPairsOfLane];
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < kPairsOfLane; ++p) {
      const uint32_t* column = o + (p * 2 * kWarp + 2 * lane) * kPitch + place / 2;
      pairs[p] = __byte_perm(column[0], column[kPitch], selector);
      squares = fmaf(low_bf16(pairs[p]), low_bf16(pairs[p]), squares);
      squares = fmaf(high_bf16(pairs[p]), high_bf16(pairs[p]), squares);
    }
    const float inverse = gdn::inverse_root(warp_sum(squares) / kHeadDim + args.eps);
    uint16_t* to = args.operands + (step_row + row) * args.num_v_heads * kHeadDim;
#pragma unroll
    for (int p = 0; p < kPairsOfLane; ++p) {
      const uint32_t n = narrow_pair(low_bf16(pairs[p]) * inverse, high_bf16(pairs[p]) * inverse);
      const uint32_t y = narrow_pair(weight[p].x * low_bf16(n), weight[p].y * high_bf16(n));
      const uint32_t pair = narrow_pair(low_bf16(y) * silu_of(low_bf16(z[i][p])),
                                        high_bf16(y) * silu_of(high_bf16(z[i][p])));
      const uint32_t operand = operands_of(pair);
      if (is_out_of_range(operand)) raise_flag(args.range_flag);
      const int k = head * kHeadDim + p * 2 * kWarp + 2 * lane;
      *reinterpret_cast<uint32_t*>(to + operand_place(k)) = operand;
    }
  }
}

constexpr int kRingThreads = 128;

/// The run's newest inputs into its ring, and those before the boundary into the checkpoint's. Grid (pairs of channels).
__global__ void ring_kernel(GdnPrefill args, Run run) {
  const int channel = 2 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= args.conv.num_channels) return;
  const bf16* from = args.qkv.data + run.first_row * args.qkv.stride + channel;
  const auto keep = [&](int slot, int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const int64_t column = (run.position + row) % kConvRingColumns;
      *reinterpret_cast<uint32_t*>(args.conv.data + slot * args.conv.slot_stride +
                                   column * args.conv.num_channels + channel) =
          gdn::load_pair(from + row * args.qkv.stride);
    }
  };
  const int boundary = run.num_rows / kRows * kRows;
  if (run.checkpoint_slot != kNoSlot && boundary > 0) {
    keep(run.checkpoint_slot, boundary - gdn::kHistory, boundary);
  }
  keep(run.slot, max(0, run.num_rows - gdn::kRingColumns), run.num_rows);
}

}  // namespace sluice::cuda::gdn_prefill
