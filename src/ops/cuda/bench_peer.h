#pragma once
// A library's products of matrices, to set the projections against: cuBLASLt, opened while the program runs, so that nothing else needs it. As in bench_support.h nothing of
// CUDA's own is named.

#include <memory>
#include <string>

#include "base/status.h"

namespace sluice::cuda {

/// Y[num_rows, num_out] = X[num_rows, num_in] W[num_out, num_in]^T.
struct MatmulShape {
  int num_rows = 0;
  int num_out = 0;
  int num_in = 0;

  double flop() const { return 2.0 * num_rows * num_out * num_in; }
  bool operator==(const MatmulShape&) const = default;
};

/// Both operands; sums are fp32, results bf16.
enum class PeerFormat {
  kBf16,
  kFp8Block,   // e4m3, a scale a 128 x 128 block of W and a scale a 128 of a row of X
  kFp8Tensor,  // e4m3, one scale each, summed as fast as the GPU can
};

class MatmulPeer {
 public:
  /// Takes memory for products up to `largest` in each dimension. kUnsupported: the build had no header for it, or there is no library where the loader looks.
  /// Pre: check_gpu().
  static Result<std::unique_ptr<MatmulPeer>> open(const MatmulShape& largest);
  ~MatmulPeer();
  MatmulPeer(const MatmulPeer&) = delete;
  MatmulPeer& operator=(const MatmulPeer&) = delete;

  /// "cuBLASLt 13.1.0".
  std::string name() const;

  /// Microseconds of one product in a chain of num_launches, recorded as a graph, median of num_rounds; the fastest of the library's first suggestions. Operands are random,
  /// and successive products have other weights, more than twice the L2 before the same ones come again. 0: the library has none. FP8 takes rows by the 16: a shape's are rounded up.
  double us(PeerFormat format, const MatmulShape& shape, int num_launches, int num_rounds);

 private:
  MatmulPeer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cuda
