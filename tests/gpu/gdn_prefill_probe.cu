#include "ops/cuda/gdn_prefill_conv.cuh"
#include "tests/gpu/gdn_prefill_probe.h"

namespace sluice::cuda {
namespace gdn_prefill {
namespace {

/// Grid (chunks, 128 channels).
__global__ void conv_kernel(const __grid_constant__ Batch batch,
                            const __grid_constant__ GdnPrefill args, bf16* out) {
  const Chunk chunk = chunk_of(batch, static_cast<int>(blockIdx.x));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int begin = static_cast<int>(threadIdx.x) / kWarp * kConvRows;
  const int channel = static_cast<int>(blockIdx.y) * kHeadDim + 4 * lane;
  uint2 values[kConvRows];
  convolve(args, chunk, load_inputs(args, chunk, channel, begin), channel, begin, values);
  for (int i = 0; i < kConvRows; ++i) {
    const int row = begin + i;
    if (row >= chunk.count) break;
    *reinterpret_cast<uint2*>(out + (chunk.first + row) * args.conv.num_channels + channel) =
        values[i];
  }
}

}  // namespace
}  // namespace gdn_prefill

cudaError_t launch_prefill_conv(const GdnPrefill& args, const RowRun& run, bf16* out) {
  using namespace gdn_prefill;
  const int chunks = (run.num_rows + kRows - 1) / kRows;
  Batch batch = {};
  batch.num_parts = 1;
  batch.num_images = chunks;
  batch.parts[0] = {
      {run.first_row, run.num_rows, run.position, run.slot, run.checkpoint_slot}, 0, chunks, 0};
  const dim3 grid(static_cast<unsigned>(chunks),
                  static_cast<unsigned>(args.conv.num_channels / kHeadDim));
  conv_kernel<<<grid, kConvWarps * kWarp>>>(batch, args, out);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
