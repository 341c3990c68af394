// The bounds that size a backend's scratch hold, and what a backend cannot do it refuses by name.
#include "ops/cpu/cpu_kernels.h"
#include "tests/ops/attention_case.h"
#include "tests/ops/gdn_case.h"

namespace sluice {
namespace {

OpDims dims_of(const AttnCase& p, int32_t context, int num_threads) {
  return {.hidden = 256,
          .intermediate = 256,
          .vocab_size = 256,
          .gdn = {.num_k_heads = 1, .num_v_heads = 2},
          .attention = {.num_heads = p.heads, .num_kv_heads = p.kv_heads, .head_dim = p.head_dim},
          .num_rows_max = 64,
          .context_max = context,
          .num_threads = num_threads};
}

TEST(Scratch, AttentionStaysWithinItsBound) {
  for (const OpTable* backend : tested_backends(&OpTable::attention)) {
    for (const AttnRun run : {AttnRun{0, 1}, {0, 40}, {255, 1}, {256, 33}, {1099, 1}, {1000, 20}}) {
      const AttnCase params{.heads = 6, .kv_heads = 1, .runs = {run}};
      const OpCase c = attention_case(params);
      for (const int num_threads : {1, 2, 5}) {
        const OpDims dims = dims_of(params, run.position + run.rows, num_threads);
        EXPECT_LE(scratch_peak(c, *backend, num_threads), cpu_attention_scratch_bytes(dims))
            << backend->name << ", " << c.name;
        // A session that may grow longer needs no less.
        const OpDims longer = dims_of(params, 5000, num_threads);
        EXPECT_LE(cpu_attention_scratch_bytes(dims), cpu_attention_scratch_bytes(longer));
      }
    }
  }
}

TEST(Scratch, GdnStaysWithinItsBound) {
  const OpCase c = gdn_case({.k_heads = 1, .v_heads = 2, .runs = {{0, 70}}}, GdnForm::kChunk);
  for (const OpTable* backend : tested_backends(&OpTable::gdn_chunk)) {
    for (const int num_threads : {1, 2, 5}) {
      EXPECT_LE(scratch_peak(c, *backend, num_threads),
                cpu_gdn_scratch_bytes(dims_of({.heads = 2, .kv_heads = 1}, 70, num_threads)))
          << backend->name;
    }
  }
}

TEST(Shapes, WhatNoKernelCanDoIsRefusedByName) {
  const auto refused = [](const OpDims& dims) {
    const Status status = tested_backends().back()->check_shape(dims);
    return status.code() == StatusCode::kUnsupported ? status.message() : "";
  };
  OpDims dims = dims_of({.heads = 6, .kv_heads = 1}, 100, 1);
  EXPECT_EQ(refused(dims), "");
  dims.attention.head_dim = 96;
  EXPECT_NE(refused(dims).find("head_dim is 96"), std::string::npos) << refused(dims);
  dims.attention.head_dim = 512;
  EXPECT_NE(refused(dims).find("head_dim is 512"), std::string::npos) << refused(dims);
  dims.attention = {.num_heads = 6, .num_kv_heads = 4};
  EXPECT_NE(refused(dims).find("6 attention heads"), std::string::npos) << refused(dims);
  dims = dims_of({.heads = 6, .kv_heads = 1}, 100, 1);
  dims.gdn = {.num_k_heads = 1, .num_v_heads = 4, .head_v_dim = 8};
  EXPECT_NE(refused(dims).find("linear_value_head_dim is 8"), std::string::npos) << refused(dims);
  dims.gdn = {.num_k_heads = 2, .num_v_heads = 3};
  EXPECT_NE(refused(dims).find("3 GDN value heads"), std::string::npos) << refused(dims);
}

}  // namespace
}  // namespace sluice
