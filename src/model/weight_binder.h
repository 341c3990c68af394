#pragma once
// Turns located tensors into checked views. Used by the loader only.

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/checkpoint.h"
#include "model/shard_set.h"
#include "model/tensor_memory.h"
#include "model/tensor_table.h"
#include "model/weights.h"

namespace sluice {

/// A big matrix whose values nobody has looked at yet; `data` is aligned to its elements.
struct UnreadTensor {
  LocatedTensor tensor;
  std::span<const std::byte> data;
};

/// The first failure sticks: later calls return empty views, and status() tells it. So the code that fills the structs
/// reads like the structs.
class WeightBinder {
 public:
  WeightBinder(const ModelConfig& config, const ShardSet& shards, bool has_mtp,
               TensorMemory* memory, Diagnostics* diagnostics);

  /// `module`.weight, BF16, or F8_E4M3 with `module`.weight_scale_inv.
  WeightView linear(const std::string& module);
  /// A small tensor, widened; every value is finite.
  VectorView vector(const std::string& name);
  MatView<const bf16> embedding(const std::string& name);

  const Status& status() const { return status_; }
  /// Of the zero scales seen: a warning, if any.
  void finish();
  bool was_bound(const std::string& name) const { return bound_.count(name) != 0; }
  /// What was bound, with the stored dtypes, in the order of the table.
  std::vector<TensorSpec> bound_tensors() const;
  const std::vector<UnreadTensor>& unread() const { return unread_; }

 private:
  LocatedTensor locate(const std::string& name, std::initializer_list<Dtype> dtypes,
                       const std::vector<int64_t>* shape);
  const void* aligned_data(const LocatedTensor& tensor);
  std::span<float> widened(const LocatedTensor& tensor);
  const float* scales(const std::string& weight_name, const TensorSpec& weight);
  void check_scales(const LocatedTensor& tensor, VectorView values);
  const TensorSpec& spec(const std::string& name) const;
  void fail(Status status);
  bool failed() const { return !status_.ok(); }

  const ShardSet& shards_;
  TensorMemory* memory_;
  Diagnostics* diagnostics_;
  std::vector<TensorSpec> table_;
  std::unordered_map<std::string, size_t> places_;
  std::unordered_set<std::string> bound_;
  std::vector<UnreadTensor> unread_;
  size_t num_zero_scales_ = 0;
  Status status_;
};

}  // namespace sluice
