#include "ops/cuda/work_memory.h"

#include <algorithm>

#include "ops/cuda/attention_decode.h"
#include "ops/cuda/attention_prefill.h"
#include "ops/cuda/device.h"
#include "ops/cuda/gdn_core.h"
#include "ops/cuda/gdn_prefill.h"
#include "ops/cuda/sample.h"
#include "ops/cuda/step_block.h"

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

/// Rows of a run up to which its context is shared out over the GPU's multiprocessors, if there is more of it than one of them should read. With more rows
/// there is work enough; beyond, that scratch would grow into gigabytes.
constexpr int64_t kSplitRowsMax = 512;

size_t attention_prefill_bytes_of(const OpDims& dims) {
  const auto rows = static_cast<int>(dims.num_rows_max);
  const auto heads = static_cast<int>(dims.attention.num_heads);
  const auto kv_heads = static_cast<int>(dims.attention.num_kv_heads);
  if (kv_heads == 0) return 0;  // a caller of single ops
  const auto split_rows = static_cast<int>(std::min(dims.num_rows_max, kSplitRowsMax));
  const int num_sms = device().num_sms;
  return std::max(
      attention_prefill_scratch_bytes(rows, kPrefillRunsMax, heads, kv_heads, num_sms),
      attention_prefill_split_bytes(split_rows, 1, heads, kv_heads, dims.context_max, num_sms));
}

void take_operands(int64_t rows, int64_t cols, PrefillMath math, Places* places,
                   OperandBuffer* buffer) {
  buffer->f16_bytes = static_cast<size_t>(rows * cols) * sizeof(uint16_t);
  places->take(buffer->f16_bytes, &buffer->f16);
  if (math != PrefillMath::kFp8) return;
  const int64_t scales = OperandBuffer::fp8_scale_stride(rows) * (cols / kScaleBlock);
  places->take(static_cast<size_t>(rows * cols), &buffer->fp8_values);
  places->take(static_cast<size_t>(scales) * sizeof(float), &buffer->fp8_scales);
}

void take_prefill(const OpDims& dims, Places* places, WorkMemory* memory) {
  places->take(gdn_prefill_scratch_bytes(static_cast<int>(dims.gdn.num_k_heads),
                                         static_cast<int>(dims.gdn.num_v_heads), kGdnPrefillChunks),
               &memory->gdn_prefill);
  memory->attention_prefill_bytes = attention_prefill_bytes_of(dims);
  places->take(memory->attention_prefill_bytes, &memory->attention_prefill);
}

void take_all(const OpDims& dims, Places* places, WorkMemory* memory) {
  const int64_t decode_rows = kProjectionRowsMax;
  const int64_t rows =
      has_prefill_kernels() ? std::max(decode_rows, dims.num_rows_max) : decode_rows;
  const int64_t attention_width = dims.attention.num_heads * dims.attention.head_dim;
  // The draft head's first projection reads two hidden vectors.
  const int64_t output_cols =
      std::max({dims.gdn.value_width(), attention_width, dims.intermediate, 2 * dims.hidden});
  places->take(projection_partial_bytes(), &memory->partials);
  places->take(projection_ticket_bytes(), &memory->tickets);
  places->take(gdn_ticket_bytes(dims), &memory->gdn_tickets);
  take_operands(rows, dims.hidden, dims.prefill_math, places, &memory->input);
  take_operands(rows, output_cols, dims.prefill_math, places, &memory->output);
  places->take(attention_decode_scratch_bytes(static_cast<int>(decode_rows),
                                              static_cast<int>(dims.attention.num_heads),
                                              static_cast<int>(dims.attention.num_kv_heads),
                                              dims.context_max, device().num_sms),
               &memory->attention);
  const auto vocab_size = static_cast<int>(dims.vocab_size);
  if (vocab_size > 0) {
    places->take(sample_workspace_bytes(kSampleRowsMax, vocab_size), &memory->sampling);
  }
  if (has_prefill_kernels()) take_prefill(dims, places, memory);
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
  device_memory().clear(input.f16, input.f16_bytes);
  device_memory().clear(output.f16, output.f16_bytes);
}

}  // namespace sluice::cuda
