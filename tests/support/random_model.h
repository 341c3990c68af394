#pragma once

#include <deque>
#include <vector>

#include "model/weights.h"

namespace sluice::testing {

/// A small model of the family with random weights, in memory: for tests that need shapes, not files.
struct RandomModelSpec {
  int64_t hidden_size = 128;
  int64_t intermediate_size = 256;
  int64_t num_layers = 4;  // every fourth is full attention
  int64_t num_attention_heads = 6;
  int64_t num_key_value_heads = 1;
  int64_t linear_num_key_heads = 2;
  int64_t linear_num_value_heads = 6;
  int64_t vocab_size = 256;
  WeightFormat format = WeightFormat::kFp8Block128;
  uint32_t seed = 1;
};

class RandomModel {
 public:
  explicit RandomModel(const RandomModelSpec& spec);
  RandomModel(const RandomModel&) = delete;
  RandomModel& operator=(const RandomModel&) = delete;

  const ModelWeights& weights() const { return weights_; }

 private:
  WeightView linear(int64_t num_out, int64_t num_in, WeightFormat format);
  VectorView vector(int64_t size, float low, float high);
  LayerWeights layer(bool is_gdn, WeightFormat format);
  float uniform(float low, float high);

  uint64_t random_state_;
  ModelWeights weights_;
  // Deques: views stay valid while more is added.
  std::deque<std::vector<bf16>> bf16_storage_;
  std::deque<std::vector<uint8_t>> fp8_storage_;
  std::deque<std::vector<float>> float_storage_;
};

}  // namespace sluice::testing
