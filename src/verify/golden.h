#pragma once
// What the oracle computed for one checkpoint: read from a folder of tools/oracle/record_model.py, checked against the model.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/file.h"
#include "base/status.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace sluice {

/// Logits of the oracle on another way to the same positions: of the prompt path's top ids; and its own best id.
struct OtherPath {
  int64_t first = 0;             // position of row 0
  std::vector<bf16> top_logits;  // [n, top]
  std::vector<int32_t> best;     // [n]

  int64_t num_positions() const { return static_cast<int64_t>(best.size()); }
};

/// The largest logits of some positions, largest first.
struct TopLogits {
  int64_t top = 0;
  std::vector<int32_t> ids;  // [n, top]
  std::vector<bf16> logits;  // [n, top]

  int64_t num_positions() const { return top == 0 ? 0 : static_cast<int64_t>(ids.size()) / top; }
  std::span<const int32_t> ids_at(int64_t i) const {
    return std::span(ids).subspan(static_cast<size_t>(i * top), static_cast<size_t>(top));
  }
  std::span<const bf16> logits_at(int64_t i) const {
    return std::span(logits).subspan(static_cast<size_t>(i * top), static_cast<size_t>(top));
  }
};

/// "layers.3.key.129": a tensor of the state after that many tokens.
struct GoldenState {
  enum class Kind { kRecurrent, kConv, kKey, kValue };
  std::string name;
  Kind kind = Kind::kRecurrent;
  int64_t layer = 0;
  int64_t num_tokens = 0;
  std::vector<int64_t> shape;
  std::vector<float> values;
  /// Relative difference (Frobenius) between the oracle's own paths; 0 where it was not recorded.
  double generation_noise = 0.0;
  double dither_noise = 0.0;
};

struct GoldenCase {
  std::string name;  // the file's, without its ending
  std::vector<int32_t> ids;
  TopLogits prompt;
  std::optional<OtherPath> generation;  // ids behind `first` one at a time through the cache
  std::optional<OtherPath> dither;      // FP8 weights rounded to bf16 stochastically
  std::vector<int32_t> full_positions;
  std::vector<bf16> full_logits;    // [full_positions, vocab_size]
  std::vector<int32_t> greedy_ids;  // free-running continuation
  TopLogits greedy;                 // row i chose greedy_ids[i]
  TopLogits mtp;                    // row p drafts the token at p + 2
  std::vector<GoldenState> states;
};

/// Every op's output for one short prompt, by name ("layers.0.conv"), bf16 values widened.
struct GoldenOps {
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  std::vector<int32_t> ids;
  std::map<std::string, Tensor, std::less<>> tensors;

  const Tensor* find(std::string_view name) const {
    const auto at = tensors.find(name);
    return at == tensors.end() ? nullptr : &at->second;
  }
};

struct Golden {
  std::string oracle;  // versions, device
  std::string checkpoint_name;
  std::string checkpoint_hash;  // see checkpoint_hash.h
  int64_t state_rows = 16;      // every so many key rows of a recurrent state are kept
  std::vector<GoldenCase> cases;
  GoldenOps ops;
};

/// kDataLoss names file, tensor, found and expected: shapes, ids, rankings and finite values are checked.
/// kNotFound when there is no manifest.
Result<Golden> load_golden(const Path& dir, const ModelConfig& config);

}  // namespace sluice
