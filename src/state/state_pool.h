#pragma once
// Everything a session leaves behind between steps: recurrent and conv state in slots, keys and values in pages.
// All of it is taken at start-up; afterwards only free lists move.

#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/status.h"
#include "model/config.h"
#include "ops/gdn.h"
#include "ops/memory.h"
#include "ops/row_run.h"

namespace sluice {

/// The ops' view of a model's GDN layers.
GdnShape gdn_shape(const ModelConfig& config);

struct StateLimits {
  /// A sequence holds two slots: the live state and the checkpoint at the last multiple of kGdnChunk.
  int32_t num_slots = 2;
  int32_t num_pages = 1;
  /// Longest sequence in tokens; bounds a page table.
  int64_t context_max = kKvPageTokens;
};

/// Bytes by kind, as StatePool::create takes them (`info` prints them too).
struct StateBytes {
  int64_t recurrent_per_slot = 0;
  int64_t conv_per_slot = 0;
  int64_t page = 0;
  int64_t kv_per_token = 0;  // page / kKvPageTokens; the drafter's layer included
};
StateBytes state_bytes(const ModelConfig& config);

/// One session's place in the pool: a plain value, moved between the session table and the pool.
struct Sequence {
  int32_t slot = kNoSlot;
  int32_t checkpoint_slot = kNoSlot;
  /// Tokens the live state has advanced over.
  int64_t position = 0;
  /// Tokens the checkpoint has advanced over; a multiple of kGdnChunk.
  int64_t checkpoint_position = 0;
  std::vector<int32_t> page_table;

  bool is_open() const { return slot != kNoSlot; }
};

class StatePool {
 public:
  /// kResourceExhausted with sizes when the memory is not to be had.
  static Result<StatePool> create(const ModelConfig& config, const StateLimits& limits,
                                  const MemoryTable& memory = host_memory());

  /// An empty sequence at position 0 with zero state. kResourceExhausted when no slots are free.
  Result<Sequence> open();
  /// Gives slots and pages back. The sequence is closed afterwards.
  void close(Sequence* sequence);

  /// Makes room for positions below `num_tokens`. On an error nothing changes.
  Status reserve(Sequence* sequence, int64_t num_tokens);
  /// The step's view of the next `num_rows` positions. Pre: they are reserved.
  RowRun next_run(const Sequence& sequence, int32_t first_row, int32_t num_rows) const;
  /// The state now stands `num_rows` further. `checkpoint_filled` says that the step's ops wrote the
  /// checkpoint slot (the chunk form does, for every multiple of kGdnChunk it reaches).
  void advance(Sequence* sequence, int64_t num_rows, bool checkpoint_filled);

  /// Copies the live state over the checkpoint. Pre: position % kGdnChunk == 0.
  void save_checkpoint(Sequence* sequence);
  /// Goes back to the checkpoint; keys and values behind it are written again by the rows that follow.
  void restore_checkpoint(Sequence* sequence);

  RecurrentLayerView recurrent_layer(int64_t gdn_layer_idx) const;
  ConvLayerView conv_layer(int64_t gdn_layer_idx) const;
  /// The drafter's layer follows the model's: index num_full_attention_layers.
  KvLayerView kv_layer(int64_t attention_layer_idx) const;

  /// Where all recurrent states and all pages lie: what a recorded step names of this pool (StepKey).
  const void* slots_place() const { return recurrent_.data(); }
  const void* pages_place() const { return pages_.data(); }

  int64_t num_free_slots() const { return static_cast<int64_t>(free_slots_.size()); }
  int64_t num_free_pages() const { return static_cast<int64_t>(free_pages_.size()); }
  const StateLimits& limits() const { return limits_; }
  /// Where slots and pages live.
  const MemoryTable& memory() const { return *memory_; }

  /// Every slot and page is either free or owned by exactly one of `open`; tables fit. Stops the process when not.
  void check_integrity(std::span<const Sequence* const> open) const;

 private:
  StatePool() = default;
  void clear_slot(int32_t slot);
  void copy_slot(int32_t from, int32_t to);

  ModelConfig config_;
  StateLimits limits_;
  const MemoryTable* memory_ = nullptr;
  GdnShape gdn_;
  int64_t num_gdn_layers_ = 0;
  int64_t num_kv_layers_ = 0;
  Buffer recurrent_;
  Buffer conv_;
  Buffer pages_;
  std::vector<int32_t> free_slots_;
  std::vector<int32_t> free_pages_;
};

}  // namespace sluice
