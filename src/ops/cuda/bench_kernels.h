#pragma once
// Kernels of bench_support.cc.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"

namespace sluice::cuda {

/// Element i is sigma times normal number i of `key`.
cudaError_t launch_fill_bf16(bf16* to, int64_t count, uint64_t key, float sigma,
                             cudaStream_t stream);
cudaError_t launch_fill_f32(float* to, int64_t count, uint64_t key, float sigma,
                            cudaStream_t stream);
/// Weight codes: normal numbers that fill e4m3's range (kFp8FillSigma), or bf16's bits as f16 with the largest in [2^14, 2^15).
inline constexpr float kFp8FillSigma = 448.0f / 3.4642f;
inline constexpr float kF16FillSigma = 8192.0f;
cudaError_t launch_fill_fp8_codes(uint8_t* to, int64_t count, uint64_t key, cudaStream_t stream);
cudaError_t launch_fill_f16_codes(uint16_t* to, int64_t count, uint64_t key, cudaStream_t stream);
/// `middle` times a number in [0.75, 1.25).
cudaError_t launch_fill_scales(float* to, int64_t count, uint64_t key, float middle,
                               cudaStream_t stream);

/// Bytes that both readers take at a time.
inline constexpr int64_t kReadMultiple = int64_t{1} << 20;
/// Reads num_bytes once; `sink` gets what nobody asks for. Pre: num_bytes is a multiple of kReadMultiple.
cudaError_t launch_bulk_read(const uint8_t* from, int64_t num_bytes, int num_sms, uint32_t* sink,
                             cudaStream_t stream);
cudaError_t launch_plain_read(const uint8_t* from, int64_t num_bytes, int num_sms, uint32_t* sink,
                              cudaStream_t stream);

}  // namespace sluice::cuda
