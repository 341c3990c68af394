#pragma once
// Kernels of pack.cc.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::cuda {

/// Whole row groups of a weight, row-major in device memory; rows behind num_rows fill the last group with zeros.
struct PackRows {
  const void* from;  // e4m3 bytes or bf16 values, [num_rows, num_in]
  int64_t num_rows;
  int64_t num_in;
  uint8_t* to;         // the first group's first block
  float* row_factors;  // bf16 only: the first row's
};

cudaError_t launch_pack_fp8(const PackRows& rows, cudaStream_t stream);
cudaError_t launch_pack_bf16(const PackRows& rows, cudaStream_t stream);

}  // namespace sluice::cuda
