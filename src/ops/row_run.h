#pragma once
// How a step's rows meet the state: consecutive rows of one session form a run.

#include <cstdint>
#include <span>

#include "base/bf16.h"

namespace sluice {

/// Tokens a KV page holds.
inline constexpr int64_t kKvPageTokens = 256;
/// Pages that hold so many tokens of one sequence.
constexpr int64_t pages_for(int64_t num_tokens) {
  return (num_tokens + kKvPageTokens - 1) / kKvPageTokens;
}
/// Columns of the conv ring: the input of position p lives at p mod kConvRingColumns. A rollback of
/// up to kConvRingColumns - 3 positions therefore needs no copy, only a smaller position.
inline constexpr int64_t kConvRingColumns = 16;
inline constexpr int64_t kConvTaps = 4;
/// The chunk form's grid, anchored at position 0 of the sequence.
inline constexpr int64_t kGdnChunk = 64;

inline constexpr int32_t kNoSlot = -1;

/// Rows [first_row, first_row + num_rows) of the step hold positions [position, position +
/// num_rows) of one session.
struct RowRun {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t position = 0;
  /// Recurrent and conv state of this session; read at `position`, left at `position + num_rows`.
  int32_t slot = kNoSlot;
  /// gdn_chunk and conv1d also write here the state as it was at the last multiple of kGdnChunk in
  /// (position, position + num_rows]; untouched when there is none. kNoSlot: not wanted.
  int32_t checkpoint_slot = kNoSlot;
  /// Physical page of every kKvPageTokens tokens; covers at least position + num_rows tokens.
  const int32_t* page_table = nullptr;
};

/// A token id that stands for what the previous step drew for its logit row `i`: a step may then begin
/// before the host has seen that token (i < kDrawnMax). Only for backends that draw (OpTable::open_state).
/// Where that was kNoToken or one of its draw's stop_ids, the whole run is not run: its rows are padding, its
/// state stays as it was, and its logit rows draw kNoToken.
inline constexpr int32_t kDrawnMax = 64;
constexpr int32_t drawn_token(int32_t i) {
  return -1 - i;
}
/// In place of a drawn id where a logit was NaN or positive infinity, or where nothing was run.
inline constexpr int32_t kNoToken = -1;
/// Steps that may be under way when another is started.
inline constexpr int32_t kStepsAheadMax = 3;

/// How a backend draws a logit row's next token: fields as in SamplingParams (decode/), whose validate() they have passed. Penalties are
/// for the host.
struct DrawRequest {
  float temperature = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  /// log(min_p); -infinity where min_p is 0.
  double log_min_p = 0.0;
  uint64_t seed = 0;
  /// Of the drawn token.
  int64_t position = 0;
  /// Of so many most likely ids, and of the drawn one, the log probabilities are wanted too. -1: of none.
  int32_t num_logprobs = -1;
  /// Behind one of these nothing is run that names the draw by drawn_token; at most kStopIdsMax.
  std::span<const int32_t> stop_ids = {};
};
inline constexpr size_t kStopIdsMax = 8;
inline constexpr int32_t kLogprobsMax = 20;

/// What a draw that asks for log probabilities tells: the logits as they are, before temperature and cuts, over defined ids.
struct DrawnLogits {
  struct Top {
    int32_t id;
    float logit;
  };
  /// Of all ids: a logit less this is its log probability.
  double log_sum_exp;
  float drawn;  // the drawn id's logit
  /// The most likely, by falling logit, lower id first; kNoToken where there are no more. As many as asked for.
  Top tops[kLogprobsMax];
};

/// Says which steps are made of the same calls: those of one Forward with equal keys and equally many
/// rows and logit rows (both padded).
struct StepKey {
  enum class Kind { kNone, kForward, kDraft };
  /// kNone: the step is not to be recorded.
  Kind kind = Kind::kNone;
  /// Buffers of the caller that the calls name: state slots, KV pages, a draft's hidden vectors.
  const void* recurrent = nullptr;
  const void* pages = nullptr;
  const void* hidden = nullptr;
  /// What happens to the logits.
  bool draws = false;
  bool exports_logits = true;
  /// Of the draws.
  int32_t num_defined = 0;

  bool operator==(const StepKey&) const = default;
};

/// What changes from step to step.
struct StepRows {
  /// One id a row.
  std::span<const int32_t> token_ids;
  /// Cover the rows in order.
  std::span<const RowRun> runs;
  /// Rows whose logits are wanted.
  std::span<const int32_t> logit_rows;
  /// Rows that the ops' views have: as many as ids, or up to OpTable::padded_rows of them; what lies
  /// behind the ids is padding, which belongs to no run. Logit rows likewise.
  int64_t num_rows = 0;
  int64_t num_logit_rows = 0;
  StepKey key = {};
  /// Rows of prompts, however few: a backend may have kernels of their own for them, whose bits then hold at any cut of a prompt. Never padded.
  bool is_prefill = false;
  /// One a logit row, or none.
  std::span<const DrawRequest> draws = {};
  /// Nothing is run and there are no ids: a backend that records steps records the one of this key and these numbers of rows.
  bool is_rehearsal = false;
};

/// One attention layer's keys and values inside the page pool.
/// Page p holds k at data + p * page_stride, as [num_kv_heads, kKvPageTokens, head_dim], and v
/// right behind it, alike.
struct KvLayerView {
  bf16* data = nullptr;
  int64_t page_stride = 0;  // elements
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  bf16* k_row(int32_t page, int64_t head, int64_t token_in_page) const {
    return data + page * page_stride + (head * kKvPageTokens + token_in_page) * head_dim;
  }
  bf16* v_row(int32_t page, int64_t head, int64_t token_in_page) const {
    return k_row(page, head, token_in_page) + num_kv_heads * kKvPageTokens * head_dim;
  }
};

/// One GDN layer's recurrent state in the slot pool: slot s at data + s * slot_stride,
/// [num_v_heads, head_k_dim, head_v_dim] fp32, last dim contiguous.
struct RecurrentLayerView {
  float* data = nullptr;
  int64_t slot_stride = 0;  // elements
  float* slot(int32_t s) const { return data + s * slot_stride; }
};

/// One GDN layer's conv ring in the slot pool: slot s at data + s * slot_stride, [kConvRingColumns,
/// num_channels] raw (pre-conv) bf16 inputs by position mod kConvRingColumns. Positions before 0
/// count as zero and are never read.
struct ConvLayerView {
  bf16* data = nullptr;
  int64_t slot_stride = 0;  // elements
  int64_t num_channels = 0;
  bf16* column(int32_t slot, int64_t position) const {
    return data + slot * slot_stride + (position % kConvRingColumns) * num_channels;
  }
};

}  // namespace sluice
