#include "engine/placed_weights.h"

#include <chrono>

#include "model/weights_visit.h"

namespace sluice {
namespace {

/// Hands out places of one arena, or only counts what it would need.
class Placer {
 public:
  explicit Placer(const OpTable& ops) : ops_(ops) {}
  Placer(const OpTable& ops, Arena* arena, size_t num_bytes_total, const OnPlacing& on_placing)
      : ops_(ops), arena_(arena), num_bytes_total_(num_bytes_total), on_placing_(on_placing) {}

  template <typename T>
  const T* place(const T* from, size_t count) {
    const size_t bytes = count * sizeof(T);
    num_bytes_ += bytes + Arena::kAlignment;
    if (arena_ == nullptr || bytes == 0) return from;
    T* to = arena_->take<T>(static_cast<int64_t>(count));
    ops_.memory->upload(to, from, bytes);
    return to;
  }

  WeightView place(const WeightView& from) {
    const size_t bytes = ops_.weight_bytes(from);
    num_bytes_ += bytes + Arena::kAlignment;
    if (arena_ == nullptr) return from;
    auto* to = arena_->take<std::byte>(static_cast<int64_t>(bytes));
    const WeightView placed = ops_.place_weight(from, to);
    if (on_placing_) on_placing_({num_bytes_, num_bytes_total_});
    return placed;
  }
  size_t num_bytes() const { return num_bytes_; }

 private:
  const OpTable& ops_;
  Arena* arena_ = nullptr;
  size_t num_bytes_ = 0;
  size_t num_bytes_total_ = 0;
  OnPlacing on_placing_;
};

/// embed_tokens is read by rows and stays as it is; an lm_head tied to it is a projection and gets a place of its own.
void place_all(ModelWeights* weights, Placer* placer) {
  for_each_tensor(
      *weights, [&](WeightView& w) { w = placer->place(w); },
      [&](VectorView& v) { v = VectorView(placer->place(v.data(), v.size()), v.size()); });
  MatView<const bf16>& embed = weights->embed_tokens;
  SLUICE_CHECK_EQ(embed.stride, embed.num_cols);
  embed.data = placer->place(embed.data, static_cast<size_t>(embed.num_rows * embed.num_cols));
  weights->lm_head = placer->place(weights->lm_head);
}

}  // namespace

Result<PlacedWeights> PlacedWeights::create(const ModelWeights& weights, const OpTable& ops,
                                            const OnPlacing& on_placing) {
  PlacedWeights placed;
  placed.weights_ = weights;
  if (ops.memory->is_host) return placed;
  const auto start = std::chrono::steady_clock::now();
  ModelWeights counted = weights;
  Placer counter(ops);
  place_all(&counted, &counter);
  const size_t num_bytes = counter.num_bytes();
  SLUICE_ASSIGN_OR_RETURN(Buffer buffer,
                          ops.memory->allocate(num_bytes, "weights", MemoryKind::kPrivate));
  SLUICE_RETURN_IF_ERROR(ops.begin_placing());
  Arena arena(std::move(buffer));
  Placer placer(ops, &arena, num_bytes, on_placing);
  place_all(&placed.weights_, &placer);
  ops.end_placing();
  placed.buffer_ = arena.release();
  placed.seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return placed;
}

}  // namespace sluice
