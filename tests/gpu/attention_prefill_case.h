#pragma once
// A session's inputs to prefill attention on the device, run as one piece or many, and what fp64 makes of them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/cuda/attention_prefill.h"
#include "ops/cuda/device.h"
#include "tests/gpu/device_array.h"

namespace sluice::testing {

struct HeadCounts {
  int q, kv;
};

/// A part of the session: rows [begin, end).
struct Piece {
  int begin, end;
};

class AttentionCase {
 public:
  AttentionCase(HeadCounts heads, int num_rows, uint64_t seed);

  struct Way {
    /// As AttentionPrefill says.
    int split = -1;
    bool tiles_from_first_row = false;
    /// Rows of nobody behind the piece's, and a piece of another session ahead of it.
    int num_padding = 0;
    int num_strangers = 0;
    /// Pages are dealt anew from this.
    uint64_t page_seed = 1;
  };
  /// The session in pieces that cover it, over poisoned pages and outputs: the operands of all its rows.
  std::vector<uint16_t> run(std::span<const Piece> pieces, const Way& way);

  /// Of `rows`, the root mean square difference to fp64 relative to the values' own: ours, and that of weights rounded behind the division, as the eager form has them.
  struct Errors {
    double ours, eager;
  };
  Errors errors(std::span<const uint16_t> operands, std::span<const int> rows) const;
  /// Keys and values of the last run that are not what the contract says, bit for bit.
  int64_t num_wrong_kv() const;
  bool is_out_of_range() const;

  int num_rows() const { return num_rows_; }
  /// Doubles every query: for controls.
  void spoil_queries();

 private:
  void launch(const Piece& piece, const Way& way, uint16_t* operands);
  std::vector<float> prepared(const bf16* head, std::span<const float> norm, int position) const;
  std::vector<float> key_of(int position, int kv_head) const;

  HeadCounts heads_;
  int num_rows_;
  int num_pages_;
  std::vector<bf16> qg_, k_, v_;
  std::vector<float> q_norm_, k_norm_, cos_, sin_;
  DeviceArray<float> device_q_norm_, device_k_norm_, device_cos_, device_sin_;
  KvLayerView kv_;
  DeviceArray<bf16> pool_;
  std::vector<int32_t> pages_;  // of the last run
  DeviceArray<int> range_flag_;
  DeviceArray<std::byte> scratch_;
};

}  // namespace sluice::testing
