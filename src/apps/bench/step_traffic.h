#pragma once
// Bytes that a step cannot avoid moving, counted from the weights as they lie in memory and from the config.

#include "model/weights.h"

namespace sluice {

/// A weight as the CUDA backend keeps it, read once: codes, and 4 bytes a scale or row factor.
int64_t packed_weight_bytes(const WeightView& weight);

/// All that every step reads, whatever its rows.
int64_t all_weight_bytes(const ModelWeights& weights);

/// Of all layers, for so many sessions: recurrent state read and written; conv inputs read (three a channel) and one a row written.
int64_t state_traffic(const ModelConfig& config, int64_t num_sessions, int64_t num_rows);
/// Keys and values of `context` positions of each session, read once however many rows look at them.
int64_t kv_traffic(const ModelConfig& config, int64_t num_sessions, int64_t context);

}  // namespace sluice
