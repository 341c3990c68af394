#pragma once

#include <memory>
#include <vector>

#include "decode/prefill.h"
#include "decode/round.h"
#include "forward/forward.h"
#include "tests/support/random_model.h"

namespace sluice::testing {

/// A forward with its pool, for tests.
class Harness {
 public:
  Harness(const ModelWeights& weights, const OpTable& ops, int num_threads,
          int64_t num_rows_max = 128, int64_t context_max = 1024)
      : pool_(num_threads),
        state_(*StatePool::create(
            weights.config,
            {8, static_cast<int32_t>(4 * context_max / kKvPageTokens), context_max})) {
    Result<Forward> forward =
        Forward::create(weights, ops, pool_, {num_rows_max, num_rows_max, context_max});
    SLUICE_CHECK(forward.ok());
    forward_ = std::make_unique<Forward>(*std::move(forward));
  }

  StatePool& state() { return state_; }
  Forward& forward() { return *forward_; }

  Sequence open(int64_t num_tokens) {
    Sequence sequence = *state_.open();
    SLUICE_CHECK(state_.reserve(&sequence, num_tokens).ok());
    return sequence;
  }

 private:
  ThreadPool pool_;
  StatePool state_;
  std::unique_ptr<Forward> forward_;
};

using Logits = std::vector<uint16_t>;

inline Logits copy_row(MatView<const bf16> rows, int64_t row) {
  Logits out;
  for (int64_t i = 0; i < rows.num_cols; ++i) out.push_back(rows.row(row)[i].bits);
  return out;
}

inline std::vector<int32_t> random_ids(int64_t count, int64_t vocab_size, uint32_t seed) {
  std::vector<int32_t> ids;
  uint64_t x = seed;
  for (int64_t i = 0; i < count; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

/// Every backend this machine can run.
inline std::vector<const OpTable*> all_backends() {
  std::vector<const OpTable*> tables = {&ref_ops()};
  for (const CpuIsa isa :
       {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
    const Result<const OpTable*> table = cpu_ops(isa);
    if (table.ok()) tables.push_back(*table);
  }
  return tables;
}

}  // namespace sluice::testing
