#include "tokenizer/chunk_table.h"

#include <algorithm>
#include <bit>

namespace sluice {

void ChunkTable::reserve(size_t num_chunks) {
  slots_.assign(std::bit_ceil(std::max<size_t>(num_chunks * 2, 16)), {});
  mask_ = slots_.size() - 1;
}

void ChunkTable::insert(std::string_view chunk, int32_t id) {
  const ChunkKey key = chunk_key(chunk, chunk.size());
  size_t slot = key.hash & mask_;
  while (slots_[slot].id >= 0) slot = (slot + 1) & mask_;
  slots_[slot] = {key.value, id, static_cast<uint32_t>(chunk.size())};
}

void ChunkCache::clear() {
  entries_.assign(kNumEntries, Entry{});
}

void ChunkCache::insert(std::string_view chunk, uint64_t hash, std::span<const int32_t> ids) {
  if (chunk.size() > kBytesMax || ids.size() > kIdsMax) return;
  Entry& e = entries_[hash % kNumEntries];
  std::ranges::copy(chunk, e.bytes);
  std::ranges::copy(ids, e.ids);
  e.length = static_cast<uint8_t>(chunk.size());
  e.num_ids = static_cast<uint8_t>(ids.size());
}

}  // namespace sluice
