#pragma once
// A prompt's step by its parts, each launch against the run's own ceilings and projections against the peer's products.

#include "apps/bench/launch_table.h"

namespace sluice {

/// Microseconds of the same product by cuda::MatmulPeer; 0: not to be had.
struct PeerTimes {
  double bf16_us = 0.0;
  double fp8_block_us = 0.0;
  double fp8_tensor_us = 0.0;
};

/// A group of launches and, of projections, the peer's times.
struct PartGroup {
  LaunchGroup group;
  PeerTimes peer;

  /// Do its matrix units multiply e4m3?
  bool is_fp8() const { return group.kernel.find("gemm_fp8") != std::string::npos; }
  /// The peer's time with operands of the same kind.
  double peer_us() const { return is_fp8() ? peer.fp8_block_us : peer.bf16_us; }
};

/// Measured in the same run.
struct Ceilings {
  double gbs = 0.0;  // of reading memory
  // The peer's fastest products; 0 without a peer.
  double bf16_tflops = 0.0;
  double fp8_tflops = 0.0;
};

/// Least microseconds of one launch: its bytes or its operations at the ceiling, whichever takes longer. 0 where neither is known.
double floor_us(const PartGroup& part, const Ceilings& ceilings);

/// Groups, then sums of the parts, and what the sum leaves of the step's own time.
std::string part_table(std::span<const PartGroup> groups, const Ceilings& ceilings, double step_us);

}  // namespace sluice
