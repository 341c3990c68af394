#pragma once
// Attention whose output is its probabilities: keys make every score an exactly known bf16, values are
// one-hot by position and the gate is open.

#include <span>
#include <vector>

#include "tests/ops/op_cases.h"

namespace sluice {

/// The scores of one query head, drawn for a context of n positions; a row sees those up to its own.
struct ScorePattern {
  const char* name;
  double (*score)(int64_t j, int64_t n, Rng& rng);
};
std::span<const ScorePattern> score_patterns();

struct OneHotContext {
  int64_t length;
  int64_t num_rows = 1;  // the last ones of the context
};

/// One query head a pattern, all of one kv head: a query looks at one dim of the keys only.
class OneHotAttention {
 public:
  static constexpr int64_t kDim = 256;

  explicit OneHotAttention(const OneHotContext& context);

  int64_t num_heads() const { return static_cast<int64_t>(scores_.size()); }
  int64_t num_seen(int64_t row) const { return context_.length - context_.num_rows + row + 1; }
  std::span<const double> scores(int64_t row, int64_t head) const {
    return std::span(scores_[static_cast<size_t>(head)]).first(static_cast<size_t>(num_seen(row)));
  }
  /// p[row * num_heads + head][position], positions the row does not see included, from as many calls
  /// as it takes to give every position a value dim.
  std::vector<std::vector<bf16>> probabilities(const OpTable& table);

 private:
  KvLayerView kv();
  void set_values(int64_t first, int64_t count, bf16 x);
  std::vector<bf16> run(const OpTable& table);

  OneHotContext context_;
  std::vector<int32_t> table_;  // pages, in descending order
  std::vector<bf16> cells_;
  std::vector<bf16> q_, qg_;
  std::vector<std::vector<double>> scores_;  // [head][position]
};

}  // namespace sluice
