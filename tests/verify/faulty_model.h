#pragma once
// A right model made wrong in one place: the negative controls of verify. No switch for any of this exists outside the tests.

#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/backend.h"
#include "model/weights.h"

namespace sluice::testing {

/// A copy of a model's views whose parts can be replaced; owns what replaces them.
class EditedModel {
 public:
  EditedModel(const ModelWeights& right_weights, const Backend& right_backend)
      : weights(right_weights), ops_(*right_backend.ops), backend_(right_backend) {
    backend_.ops = &ops_;
  }
  EditedModel(const EditedModel&) = delete;
  EditedModel& operator=(const EditedModel&) = delete;

  ModelWeights weights;
  OpTable& ops() { return ops_; }
  Backend& backend() { return backend_; }

  /// Calls edit(view) for every matrix of the layers, the draft head's included.
  void for_each_linear(const std::function<void(WeightView&)>& edit);
  /// Every zero-centred norm: weights that stand for 1 + w.
  void for_each_centred_norm(const std::function<void(VectorView&)>& edit);

  VectorView keep(std::vector<float> values);
  /// The same values as bf16, rounded as the oracle's dequantisation does.
  WeightView as_bf16(const WeightView& weight);
  bf16* mutable_bf16(WeightView* weight);

 private:
  OpTable ops_;
  Backend backend_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<bf16>> bf16s_;
};

struct Fault {
  std::string_view name;
  std::function<void(EditedModel&)> apply;
  /// Right in every value, wrong only in its promise: the bit-identity battery has to see it.
  bool breaks_identity = false;
};

/// What ports of this family get wrong.
std::span<const Fault> faults();

}  // namespace sluice::testing
