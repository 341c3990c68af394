#pragma once
// Draws each row's next token on the device, as src/decode/sampler.h does on the host. POD only: nvcc reads it.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/row_run.h"

namespace sluice::cuda {

inline constexpr int kSampleRowsMax = 64;

/// SampleRow::flags. A row without kSampleActive (padding; all zeros) is skipped: nothing of it is read or written.
inline constexpr uint32_t kSampleActive = 1;
/// Also SampleArgs::drawn_logits.
inline constexpr uint32_t kSampleLogprob = 2;

/// How one row draws; fields as SamplingParams, whose validate() they have passed. Penalties and masks are not for here.
struct alignas(16) SampleRow {
  float temperature;
  int32_t top_k;
  float top_p;
  /// Of the most likely ids (kLogprobsMax at most) that go to SampleArgs::drawn_logits. 0: none.
  int32_t num_top;
  /// std::log(double(min_p)) taken on the host, so that both sides cut at the same bits; -infinity where min_p is 0.
  double log_min_p;
  uint64_t seed;
  /// Of the drawn token.
  int64_t position;
  uint32_t flags;
};
static_assert(sizeof(SampleRow) == 48);

struct SampleArgs {
  /// [num_rows, stride], 16-byte aligned rows: stride is a multiple of 8 and at least num_defined rounded up to 8.
  const bf16* logits;
  int64_t stride;
  /// Ids from here on are never drawn nor looked at.
  int32_t num_defined;
  /// The bucket, at most kSampleRowsMax.
  int32_t num_rows;
  /// [num_rows] in device memory, complete before any kernel but the first of the step begins (read ahead of pdl_wait).
  const SampleRow* rows;
  /// [num_rows] in device memory; kNoToken where a logit is NaN or positive infinity.
  int32_t* drawn;
  /// [num_rows] in device memory, written for rows with kSampleLogprob whose logits are sound. May be null if no row asks.
  DrawnLogits* drawn_logits;
  /// sample_workspace_bytes() of device memory, 256-byte aligned, zeroed once by its owner; each launch leaves it fit for the next one of
  /// its stream, whatever the number of rows up to the one it was sized for.
  void* workspace;
};

size_t sample_workspace_bytes(int num_rows, int num_defined);

/// The same id as Sampler::sample without penalties, for the same logits, whatever other rows are in the step.
///
///   greedy          highest logit, lowest id among ties
///   else            argmax(logit / temperature + gumbel(seed, position, id)) in fp64 over what top-k, top-p and min-p leave,
///                   lowest id among ties
///
/// Top-p adds its probabilities as integers of 2^-96 of the likeliest, so their order does not matter. exp and log in fp64 are the
/// device's own, within 1 ulp of the host's.
/// Two kernels of 256 threads, chained by PDL behind the head: at most 96 registers and 22 KB of shared memory. cudaErrorInvalidValue: the shape breaks the contract above.
cudaError_t launch_sample(const SampleArgs& args, cudaStream_t stream);

}  // namespace sluice::cuda
