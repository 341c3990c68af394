// Implements ops/cuda/gdn_prefill.h: gdn_chunk of ops/gdn.h and what is around it, in three or four kernels a batch of chunks.
//
//   factors_kernel  a block a chunk and key head: all that does not need the state, into images in scratch; v of a head by values_kernel, or by more blocks
//   scan_kernel     a block half a head of a run: chunk after chunk; o over v in scratch
//   gated_norm_kernel a block a chunk and head: norm, gate, operands; and the conv ring, which nobody reads any more
#include <algorithm>

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/gdn_prefill_factors.cuh"
#include "ops/cuda/gdn_prefill_norm.cuh"
#include "ops/cuda/gdn_prefill_scan.cuh"

namespace sluice::cuda {
namespace gdn_prefill {
namespace {

Images images_of(void* scratch, int num_k_heads, int num_v_heads, int chunks) {
  Images images = {};
  images.num_k_heads = num_k_heads;
  images.num_v_heads = num_v_heads;
  images.key = static_cast<uint8_t*>(scratch);
  images.head = images.key_image(chunks, 0);
  images.value = images.head_image(chunks, 0);
  return images;
}

/// Blocks of factors_kernel that run at a time on the smallest machine of its kind. Up to so many, values ride along; more have a launch of their own.
constexpr int kFactorBlocksAtOnce = 3 * 114;

template <int kGroup>
cudaError_t launch_factors(const Images& images, const Batch& batch, const GdnPrefill& args,
                           cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(FactorsShared<kGroup>));
  const int heads = args.num_k_heads + args.num_v_heads;
  const bool is_small = batch.num_images * heads <= kFactorBlocksAtOnce;
  const auto num_images = static_cast<unsigned>(batch.num_images);
  const dim3 grid(num_images, static_cast<unsigned>(is_small ? heads : args.num_k_heads));
  const cudaError_t error = launch_chained<factors_kernel<kGroup>>({grid, kFactorThreads, kBytes},
                                                                   stream, images, batch, args);
  if (error != cudaSuccess || is_small) return error;
  return launch_chained<values_kernel>(
      {dim3(num_images, static_cast<unsigned>(args.num_v_heads)), kFactorThreads}, stream, images,
      batch, args);
}

cudaError_t launch_group(const Images& images, const Batch& batch, const GdnPrefill& args,
                         cudaStream_t stream) {
  switch (args.num_v_heads / args.num_k_heads) {
    case 1:
      return launch_factors<1>(images, batch, args, stream);
    case 2:
      return launch_factors<2>(images, batch, args, stream);
    case 3:
      return launch_factors<3>(images, batch, args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_scan(const Images& images, const Batch& batch, const GdnPrefill& args,
                        cudaStream_t stream) {
  const dim3 grid(kSlices, static_cast<unsigned>(args.num_v_heads),
                  static_cast<unsigned>(batch.num_parts));
  return launch_chained<scan_kernel>({grid, kScanThreads, kScanSharedBytes}, stream, images, batch,
                                     args.state);
}

cudaError_t launch_norm(const Images& images, const Batch& batch, const GdnPrefill& args,
                        cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(batch.num_images), static_cast<unsigned>(args.num_v_heads));
  return launch_chained<gated_norm_kernel>({grid, kNormThreads}, stream, images, batch, args);
}

cudaError_t launch_batch(const GdnPrefill& args, const Batch& batch, cudaStream_t stream) {
  const Images images =
      images_of(args.scratch, args.num_k_heads, args.num_v_heads, args.scratch_chunks);
  cudaError_t error = launch_group(images, batch, args, stream);
  if (error == cudaSuccess) error = launch_scan(images, batch, args, stream);
  if (error == cudaSuccess) error = launch_norm(images, batch, args, stream);
  return error;
}

bool is_served(const GdnPrefill& args, const RowRun* runs, int num_runs) {
  if (args.scratch_chunks < 1 || args.num_k_heads < 1) return false;
  if (args.num_v_heads % args.num_k_heads != 0) return false;
  if (args.num_v_heads / args.num_k_heads > kGdnPrefillGroupMax) return false;
  return std::all_of(runs, runs + num_runs, [](const RowRun& run) {
    return run.num_rows >= 1 && run.position % kRows == 0;
  });
}

/// Launches whenever a batch is full.
struct Batches {
  const GdnPrefill& args;
  cudaStream_t stream;
  Batch batch = {};
  cudaError_t error = cudaSuccess;

  void flush() {
    if (error == cudaSuccess && batch.num_images > 0) error = launch_batch(args, batch, stream);
    batch = {};
  }
  void add(const RowRun& run) {
    const Run mine = {run.first_row, run.num_rows, run.position, run.slot, run.checkpoint_slot};
    const int num_chunks = (run.num_rows + kRows - 1) / kRows;
    for (int first = 0; first < num_chunks;) {
      const int taken = std::min(num_chunks - first, args.scratch_chunks - batch.num_images);
      batch.parts[batch.num_parts++] = {mine, first, taken, batch.num_images};
      batch.num_images += taken;
      first += taken;
      if (batch.num_images == args.scratch_chunks || batch.num_parts == kPartsMax) flush();
    }
  }
};

}  // namespace
}  // namespace gdn_prefill

size_t gdn_prefill_scratch_bytes(int num_k_heads, int num_v_heads, int chunks) {
  using namespace gdn_prefill;
  const auto of_chunk = static_cast<size_t>(num_k_heads) * kKeyImageBytes +
                        static_cast<size_t>(num_v_heads) * (kHeadImageBytes + kValueImageBytes);
  return of_chunk * static_cast<size_t>(chunks);
}

cudaError_t launch_gdn_prefill(const GdnPrefill& args, const RowRun* runs, int num_runs,
                               cudaStream_t stream) {
  using namespace gdn_prefill;
  if (!is_served(args, runs, num_runs)) return cudaErrorInvalidValue;
  Batches batches = {args, stream};
  for (int i = 0; i < num_runs; ++i) batches.add(runs[i]);
  batches.flush();
  return batches.error;
}

}  // namespace sluice::cuda
