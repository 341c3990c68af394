#include "ops/cuda/work_memory.h"

#include <algorithm>

#include "ops/cuda/attention_decode.h"
#include "ops/cuda/device.h"
#include "ops/cuda/gdn_core.h"
#include "ops/cuda/sample.h"

namespace sluice::cuda {
namespace {

/// Hands out aligned places of a buffer, or only counts.
class Places {
 public:
  explicit Places(std::byte* base) : base_(base) {}
  template <typename T>
  void take(size_t num_bytes, T** to) {
    if (base_ != nullptr) *to = reinterpret_cast<T*>(base_ + num_bytes_);
    num_bytes_ += (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  size_t num_bytes() const { return num_bytes_; }

 private:
  static constexpr size_t kAlignment = 256;
  std::byte* base_;
  size_t num_bytes_ = 0;
};

size_t gdn_ticket_bytes(const OpDims& dims) {
  return static_cast<size_t>(kGdnCoreRowsMax * dims.gdn.num_k_heads) * sizeof(int);
}

void take_all(const OpDims& dims, Places* places, WorkMemory* memory) {
  const int64_t rows = kProjectionRowsMax;
  const int64_t attention_width = dims.attention.num_heads * dims.attention.head_dim;
  // The draft head's first projection reads two hidden vectors.
  const int64_t output_cols =
      std::max({dims.gdn.value_width(), attention_width, dims.intermediate, 2 * dims.hidden});
  const auto operand_bytes = [&](int64_t cols) {
    return static_cast<size_t>(rows * cols) * sizeof(uint16_t);
  };
  places->take(projection_partial_bytes(), &memory->partials);
  places->take(projection_ticket_bytes(), &memory->tickets);
  places->take(gdn_ticket_bytes(dims), &memory->gdn_tickets);
  memory->input_bytes = operand_bytes(dims.hidden);
  memory->output_bytes = operand_bytes(output_cols);
  places->take(memory->input_bytes, &memory->input);
  places->take(memory->output_bytes, &memory->output);
  places->take(attention_decode_scratch_bytes(static_cast<int>(rows),
                                              static_cast<int>(dims.attention.num_heads),
                                              static_cast<int>(dims.attention.num_kv_heads),
                                              dims.context_max, device().num_sms),
               &memory->attention);
  const auto vocab_size = static_cast<int>(dims.vocab_size);
  if (vocab_size > 0) {
    places->take(sample_workspace_bytes(kSampleRowsMax, vocab_size), &memory->sampling);
  }
}

}  // namespace

Result<WorkMemory> WorkMemory::create(const OpDims& dims) {
  WorkMemory memory;
  Places counter(nullptr);
  take_all(dims, &counter, &memory);
  const MemoryTable& table = device_memory();
  SLUICE_ASSIGN_OR_RETURN(memory.buffer_,
                          table.allocate(counter.num_bytes(), "work memory", MemoryKind::kPrivate));
  Places places(reinterpret_cast<std::byte*>(memory.buffer_.data()));
  take_all(dims, &places, &memory);
  return memory;
}

void WorkMemory::clear_operands() const {
  device_memory().clear(input, input_bytes);
  device_memory().clear(output, output_bytes);
}

}  // namespace sluice::cuda
