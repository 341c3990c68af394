#include "apps/bench/bench_model.h"

#include <cmath>

#include "base/random_values.h"
#include "decode/draw_request.h"
#include "verify/model_runner.h"

namespace sluice {
namespace {

// Sizes of a state in use: keys and values as normed projections have them.
constexpr float kKvSigma = 1.0f;
constexpr float kConvSigma = 1.0f;
constexpr float kRecurrentSigma = 0.05f;

/// The drawn token behind a step. The host draws where the backend did not.
Result<int32_t> greedy_id(const StepOutput& output, std::span<const bf16> logits) {
  const int32_t best = best_id(logits);
  if (output.drawn.empty()) return best;
  const int32_t id = output.drawn[0];
  if (id < 0 ||
      to_float(logits[static_cast<size_t>(id)]) < to_float(logits[static_cast<size_t>(best)])) {
    return data_loss("the GPU drew token {}; token {} has the largest logit", id, best);
  }
  return id;
}

Status check_finite(std::span<const bf16> logits) {
  for (const bf16 logit : logits) {
    if (!std::isfinite(to_float(logit))) {
      return unsupported("the synthetic model's logits are not finite");
    }
  }
  return Status();
}

}  // namespace

std::string signature_text(const Signature& signature) {
  return fmt::format("{:016x}, ids {}", signature.hash, fmt::join(signature.ids, " "));
}

std::vector<int32_t> bench_ids(uint64_t seed, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random_bits(seed, static_cast<uint64_t>(i));
    ids.push_back(static_cast<int32_t>(bits % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

DrawRequest greedy_request(int64_t position) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  return draw_request(greedy, position);
}

uint64_t hash_bytes(uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) hash = (hash ^ std::to_integer<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

Result<std::unique_ptr<BenchModel>> BenchModel::create(const ModelWeights& weights,
                                                       const OpTable& ops,
                                                       const StateLimits& state_limits,
                                                       const ForwardLimits& forward_limits,
                                                       uint64_t seed) {
  std::unique_ptr<BenchModel> model(new BenchModel);
  model->weights_ = &weights;
  model->ops_ = probed_ops(ops);
  model->seed_ = seed;
  SLUICE_ASSIGN_OR_RETURN(model->state_,
                          StatePool::create(weights.config, state_limits, *ops.memory));
  SLUICE_ASSIGN_OR_RETURN(model->forward_,
                          Forward::create(weights, model->ops_, model->pool_, forward_limits));
  return model;
}

void BenchModel::fill_state(const Sequence& session) {
  const StateBytes bytes = state_bytes(weights_->config);
  const auto key = [&](int32_t place) { return random_bits(seed_, static_cast<uint64_t>(place)); };
  // A layer's views begin where its own values do; the first layer's, where the whole slot or page does.
  for (const int32_t slot : {session.slot, session.checkpoint_slot}) {
    cuda::fill_normal(state_->recurrent_layer(0).slot(slot),
                      bytes.recurrent_per_slot / static_cast<int64_t>(sizeof(float)), key(slot),
                      kRecurrentSigma);
    cuda::fill_normal(state_->conv_layer(0).column(slot, 0),
                      bytes.conv_per_slot / static_cast<int64_t>(sizeof(bf16)), key(~slot),
                      kConvSigma);
  }
  for (const int32_t page : session.page_table) {
    cuda::fill_normal(state_->kv_layer(0).k_row(page, 0, 0),
                      bytes.page / static_cast<int64_t>(sizeof(bf16)), key(page), kKvSigma);
  }
}

Result<Sequence> BenchModel::open(int64_t position, int64_t context) {
  SLUICE_ASSIGN_OR_RETURN(Sequence session, state_->open());
  if (const Status room = state_->reserve(&session, context); !room.ok()) {
    state_->close(&session);
    return room;
  }
  if (position == 0) return session;
  fill_state(session);
  state_->advance(&session, position, true);
  return session;
}

CaughtStep BenchModel::catch_step(const std::function<PendingStep()>& start) {
  CaughtStep caught;
  const BlockProbe probe(cuda::StepLaunches::num_caught);
  cuda::StepLaunches::begin_catching();
  const PendingStep pending = start();
  caught.launches = cuda::StepLaunches::end_catching();
  finish(pending);
  caught.blocks = probe.starts();
  return caught;
}

Result<Signature> BenchModel::signature(
    std::vector<int32_t> prompt,
    const std::function<Result<StepOutput>(std::span<const int32_t> ids)>& run) {
  Signature signature;
  signature.hash = kHashStart;
  std::vector<int32_t> ids = std::move(prompt);
  for (int i = 0; i < kGreedyIds; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const StepOutput output, run(ids));
    const std::span logits(output.logits.row(0), static_cast<size_t>(output.logits.num_cols));
    SLUICE_ASSIGN_OR_RETURN(const int32_t id, greedy_id(note_range(output), logits));
    ids = {id};
    signature.ids.push_back(id);
    signature.hash = hash_bytes(signature.hash, std::as_bytes(std::span(ids)));
    if (i + 1 < kGreedyIds) continue;
    signature.hash = hash_bytes(signature.hash, std::as_bytes(logits));
    SLUICE_RETURN_IF_ERROR(check_finite(logits));
  }
  SLUICE_RETURN_IF_ERROR(check_range());
  return signature;
}

Status BenchModel::check_range() {
  if (!std::exchange(is_out_of_range_, false)) return Status();
  return unsupported("an activation of the synthetic model left the kernels' number format");
}

}  // namespace sluice
