#include "state/state_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace sluice {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.layer_types = {LayerType::kLinearAttention, LayerType::kLinearAttention,
                        LayerType::kFullAttention};
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.linear_num_key_heads = 1;
  config.linear_num_value_heads = 2;
  config.linear_key_head_dim = 4;
  config.linear_value_head_dim = 4;
  config.linear_conv_kernel_dim = 4;
  config.mtp_num_hidden_layers = 1;
  return config;
}

StatePool small_pool(int32_t num_slots = 4, int32_t num_pages = 6,
                     int64_t context_max = 4 * kKvPageTokens) {
  return *StatePool::create(small_config(), {num_slots, num_pages, context_max});
}

TEST(StatePool, BytesAreThoseOfThePublishedSizes) {
  // model-spec 3.9, 27B: 144 MiB of recurrent state, 64 KiB of KV a token and 4 KiB more for the drafter.
  ModelConfig config;
  for (int i = 0; i < 64; ++i) {
    config.layer_types.push_back(i % 4 == 3 ? LayerType::kFullAttention
                                            : LayerType::kLinearAttention);
  }
  config.num_hidden_layers = 64;
  config.num_key_value_heads = 4;
  config.head_dim = 256;
  config.linear_num_key_heads = 16;
  config.linear_num_value_heads = 48;
  config.linear_key_head_dim = 128;
  config.linear_value_head_dim = 128;
  config.mtp_num_hidden_layers = 1;
  const StateBytes bytes = state_bytes(config);
  EXPECT_EQ(bytes.recurrent_per_slot, 144 << 20);
  EXPECT_EQ(bytes.kv_per_token, (64 + 4) << 10);
  EXPECT_EQ(bytes.conv_per_slot, int64_t{48} * 10240 * 16 * 2);
}

TEST(StatePool, SlotsAndPagesGoRound) {
  StatePool pool = small_pool();
  Sequence a = *pool.open();
  Sequence b = *pool.open();
  EXPECT_EQ(pool.open().status().code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(pool.reserve(&a, 3 * kKvPageTokens).ok());
  ASSERT_TRUE(pool.reserve(&b, 3 * kKvPageTokens).ok());
  EXPECT_EQ(pool.reserve(&b, 3 * kKvPageTokens + 1).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(b.page_table.size(), 3u);
  const std::array<const Sequence*, 2> open = {&a, &b};
  pool.check_integrity(open);
  pool.close(&a);
  EXPECT_FALSE(a.is_open());
  ASSERT_TRUE(pool.reserve(&b, 4 * kKvPageTokens).ok());
  EXPECT_EQ(pool.reserve(&b, 4 * kKvPageTokens + 1).code(), StatusCode::kResourceExhausted);
  pool.close(&b);
  pool.check_integrity({});
  EXPECT_EQ(pool.num_free_pages(), 6);
  EXPECT_EQ(pool.num_free_slots(), 4);
}

TEST(StatePool, IntegrityNoticesALostSequence) {
  StatePool pool = small_pool();
  const Sequence lost = *pool.open();
  EXPECT_DEATH(pool.check_integrity({}), "check failed");
}

TEST(StatePool, ASlotStartsAtZeroAfterReuse) {
  StatePool pool = small_pool(2);
  Sequence sequence = *pool.open();
  const RecurrentLayerView layer = pool.recurrent_layer(1);
  layer.slot(sequence.slot)[5] = 3.0f;
  pool.close(&sequence);
  sequence = *pool.open();
  EXPECT_EQ(layer.slot(sequence.slot)[5], 0.0f);
  EXPECT_EQ(layer.slot(sequence.checkpoint_slot)[5], 0.0f);
}

TEST(StatePool, CheckpointHoldsRecurrentAndConvState) {
  StatePool pool = small_pool();
  Sequence sequence = *pool.open();
  ASSERT_TRUE(pool.reserve(&sequence, 200).ok());
  pool.advance(&sequence, kGdnChunk, false);
  float* state = pool.recurrent_layer(1).slot(sequence.slot);
  bf16* column = pool.conv_layer(1).column(sequence.slot, kGdnChunk - 1);
  state[7] = 1.5f;
  column[3] = to_bf16(2.5f);
  pool.save_checkpoint(&sequence);
  state[7] = 9.0f;
  column[3] = to_bf16(9.0f);
  pool.advance(&sequence, 10, false);
  EXPECT_EQ(sequence.position, kGdnChunk + 10);
  pool.restore_checkpoint(&sequence);
  EXPECT_EQ(sequence.position, kGdnChunk);
  EXPECT_EQ(state[7], 1.5f);
  EXPECT_EQ(to_float(column[3]), 2.5f);
}

TEST(StatePool, AdvanceFollowsACheckpointTheOpsFilled) {
  StatePool pool = small_pool();
  Sequence sequence = *pool.open();
  ASSERT_TRUE(pool.reserve(&sequence, 300).ok());
  pool.advance(&sequence, 63, true);
  EXPECT_EQ(sequence.checkpoint_position, 0);
  pool.advance(&sequence, 1, true);
  EXPECT_EQ(sequence.checkpoint_position, 64);
  pool.advance(&sequence, 150, true);
  EXPECT_EQ(sequence.checkpoint_position, 192);
  pool.advance(&sequence, 50, false);
  EXPECT_EQ(sequence.checkpoint_position, 192);
}

TEST(StatePool, LayersAndPagesDoNotOverlap) {
  StatePool pool = small_pool();
  std::set<const void*> rows;
  const int64_t num_kv_layers = 2;  // one of the model, one of the drafter
  for (int64_t layer = 0; layer < num_kv_layers; ++layer) {
    const KvLayerView view = pool.kv_layer(layer);
    for (int32_t page = 0; page < 6; ++page) {
      for (int64_t head = 0; head < 2; ++head) {
        for (int64_t token = 0; token < kKvPageTokens; ++token) {
          rows.insert(view.k_row(page, head, token));
          rows.insert(view.v_row(page, head, token));
        }
      }
    }
  }
  EXPECT_EQ(rows.size(), static_cast<size_t>(num_kv_layers * 6 * 2 * kKvPageTokens * 2));
}

}  // namespace
}  // namespace sluice
