// Implements ops/cuda/gdn_prefill.h: gdn_chunk of ops/gdn.h and what is around it, in three kernels a segment and one for the conv ring.
//
//   factors_kernel  a block a chunk and key head: all that does not need the state, into images in scratch
//   scan_kernel     a block half a head: chunk after chunk, the state in registers; o over v in scratch
//   norm_kernel     a block a chunk and head: norm, gate, operands
//   ring_kernel     when nobody reads the old ring any more
#include <algorithm>

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

template <typename Kernel>
cudaError_t allow_shared(Kernel kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <int kGroup>
cudaError_t launch_factors(const Images& images, const Segment& segment, const GdnPrefill& args,
                           cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(FactorsShared<kGroup>));
  const cudaError_t error = allow_shared(factors_kernel<kGroup>, kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(segment.num_chunks),
                  static_cast<unsigned>(args.num_k_heads));
  factors_kernel<kGroup><<<grid, kFactorThreads, kBytes, stream>>>(images, segment, args);
  return cudaGetLastError();
}

cudaError_t launch_group(const Images& images, const Segment& segment, const GdnPrefill& args,
                         cudaStream_t stream) {
  switch (args.num_v_heads / args.num_k_heads) {
    case 1:
      return launch_factors<1>(images, segment, args, stream);
    case 2:
      return launch_factors<2>(images, segment, args, stream);
    case 3:
      return launch_factors<3>(images, segment, args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_scan(const Images& images, const Segment& segment, const GdnPrefill& args,
                        cudaStream_t stream) {
  const cudaError_t error = allow_shared(scan_kernel<kFullOutputs>, kScanSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(kSlices, static_cast<unsigned>(args.num_v_heads));
  scan_kernel<kFullOutputs>
      <<<grid, kScanThreads, kScanSharedBytes, stream>>>(images, segment, args.state);
  return cudaGetLastError();
}

cudaError_t launch_norm(const Images& images, const Segment& segment, const GdnPrefill& args,
                        cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(segment.num_chunks),
                  static_cast<unsigned>(args.num_v_heads));
  norm_kernel<<<grid, kNormThreads, 0, stream>>>(images, segment, args);
  return cudaGetLastError();
}

cudaError_t launch_ring(const GdnPrefill& args, const Run& run, cudaStream_t stream) {
  const int pairs = static_cast<int>(args.conv.num_channels / 2);
  const auto blocks = static_cast<unsigned>((pairs + kRingThreads - 1) / kRingThreads);
  ring_kernel<<<blocks, kRingThreads, 0, stream>>>(args, run);
  return cudaGetLastError();
}

/// Keeps the first error and skips what comes behind it.
struct Chain {
  cudaError_t error = cudaSuccess;
  template <typename Call>
  void operator()(Call&& call) {
    if (error == cudaSuccess) error = call();
  }
};

/// A run in segments of as many chunks as the scratch holds.
cudaError_t launch_run(const GdnPrefill& args, const Run& run, cudaStream_t stream) {
  const Images images =
      images_of(args.scratch, args.num_k_heads, args.num_v_heads, args.scratch_chunks);
  const int num_chunks = (run.num_rows + kRows - 1) / kRows;
  Chain chain;
  for (int first = 0; first < num_chunks; first += args.scratch_chunks) {
    const Segment segment = {run, first, std::min(num_chunks - first, args.scratch_chunks)};
    chain([&] { return launch_group(images, segment, args, stream); });
    chain([&] { return launch_scan(images, segment, args, stream); });
    chain([&] { return launch_norm(images, segment, args, stream); });
  }
  chain([&] { return launch_ring(args, run, stream); });
  return chain.error;
}

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
  if (args.scratch_chunks < 1 || args.num_k_heads < 1 || args.num_v_heads % args.num_k_heads != 0) {
    return cudaErrorInvalidValue;
  }
  Chain chain;
  for (int i = 0; i < num_runs; ++i) {
    const RowRun& run = runs[i];
    if (run.num_rows < 1 || run.position % kRows != 0) return cudaErrorInvalidValue;
    const Run mine = {run.first_row, run.num_rows, run.position, run.slot, run.checkpoint_slot};
    chain([&] { return launch_run(args, mine, stream); });
  }
  return chain.error;
}

}  // namespace sluice::cuda
