#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "base/view.h"
#include "model/config.h"
#include "ops/memory.h"

namespace sluice {

/// cos and sin by absolute position, [context_max, rotary_dim / 2] fp32 holding bf16-rounded values.
/// The chain is the oracle's: inv_freq = 1 / theta^(2i/rotary_dim), angle = position * inv_freq, each in fp32,
/// then an accurate cos and sin of that fp32 angle. A table from double-precision angles is another function:
/// at position 262,143 one fp32 ulp of inv_freq[1] is about 0.01 rad (model-spec 3.4).
class RopeTable {
 public:
  static Result<RopeTable> create(const ModelConfig& config, int64_t context_max,
                                  const MemoryTable& memory = host_memory());

  MatView<const float> cos() const { return view(0); }
  MatView<const float> sin() const { return view(1); }

 private:
  MatView<const float> view(int64_t which) const;

  Buffer buffer_;
  int64_t context_max_ = 0;
  int64_t num_freqs_ = 0;
};

}  // namespace sluice
