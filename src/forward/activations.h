#pragma once

#include "base/arena.h"
#include "base/bf16.h"
#include "base/status.h"
#include "base/view.h"
#include "model/config.h"
#include "ops/memory.h"

namespace sluice {

/// Every buffer of one step, [num_rows_max, width], taken once. Rows are those of the backend's views, padding included. Names are the model's.
struct Activations {
  MatView<bf16> x;          // residual stream
  MatView<bf16> h;          // normed input of a mixer or MLP
  MatView<bf16> qkv;        // in_proj_qkv's output
  MatView<bf16> conv;       // after conv1d and SiLU
  MatView<bf16> z;          // in_proj_z's output
  MatView<bf16> a, b;       // in_proj_a's and in_proj_b's
  MatView<float> g, beta;   // gates
  MatView<bf16> core;       // mixer output before the last linear (GDN or attention)
  MatView<bf16> qg, k, v;   // q_proj's (queries and gates), k_proj's, v_proj's outputs
  MatView<bf16> q;          // queries after norm and RoPE
  MatView<bf16> mlp;        // gate_up's output
  MatView<bf16> hidden;     // after the final norm
  MatView<bf16> mtp_input;  // [embedding half, hidden half] of mtp.fc
  MatView<bf16> logit_input;
  MatView<bf16> logits;
  MatView<bf16>
      host_logits;  // where the host reads them; `logits` itself on backends that run there

  struct Buffers {
    Arena rows;  // the backend's own
    /// Shared, where the host cannot read the backend's own.
    bool has_host_logits = false;
    Arena host_logits;
  };
  static Result<Buffers> create_buffers(const ModelConfig& config, int64_t num_rows_max,
                                        int64_t num_logit_rows_max, const MemoryTable& memory);
  static Activations take(Buffers* buffers, const ModelConfig& config, int64_t num_rows_max,
                          int64_t num_logit_rows_max);
  /// The same buffers, each cut to its first rows.
  Activations first_rows(int64_t num_rows, int64_t num_logit_rows) const;
};

}  // namespace sluice
