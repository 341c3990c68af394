// Implements launch_gemm_skinny() of ops/cuda/gemm_sm90.h.
#include "ops/cuda/gemm_launch.cuh"
#include "ops/cuda/gemm_skinny.cuh"

namespace sluice::cuda {
namespace {

template <int kTokens, bool kPair>
cudaError_t launch_skinny(const Gemm& gemm, int num_multiprocessors, cudaStream_t stream) {
  GemmParams params;
  if (!fill_params(gemm, num_multiprocessors, &params) ||
      !encode_tokens(gemm, kTokens, &params.x)) {
    return cudaErrorInvalidValue;
  }
  return launch<gemm_skinny_kernel<kTokens, kPair>>(GemmRings<SkinnyShape<kTokens>>::kSharedBytes,
                                                    params, num_multiprocessors, stream);
}

template <bool kPair>
cudaError_t launch_bucket(const Gemm& gemm, int num_multiprocessors, cudaStream_t stream) {
  if (gemm.num_rows <= 16) return launch_skinny<16, kPair>(gemm, num_multiprocessors, stream);
  if (gemm.num_rows <= 32) return launch_skinny<32, kPair>(gemm, num_multiprocessors, stream);
  return launch_skinny<64, kPair>(gemm, num_multiprocessors, stream);
}

}  // namespace

cudaError_t launch_gemm_skinny(const Gemm& gemm, cudaStream_t stream) {
  if (encode_tiled() == nullptr) return cudaErrorNotSupported;
  if (!well_formed(gemm) || gemm.num_rows > kGemmSkinnyRows) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  const cudaError_t status = count_multiprocessors(&num_multiprocessors);
  if (status != cudaSuccess) return status;
  return gemm.epilogue == GemmEpilogue::kGateUp
             ? launch_bucket<true>(gemm, num_multiprocessors, stream)
             : launch_bucket<false>(gemm, num_multiprocessors, stream);
}

}  // namespace sluice::cuda
