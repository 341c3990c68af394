#pragma once
// Rows of one session of one GDN layer, and the session itself on one backend: a prompt by the chunk
// form, decode by the recurrent one, in whatever calls a test likes.

#include <memory>
#include <vector>

#include "tests/ops/op_cases.h"

namespace sluice {

/// Inputs of `num_rows` rows from position 0, all zero at first.
struct GdnSequence {
  GdnSequence(const GdnShape& of_shape, int64_t rows);

  bf16* q(int64_t row, int64_t k_head) { return at(row, k_head * shape.head_k_dim); }
  bf16* k(int64_t row, int64_t k_head) {
    return at(row, shape.key_width() + k_head * shape.head_k_dim);
  }
  bf16* v(int64_t row, int64_t v_head) {
    return at(row, 2 * shape.key_width() + v_head * shape.head_v_dim);
  }
  float& g_at(int64_t row, int64_t v_head) { return g[index(row, v_head)]; }
  float& beta_at(int64_t row, int64_t v_head) { return beta[index(row, v_head)]; }
  /// The inputs of rows [first, first + count); state, runs and o left to the caller.
  GdnArgs args(int64_t first, int64_t count) const;

  GdnShape shape;
  int64_t num_rows;
  std::vector<bf16> qkv;
  std::vector<float> g, beta;

 private:
  bf16* at(int64_t row, int64_t column) { return qkv.data() + row * shape.qkv_width() + column; }
  size_t index(int64_t row, int64_t v_head) const {
    return static_cast<size_t>(row * shape.num_v_heads + v_head);
  }
};

class GdnSession {
 public:
  /// At position 0, the state zero. The sequence outlives the session.
  GdnSession(const GdnSequence& sequence, const OpTable& table)
      : sequence_(&sequence),
        table_(table),
        host_(std::make_shared<OpSession>(1)),
        state_(static_cast<size_t>(sequence.shape.state_size())) {}

  /// The next rows in one call.
  void step(int64_t num_rows) { advance(num_rows, table_.gdn_step); }
  /// From a multiple of kGdnChunk only.
  void chunk(int64_t num_rows) { advance(num_rows, table_.gdn_chunk); }

  int64_t position() const { return position_; }
  std::vector<float>& state() { return state_; }
  /// Output of a row gone through, value_width values.
  const bf16* o(int64_t row) const { return o_.data() + row * sequence_->shape.value_width(); }

 private:
  void advance(int64_t num_rows, void (*op)(const GdnArgs&, OpContext&));

  const GdnSequence* sequence_;
  OpTable table_;
  std::shared_ptr<OpSession> host_;
  std::vector<float> state_;
  std::vector<bf16> o_ = {};
  int64_t position_ = 0;
};

}  // namespace sluice
