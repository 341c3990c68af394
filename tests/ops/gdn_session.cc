#include "tests/ops/gdn_session.h"

namespace sluice {

GdnSequence::GdnSequence(const GdnShape& of_shape, int64_t rows)
    : shape(of_shape),
      num_rows(rows),
      qkv(static_cast<size_t>(rows * of_shape.qkv_width())),
      g(static_cast<size_t>(rows * of_shape.num_v_heads)),
      beta(g.size()) {}

GdnArgs GdnSequence::args(int64_t first, int64_t count) const {
  const int64_t heads = shape.num_v_heads;
  GdnArgs args;
  args.shape = shape;
  args.qkv = {qkv.data() + first * shape.qkv_width(), count, shape.qkv_width()};
  args.g = {g.data() + first * heads, count, heads};
  args.beta = {beta.data() + first * heads, count, heads};
  return args;
}

void GdnSession::advance(int64_t num_rows, void (*op)(const GdnArgs&, OpContext&)) {
  const int64_t width = sequence_->shape.value_width();
  o_.resize(static_cast<size_t>((position_ + num_rows) * width));
  const RowRun run{.num_rows = static_cast<int32_t>(num_rows),
                   .position = static_cast<int32_t>(position_),
                   .slot = 0};
  GdnArgs args = sequence_->args(position_, num_rows);
  args.runs = {&run, 1};
  args.state = {.data = state_.data(), .slot_stride = sequence_->shape.state_size()};
  args.o = {o_.data() + position_ * width, num_rows, width};
  OpContext context = host_->context();
  op(args, context);
  position_ += num_rows;
}

}  // namespace sluice
