#include "tests/verify/faulty_model.h"

#include <algorithm>

#include "model/weights_visit.h"
#include "tests/ops/attention_twin.h"
#include "tests/ops/gdn_twin.h"

namespace sluice::testing {
namespace {

void for_each_layer(ModelWeights& weights, const std::function<void(LayerWeights&)>& edit) {
  for (LayerWeights& layer : weights.layers) edit(layer);
  if (weights.mtp) edit(weights.mtp->layer);
}

void for_each_attention(ModelWeights& weights,
                        const std::function<void(AttentionLayerWeights&)>& edit) {
  for_each_layer(weights, [&](LayerWeights& layer) {
    if (auto* attention = std::get_if<AttentionLayerWeights>(&layer.mixer)) edit(*attention);
  });
}

void use_base_10000(EditedModel& model) {
  model.weights.config.rope_theta = 1e4;
}

void drop_one_plus(EditedModel& model) {
  model.for_each_centred_norm([&](VectorView& w) {
    std::vector<float> values(w.begin(), w.end());
    for (float& value : values) value -= 1.0f;
    w = model.keep(std::move(values));
  });
}

void swap_gate_halves(EditedModel& model) {
  for_each_attention(model.weights, [&](AttentionLayerWeights& attention) {
    attention.q_proj = model.as_bf16(attention.q_proj);
    const int64_t half = model.weights.config.head_dim * attention.q_proj.num_in;
    bf16* data = model.mutable_bf16(&attention.q_proj);
    bf16* end = data + attention.q_proj.num_out * attention.q_proj.num_in;
    for (; data < end; data += 2 * half) std::swap_ranges(data, data + half, data + half);
  });
}

void reverse_conv_taps(EditedModel& model) {
  for_each_layer(model.weights, [&](LayerWeights& layer) {
    auto* gdn = std::get_if<GdnLayerWeights>(&layer.mixer);
    if (gdn == nullptr) return;
    std::vector<float> taps(gdn->conv1d.begin(), gdn->conv1d.end());
    for (size_t i = 0; i < taps.size(); i += 4) std::reverse(&taps[i], &taps[i] + 4);
    gdn->conv1d = model.keep(std::move(taps));
  });
}

/// The scale of block (row, column) taken from where a column-major table would have it.
void transpose_scales(EditedModel& model) {
  model.for_each_linear([&](WeightView& w) {
    if (w.scales == nullptr) return;
    const int64_t cols = w.scale_cols();
    const int64_t rows = (w.num_out + kFp8BlockSize - 1) / kFp8BlockSize;
    std::vector<float> scales;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) scales.push_back(w.scales[c * rows + r]);
    }
    w.scales = model.keep(std::move(scales)).data();
  });
}

void divide_by_scales(EditedModel& model) {
  model.for_each_linear([&](WeightView& w) {
    if (w.scales == nullptr) return;
    const int64_t rows = (w.num_out + kFp8BlockSize - 1) / kFp8BlockSize;
    std::vector<float> scales(w.scales, w.scales + rows * w.scale_cols());
    for (float& scale : scales) scale = 1.0f / scale;
    w.scales = model.keep(std::move(scales)).data();
  });
}

void swap_mtp_halves(EditedModel& model) {
  WeightView& fc = model.weights.mtp->fc;
  fc = model.as_bf16(fc);
  bf16* row = model.mutable_bf16(&fc);
  for (int64_t i = 0; i < fc.num_out; ++i, row += fc.num_in) {
    std::swap_ranges(row, row + fc.num_in / 2, row + fc.num_in / 2);
  }
}

void clear_rows(EditedModel& model, WeightView* weight, int64_t first, int64_t count) {
  *weight = model.as_bf16(*weight);
  std::fill_n(model.mutable_bf16(weight) + first * weight->num_in, count * weight->num_in, bf16{0});
}

void drop_last_up_rows(EditedModel& model) {
  constexpr int64_t kCount = 8;
  MlpWeights& mlp = model.weights.layers[5].mlp;
  mlp.gate_proj = model.as_bf16(mlp.gate_proj);  // both halves are of one format
  WeightView& up = mlp.up_proj;
  clear_rows(model, &up, up.num_out - kCount, kCount);
}

void drop_a_down_row(EditedModel& model) {
  clear_rows(model, &model.weights.layers[5].mlp.down_proj, 0, 1);
}

void exchange_head_rows(EditedModel& model) {
  WeightView& head = model.weights.lm_head;
  head = model.as_bf16(head);
  bf16* data = model.mutable_bf16(&head);
  const int64_t half = head.num_out / 2 * head.num_in;
  std::swap_ranges(data, data + half, data + half);
}

template <GdnMistake kMistake>
void use_wrong_recurrence(EditedModel& model) {
  const auto op = [](const GdnArgs& args, OpContext&) { gdn_twin(args, kMistake); };
  model.ops().gdn_step = op;
  model.ops().gdn_chunk = op;
}

const OpTable& right_ops() {
  return **cpu_ops(best_cpu_isa());
}

void round_states(const GdnArgs& args) {
  for (const RowRun& run : args.runs) {
    float* slot = args.state.slot(run.slot);
    for (int64_t i = 0; i < args.shape.state_size(); ++i) slot[i] = rb(slot[i]);
  }
}

/// Rounded behind every row, as a state buffer in bf16 does.
void keep_state_in_bf16(EditedModel& model) {
  model.ops().gdn_step = [](const GdnArgs& args, OpContext& context) {
    for (const RowRun& run : args.runs) {
      for (int32_t i = 0; i < run.num_rows; ++i) {
        RowRun row = run;
        row.first_row += i;
        row.num_rows = 1;
        GdnArgs one = args;
        const int64_t at = row.first_row;
        one.qkv = args.qkv.rows(at, 1);
        one.g = args.g.rows(at, 1);
        one.beta = args.beta.rows(at, 1);
        one.o = args.o.rows(at, 1);
        row.first_row = 0;
        one.runs = {&row, 1};
        right_ops().gdn_step(one, context);
        round_states(one);
      }
    }
  };
}

/// The chunks of a call end where the call ends instead of lying on the sequence's grid of 64.
void anchor_chunks_to_the_call(EditedModel& model) {
  model.backend().prefill_form = GdnForm::kChunk;
  model.ops().gdn_chunk = [](const GdnArgs& args, OpContext& context) {
    for (const RowRun& run : args.runs) {
      const auto copy_state = [&](int32_t from, int32_t to) {
        std::copy_n(args.state.slot(from), args.shape.state_size(), args.state.slot(to));
      };
      const int32_t boundary = (run.position + run.num_rows) / 64 * 64 - run.position;
      int32_t done = 0;
      while (done < run.num_rows) {
        const int32_t rest = run.num_rows - done;
        int32_t count = rest % 64 == 0 ? 64 : rest % 64;
        if (done < boundary) count = std::min(count, boundary - done);
        RowRun piece = run;
        piece.num_rows = count;
        piece.position = 0;  // any multiple of 64 will do
        piece.checkpoint_slot = kNoSlot;
        GdnArgs part = args;
        const int64_t at = run.first_row + done;
        part.qkv = args.qkv.rows(at, count);
        part.g = args.g.rows(at, count);
        part.beta = args.beta.rows(at, count);
        part.o = args.o.rows(at, count);
        piece.first_row = 0;
        part.runs = {&piece, 1};
        right_ops().gdn_chunk(part, context);
        done += count;
        if (done == boundary && boundary > 0 && run.checkpoint_slot != kNoSlot) {
          copy_state(run.slot, run.checkpoint_slot);
        }
      }
    }
  };
}

template <PrepareMistake kMistake>
void use_wrong_prepare(EditedModel& model) {
  model.ops().attn_prepare = [](const AttnPrepareArgs& args, OpContext&) {
    prepare_twin(args, kMistake);
  };
}

template <AttentionMistake kMistake>
void use_wrong_attention(EditedModel& model) {
  model.ops().attention = [](const AttentionArgs& args, OpContext&) {
    attention_twin(args, kMistake);
  };
}

/// One element of each norm's output moves by a unit in the last place where `when` says so.
template <bool (*kWhen)(const RmsNormArgs&, const OpContext&)>
void disturb_norms(EditedModel& model) {
  model.ops().rms_norm = [](const RmsNormArgs& args, OpContext& context) {
    right_ops().rms_norm(args, context);
    if (kWhen(args, context)) ++args.out.row(0)->bits;
  };
}

bool on_every_seventh_call(const RmsNormArgs&, const OpContext&) {
  static int num_calls = 0;
  return ++num_calls % 7 == 0;
}
bool with_two_rows(const RmsNormArgs& args, const OpContext&) {
  return args.x.num_rows == 2;
}
bool with_three_rows(const RmsNormArgs& args, const OpContext&) {
  return args.x.num_rows == 3;
}
bool with_three_threads(const RmsNormArgs&, const OpContext& context) {
  return context.pool->num_threads() == 3;
}

/// As a backend says it whose activations overflow, while what it computes may still look right.
void leave_the_range(EditedModel& model) {
  model.ops().await_step = [](OpContext& context) { context.out_of_range = true; };
}

const Fault kFaults[] = {
    {"RoPE base 10,000", use_base_10000},
    {"rotation of even and odd instead of halves",
     use_wrong_prepare<PrepareMistake::kRotateEvenOdd>},
    {"norms without 1 +", drop_one_plus},
    {"gate halves swapped in each head", swap_gate_halves},
    {"l2norm eps on the mean", use_wrong_recurrence<GdnMistake::kEpsOnMean>},
    {"decay after the update", use_wrong_recurrence<GdnMistake::kDecayAfterUpdate>},
    {"key head j mod r", use_wrong_recurrence<GdnMistake::kKeyHeadModulo>},
    {"conv taps reversed", reverse_conv_taps},
    {"scales transposed", transpose_scales},
    {"scales divided", divide_by_scales},
    {"halves of mtp.fc swapped", swap_mtp_halves},
    {"KV off by one position", use_wrong_attention<AttentionMistake::kMissesItself>},
    {"KV rotated for the next position", use_wrong_prepare<PrepareMistake::kPositionOffByOne>},
    {"chunks anchored to the call", anchor_chunks_to_the_call, true},
    {"state kept in bf16", keep_state_in_bf16},
    {"other bits now and then", disturb_norms<on_every_seventh_call>, true},
    {"other bits with two rows", disturb_norms<with_two_rows>, true},
    {"other bits with three rows", disturb_norms<with_three_rows>, true},
    {"other bits with three threads", disturb_norms<with_three_threads>, true},
    {"the last rows of up_proj missing in one layer", drop_last_up_rows},
    {"an output row of down_proj missing in one layer", drop_a_down_row},
    {"ids of the head exchanged", exchange_head_rows},
    {"activations that do not fit", leave_the_range},
};

}  // namespace

void EditedModel::for_each_linear(const std::function<void(WeightView&)>& edit) {
  for_each_tensor(weights, edit, [](VectorView&) {});
}

void EditedModel::for_each_centred_norm(const std::function<void(VectorView&)>& edit) {
  for_each_layer(weights, [&](LayerWeights& layer) {
    edit(layer.input_layernorm);
    edit(layer.post_attention_layernorm);
  });
  for_each_attention(weights, [&](AttentionLayerWeights& attention) {
    edit(attention.q_norm);
    edit(attention.k_norm);
  });
  edit(weights.norm);
}

VectorView EditedModel::keep(std::vector<float> values) {
  return floats_.emplace_back(std::move(values));
}

WeightView EditedModel::as_bf16(const WeightView& weight) {
  const auto size = static_cast<size_t>(weight.num_out * weight.num_in);
  std::vector<bf16>& values = bf16s_.emplace_back(size);
  if (weight.format == WeightFormat::kBf16) {
    std::copy_n(static_cast<const bf16*>(weight.data), size, values.begin());
  } else {
    const auto* codes = static_cast<const uint8_t*>(weight.data);
    for (size_t i = 0; i < size; ++i) {
      const int64_t row = static_cast<int64_t>(i) / weight.num_in / kFp8BlockSize;
      const int64_t col = static_cast<int64_t>(i) % weight.num_in / kFp8BlockSize;
      const float scale = weight.scales[row * weight.scale_cols() + col];
      values[i] = to_bf16(e4m3_to_float(codes[i]) * scale);
    }
  }
  return {WeightFormat::kBf16, values.data(), nullptr, weight.num_out, weight.num_in};
}

bf16* EditedModel::mutable_bf16(WeightView* weight) {
  for (std::vector<bf16>& values : bf16s_) {
    if (values.data() == weight->data) return values.data();
  }
  SLUICE_CHECK(false);
  return nullptr;
}

std::span<const Fault> faults() {
  return kFaults;
}

}  // namespace sluice::testing
