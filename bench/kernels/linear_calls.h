#pragma once
// The linear calls a decoder layer of each size makes, on weights cut from one big buffer.

#include <string>
#include <vector>

#include "ops/op_table.h"

namespace sluice::bench {

enum class CallKind { kLinear, kResidual, kGateUp };

struct CallShape {
  std::string model;
  std::string name;
  CallKind kind = CallKind::kLinear;
  int64_t num_in = 0;
  std::vector<int64_t> num_outs;
  /// Projections from this one on are BF16 in an FP8 checkpoint too (in_proj_b, in_proj_a).
  size_t first_bf16 = SIZE_MAX;

  size_t num_bytes(WeightFormat format) const;
  double num_flops(int64_t rows) const;
};

/// Every call of the models named in `models` (substring match; empty: all).
std::vector<CallShape> call_shapes(const std::string& models);

/// Weights, scales, x and outputs for calls; the weights of call i follow those of call i - 1 in the buffer, round and
/// round, so that no call finds its weights in a cache.
class Operands {
 public:
  Operands(Buffer weights, int64_t num_rows_max, int64_t width_max, size_t misalign);
  void run(const OpTable& table, OpContext& context, const CallShape& shape, WeightFormat format,
           int64_t rows);
  std::span<const std::byte> weights() const { return {weights_.data(), weights_.size()}; }

 private:
  WeightView next_weight(WeightFormat format, int64_t num_out, int64_t num_in);

  Buffer weights_;
  size_t misalign_;
  size_t cursor_ = 0;
  std::vector<float> scales_;
  std::vector<bf16> x_;
  std::vector<bf16> out_;
};

}  // namespace sluice::bench
