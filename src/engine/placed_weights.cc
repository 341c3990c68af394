#include "engine/placed_weights.h"

#include "model/weights_visit.h"

namespace sluice {
namespace {

size_t matrix_bytes(const WeightView& w) {
  const auto values = static_cast<size_t>(w.num_out) * static_cast<size_t>(w.num_in);
  return w.format == WeightFormat::kBf16 ? values * sizeof(bf16) : values;
}

size_t num_scales(const WeightView& w) {
  if (w.scales == nullptr) return 0;
  const int64_t rows = (w.num_out + kFp8BlockSize - 1) / kFp8BlockSize;
  return static_cast<size_t>(rows * w.scale_cols());
}

/// Hands out places of one arena, or only counts what it would need.
class Placer {
 public:
  Placer(const MemoryTable& memory, Arena* arena) : memory_(memory), arena_(arena) {}

  template <typename T>
  const T* place(const T* from, size_t count) {
    const size_t bytes = count * sizeof(T);
    num_bytes_ += bytes + Arena::kAlignment;
    if (arena_ == nullptr || bytes == 0) return from;
    T* to = arena_->take<T>(static_cast<int64_t>(count));
    memory_.upload(to, from, bytes);
    return to;
  }
  size_t num_bytes() const { return num_bytes_; }

 private:
  const MemoryTable& memory_;
  Arena* arena_;
  size_t num_bytes_ = 0;
};

void place_matrix(WeightView* w, Placer* placer) {
  w->data = placer->place(static_cast<const std::byte*>(w->data), matrix_bytes(*w));
  if (w->scales != nullptr) w->scales = placer->place(w->scales, num_scales(*w));
}

void place_all(ModelWeights* weights, Placer* placer) {
  for_each_tensor(
      *weights, [&](WeightView& w) { place_matrix(&w, placer); },
      [&](VectorView& v) { v = VectorView(placer->place(v.data(), v.size()), v.size()); });
  const bool is_tied = weights->lm_head.data == weights->embed_tokens.data;
  MatView<const bf16>& embed = weights->embed_tokens;
  SLUICE_CHECK_EQ(embed.stride, embed.num_cols);
  embed.data = placer->place(embed.data, static_cast<size_t>(embed.num_rows * embed.num_cols));
  if (is_tied) {
    weights->lm_head.data = embed.data;
  } else {
    place_matrix(&weights->lm_head, placer);
  }
}

}  // namespace

Result<PlacedWeights> PlacedWeights::create(const ModelWeights& weights,
                                            const MemoryTable& memory) {
  PlacedWeights placed;
  placed.weights_ = weights;
  if (memory.is_host) return placed;
  ModelWeights counted = weights;
  Placer counter(memory, nullptr);
  place_all(&counted, &counter);
  SLUICE_ASSIGN_OR_RETURN(Buffer buffer,
                          memory.allocate(counter.num_bytes(), "weights", MemoryKind::kPrivate));
  Arena arena(std::move(buffer));
  Placer placer(memory, &arena);
  place_all(&placed.weights_, &placer);
  placed.buffer_ = arena.release();
  return placed;
}

}  // namespace sluice
