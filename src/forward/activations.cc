#include "forward/activations.h"

namespace sluice {
namespace {

/// Calls fn(view member, width) for every buffer that has a row for each row of the step.
template <typename Fn>
void for_each_row_buffer(Activations& act, const ModelConfig& c, Fn&& fn) {
  const int64_t core = std::max(c.linear_value_dim(), c.attention_dim());
  fn(act.x, c.hidden_size);
  fn(act.h, c.hidden_size);
  fn(act.qkv, c.conv_dim());
  fn(act.conv, c.conv_dim());
  fn(act.z, c.linear_value_dim());
  fn(act.a, c.linear_num_value_heads);
  fn(act.b, c.linear_num_value_heads);
  fn(act.g, c.linear_num_value_heads);
  fn(act.beta, c.linear_num_value_heads);
  fn(act.core, core);
  fn(act.qg, 2 * c.attention_dim());
  fn(act.k, c.key_value_dim());
  fn(act.v, c.key_value_dim());
  fn(act.q, c.attention_dim());
  fn(act.mlp, c.intermediate_size);
  fn(act.hidden, c.hidden_size);
  fn(act.mtp_input, 2 * c.hidden_size);
}

template <typename T>
size_t bytes_of(const MatView<T>&, int64_t rows, int64_t width) {
  return static_cast<size_t>(rows * width) * sizeof(T) + Arena::kAlignment;
}

}  // namespace

Result<Activations::Buffers> Activations::create_buffers(const ModelConfig& config,
                                                         int64_t num_rows_max,
                                                         int64_t num_logit_rows_max,
                                                         const MemoryTable& memory) {
  Activations act;
  size_t bytes = bytes_of(act.logit_input, num_logit_rows_max, config.hidden_size);
  for_each_row_buffer(act, config, [&](auto& view, int64_t width) {
    bytes += bytes_of(view, num_rows_max, width);
  });
  const size_t logit_bytes = bytes_of(act.logits, num_logit_rows_max, config.vocab_size);
  Buffers buffers;
  SLUICE_ASSIGN_OR_RETURN(
      Buffer rows, memory.allocate(bytes + logit_bytes, "activations", MemoryKind::kPrivate));
  buffers.rows = Arena(std::move(rows));
  buffers.has_host_logits = !memory.is_host;
  if (!buffers.has_host_logits) return buffers;
  SLUICE_ASSIGN_OR_RETURN(Buffer logits,
                          memory.allocate(logit_bytes, "logits", MemoryKind::kShared));
  buffers.host_logits = Arena(std::move(logits));
  return buffers;
}

Activations Activations::take(Buffers* buffers, const ModelConfig& config, int64_t num_rows_max,
                              int64_t num_logit_rows_max) {
  Activations act;
  const auto take_view = []<typename T>(Arena* arena, int64_t rows, int64_t width, MatView<T>* to) {
    *to = MatView<T>(arena->take<T>(rows * width), rows, width);
  };
  for_each_row_buffer(act, config, [&](auto& view, int64_t width) {
    take_view(&buffers->rows, num_rows_max, width, &view);
  });
  take_view(&buffers->rows, num_logit_rows_max, config.hidden_size, &act.logit_input);
  take_view(&buffers->rows, num_logit_rows_max, config.vocab_size, &act.logits);
  act.host_logits = act.logits;
  if (buffers->has_host_logits) {
    take_view(&buffers->host_logits, num_logit_rows_max, config.vocab_size, &act.host_logits);
  }
  return act;
}

Activations Activations::first_rows(int64_t num_rows, int64_t num_logit_rows) const {
  Activations cut = *this;
  const auto cut_view = [num_rows](auto& view, int64_t) { view = view.rows(0, num_rows); };
  for_each_row_buffer(cut, ModelConfig(), cut_view);
  cut.logit_input = logit_input.rows(0, num_logit_rows);
  cut.logits = logits.rows(0, num_logit_rows);
  cut.host_logits = host_logits.rows(0, num_logit_rows);
  return cut;
}

}  // namespace sluice
