#pragma once
// A made-up GDN layer with a step's rows, and launch_gdn_prefill on it.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/gdn_prefill.h"
#include "tests/gpu/device_array.h"

namespace sluice {

inline constexpr int kPrefillSlots = 4;
inline constexpr int kPrefillRowsBefore = 2;  // rows of no run, before and behind the others
inline constexpr int kPrefillRowsBehind = 2;
inline constexpr float kPrefillEps = 1e-6f;

struct PrefillShape {
  int num_k_heads, num_v_heads;
  int num_rows;  // of runs
  int position;  // of the first; 0: slot 0 begins with no state
  uint64_t seed;
  bool decays_slowly = false;  // the state remembers thousands of rows
};

/// The step in host memory. A few rows are zero, a few tiny, a few large.
struct PrefillLayer {
  explicit PrefillLayer(const PrefillShape& of);

  int num_channels() const { return (2 * shape.num_k_heads + shape.num_v_heads) * 128; }
  int width() const { return shape.num_v_heads * 128; }
  int step_rows() const { return kPrefillRowsBefore + shape.num_rows + kPrefillRowsBehind; }
  size_t state_stride() const { return static_cast<size_t>(width()) * 128; }
  size_t ring_stride() const { return static_cast<size_t>(kConvRingColumns) * num_channels(); }
  /// Rows [begin, end) as a run of slot 0 with checkpoints in slot 1.
  RowRun run(int begin, int end) const;

  PrefillShape shape;
  std::vector<bf16> qkv, z, a, b, ring;
  std::vector<float> conv_weight, A_log, dt_bias, norm, state;
};

/// What launches leave behind.
struct PrefillResult {
  std::vector<uint16_t> operands;  // poisoned with 0xffff before
  std::vector<float> state;
  std::vector<bf16> ring;
  int range_flag = 0;

  bool operator==(const PrefillResult& other) const;  // bits
  /// Operands of the shape's first `num_rows` rows, bit for bit.
  bool has_rows_of(const PrefillResult& other, const PrefillLayer& layer, int num_rows) const;
};

/// The layer in device memory.
class PrefillDevice {
 public:
  PrefillDevice(const PrefillLayer& layer, int scratch_chunks);

  /// State, rings and poison as at first.
  void reset();
  /// With `fp8`, operands go there.
  void launch(std::span<const RowRun> runs, int scratch_chunks, const cuda::Fp8Operands& fp8 = {});
  PrefillResult result() const;
  /// Channels after conv and SiLU of rows [0, num_rows), as the kernels compute them.
  std::vector<bf16> convolved();

 private:
  cuda::GdnPrefill args(int scratch_chunks) const;

  const PrefillLayer& layer_;
  DeviceArray<bf16> qkv_, z_, a_, b_, ring_;
  DeviceArray<float> conv_weight_, A_log_, dt_bias_, norm_, state_;
  DeviceArray<uint16_t> operands_;
  DeviceArray<int> range_flag_;
  DeviceArray<uint8_t> scratch_;
};

}  // namespace sluice
