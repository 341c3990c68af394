#include "model/checkpoint.h"

#include <algorithm>

#include "base/threads.h"
#include "model/json_fields.h"
#include "model/shard_set.h"
#include "model/tensor_memory.h"
#include "model/values.h"
#include "model/weight_binder.h"

namespace sluice {

struct LoadedModel::Storage {
  ShardSet shards;
  TensorMemory memory;
};

LoadedModel::LoadedModel() = default;
LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;
LoadedModel& LoadedModel::operator=(LoadedModel&&) noexcept = default;
LoadedModel::~LoadedModel() = default;

namespace {

struct ForeignPrefix {
  std::string_view prefix;
  std::string_view origin;
};
// Spec 2.1: exports that other tools read. Their norms may carry other conventions too, so they are not guessed at.
constexpr ForeignPrefix kForeignPrefixes[] = {
    {"model.layers.", "a text-only export (CausalLM class)"},
    {"language_model.model.", "an MLX export"},
    {"model.model.language_model.", "a doubly wrapped export"},
    {"language_model.layers.", "an export without the outer model"},
    {"base_model.", "a PEFT adapter or its merge"},
    {"transformer.h.", "another model family"},
};

Status check_prefixes(const ShardSet& shards) {
  for (const LocatedTensor& tensor : shards.tensors()) {
    for (const ForeignPrefix& foreign : kForeignPrefixes) {
      if (!tensor.entry->name.starts_with(foreign.prefix)) continue;
      return unsupported(
          "{}: tensor {} has the prefix {} of {}; expected {}layers.N.*: use the published "
          "checkpoint or rename the tensors",
          tensor.file->name(), shown_name(tensor.entry->name), foreign.prefix, foreign.origin,
          kTextPrefix);
    }
  }
  return Status();
}

bool has_prefix(const ShardSet& shards, std::string_view prefix) {
  return std::any_of(
      shards.tensors().begin(), shards.tensors().end(),
      [&](const LocatedTensor& tensor) { return tensor.entry->name.starts_with(prefix); });
}

GdnLayerWeights bind_gdn(WeightBinder& binder, const std::string& prefix) {
  GdnLayerWeights gdn;
  gdn.in_proj_qkv = binder.linear(prefix + "in_proj_qkv");
  gdn.in_proj_z = binder.linear(prefix + "in_proj_z");
  gdn.in_proj_b = binder.linear(prefix + "in_proj_b");
  gdn.in_proj_a = binder.linear(prefix + "in_proj_a");
  gdn.conv1d = binder.vector(prefix + "conv1d.weight");
  gdn.A_log = binder.vector(prefix + "A_log");
  gdn.dt_bias = binder.vector(prefix + "dt_bias");
  gdn.norm = binder.vector(prefix + "norm.weight");
  gdn.out_proj = binder.linear(prefix + "out_proj");
  return gdn;
}

AttentionLayerWeights bind_attention(WeightBinder& binder, const std::string& prefix) {
  AttentionLayerWeights attention;
  attention.q_proj = binder.linear(prefix + "q_proj");
  attention.k_proj = binder.linear(prefix + "k_proj");
  attention.v_proj = binder.linear(prefix + "v_proj");
  attention.o_proj = binder.linear(prefix + "o_proj");
  attention.q_norm = binder.vector(prefix + "q_norm.weight");
  attention.k_norm = binder.vector(prefix + "k_norm.weight");
  return attention;
}

LayerWeights bind_layer(WeightBinder& binder, const std::string& prefix, LayerType type) {
  LayerWeights layer;
  layer.input_layernorm = binder.vector(prefix + "input_layernorm.weight");
  layer.post_attention_layernorm = binder.vector(prefix + "post_attention_layernorm.weight");
  if (type == LayerType::kLinearAttention) {
    layer.mixer = bind_gdn(binder, prefix + "linear_attn.");
  } else {
    layer.mixer = bind_attention(binder, prefix + "self_attn.");
  }
  layer.mlp.gate_proj = binder.linear(prefix + "mlp.gate_proj");
  layer.mlp.up_proj = binder.linear(prefix + "mlp.up_proj");
  layer.mlp.down_proj = binder.linear(prefix + "mlp.down_proj");
  return layer;
}

MtpWeights bind_mtp(WeightBinder& binder) {
  MtpWeights mtp;
  mtp.fc = binder.linear("mtp.fc");
  mtp.pre_fc_norm_embedding = binder.vector("mtp.pre_fc_norm_embedding.weight");
  mtp.pre_fc_norm_hidden = binder.vector("mtp.pre_fc_norm_hidden.weight");
  mtp.layer = bind_layer(binder, "mtp.layers.0.", LayerType::kFullAttention);
  mtp.norm = binder.vector("mtp.norm.weight");
  return mtp;
}

WeightView as_weight(MatView<const bf16> matrix) {
  return {WeightFormat::kBf16, matrix.data, nullptr, matrix.num_rows, matrix.num_cols};
}

ModelWeights bind_model(WeightBinder& binder, const ModelConfig& config, bool has_mtp) {
  ModelWeights weights;
  weights.config = config;
  const std::string text(kTextPrefix);
  weights.embed_tokens = binder.embedding(text + "embed_tokens.weight");
  for (size_t i = 0; i < config.layer_types.size(); ++i) {
    weights.layers.push_back(
        bind_layer(binder, fmt::format("{}layers.{}.", kTextPrefix, i), config.layer_types[i]));
  }
  weights.norm = binder.vector(text + "norm.weight");
  weights.lm_head =
      config.tie_word_embeddings ? as_weight(weights.embed_tokens) : binder.linear("lm_head");
  if (has_mtp) {
    weights.mtp = bind_mtp(binder);
    weights.config.mtp_num_hidden_layers = 1;  // state is sized from it, and some files omit it
  }
  return weights;
}

// A tensor under a prefix this engine computes with, but which it would not use, means another model than
// config.json describes; elsewhere it only deserves a word.
class LeftoverCheck {
 public:
  LeftoverCheck(const WeightBinder& binder, bool is_tied, bool reads_mtp)
      : binder_(binder), is_tied_(is_tied), reads_mtp_(reads_mtp) {}

  Status visit(const LocatedTensor& tensor) {
    const std::string& name = tensor.entry->name;
    if (binder_.was_bound(name)) return Status();
    if (name.starts_with(kVisionPrefix)) {
      ++num_vision_;
      return Status();
    }
    if (name.starts_with(kMtpPrefix) && !reads_mtp_) return Status();
    if (name == "lm_head.weight" && is_tied_) {
      tied_head_ = true;
      return Status();
    }
    if (name.starts_with(kTextPrefix) || name.starts_with(kMtpPrefix) ||
        name.starts_with("lm_head.")) {
      return data_loss("{}: tensor {} {} is not part of the model that config.json describes",
                       tensor.file->name(), shown_name(name), shape_text(tensor.entry->shape));
    }
    unknown_.push_back(shown_name(name));
    return Status();
  }

  void report(const std::string& dir, Diagnostics* diagnostics) const {
    if (num_vision_ > 0) {
      diagnostics->notes.push_back(
          fmt::format("{}: skipped {} vision tensors ({}*)", dir, num_vision_, kVisionPrefix));
    }
    if (tied_head_) {
      diagnostics->warnings.push_back(fmt::format(
          "{}: lm_head.weight is ignored, since config.json ties it to embed_tokens", dir));
    }
    if (unknown_.empty()) return;
    constexpr size_t kNamesMax = 5;
    const size_t shown_count = std::min(unknown_.size(), kNamesMax);
    diagnostics->warnings.push_back(
        fmt::format("{}: {} unexpected tensors were ignored: {}{}", dir, unknown_.size(),
                    fmt::join(unknown_.begin(),
                              unknown_.begin() + static_cast<std::ptrdiff_t>(shown_count), ", "),
                    unknown_.size() > kNamesMax ? ", ..." : ""));
  }

 private:
  const WeightBinder& binder_;
  bool is_tied_;
  bool reads_mtp_;
  size_t num_vision_ = 0;
  bool tied_head_ = false;
  std::vector<std::string> unknown_;
};

Status check_leftovers(const ShardSet& shards, const WeightBinder& binder, bool is_tied,
                       bool reads_mtp, Diagnostics* diagnostics) {
  LeftoverCheck check(binder, is_tied, reads_mtp);
  for (const LocatedTensor& tensor : shards.tensors()) {
    SLUICE_RETURN_IF_ERROR(check.visit(tensor));
  }
  check.report(shards.dir_name(), diagnostics);
  return Status();
}

double mean(VectorView values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

double mean_of_layer_norms(std::span<const LayerWeights> layers) {
  double sum = 0.0;
  for (const LayerWeights& layer : layers) {
    sum += mean(layer.input_layernorm) + mean(layer.post_attention_layernorm);
  }
  return sum / (2.0 * static_cast<double>(layers.size()));
}

// Spec 2.4: some requantised files have the 1 of (1 + w) baked into their norms, and then nothing else looks wrong.
void check_norm_convention(const ModelWeights& weights, const std::string& dir,
                           Diagnostics* diagnostics) {
  constexpr double kBakedMin = 0.75;
  constexpr double kBakedMax = 1.5;
  const auto look = [&](std::span<const LayerWeights> layers, std::string_view what) {
    const double value = mean_of_layer_norms(layers);
    if (value < kBakedMin || value > kBakedMax) return;
    diagnostics->warnings.push_back(fmt::format(
        "{}: the layer norms of {} average {:.2f}; zero-centred weights average near 0: was the 1 "
        "of (1 + w) baked in by a conversion?",
        dir, what, value));
  };
  look(weights.layers, "the decoder");
  if (weights.mtp) look(std::span(&weights.mtp->layer, 1), "the MTP head");
}

Status verify_big_tensors(const std::vector<UnreadTensor>& tensors, int num_threads) {
  ThreadPool threads(num_threads);
  for (const auto& [tensor, data] : tensors) {
    const int64_t bad = find_non_finite(tensor.entry->dtype, data, threads);
    if (bad < 0) continue;
    const int64_t num_cols = tensor.entry->shape.back();
    return data_loss("{}: tensor {}[{}, {}] is not a finite {}; expected finite values",
                     tensor.file->name(), tensor.entry->name, bad / num_cols, bad % num_cols,
                     dtype_name(tensor.entry->dtype));
  }
  return Status();
}

bool wants_full_scan(const LoadOptions& options, int64_t weight_bytes) {
  if (options.verify_values == VerifyValues::kAuto) return weight_bytes <= kVerifyAutoBytesMax;
  return options.verify_values == VerifyValues::kAll;
}

Status load_weights(const LoadOptions& options, const ModelConfig& config, LoadedModel* model) {
  const ShardSet& shards = model->storage->shards;
  SLUICE_RETURN_IF_ERROR(check_prefixes(shards));
  const bool reads_mtp = options.load_mtp && has_prefix(shards, kMtpPrefix);
  WeightBinder binder(config, shards, reads_mtp, &model->storage->memory, &model->diagnostics);
  model->weights = bind_model(binder, config, reads_mtp);
  SLUICE_RETURN_IF_ERROR(binder.status());
  binder.finish();
  SLUICE_RETURN_IF_ERROR(
      check_leftovers(shards, binder, config.tie_word_embeddings, reads_mtp, &model->diagnostics));
  model->tensors = binder.bound_tensors();
  for (const TensorSpec& tensor : model->tensors) model->weight_bytes += tensor.num_bytes();
  if (!wants_full_scan(options, model->weight_bytes)) return Status();
  return verify_big_tensors(binder.unread(), options.num_threads);
}

/// The ops read gate_proj and up_proj as one pass over both.
Status check_mlp_formats(const ModelWeights& weights, const std::string& dir) {
  const auto check = [&dir](const LayerWeights& layer, const std::string& prefix) {
    if (layer.mlp.gate_proj.format == layer.mlp.up_proj.format) return Status();
    return unsupported(
        "{}: one of {}mlp.gate_proj and {}mlp.up_proj is block FP8 and the other BF16; expected "
        "both "
        "alike, as published",
        dir, prefix, prefix);
  };
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(check(weights.layers[i], fmt::format("{}layers.{}.", kTextPrefix, i)));
  }
  return weights.mtp ? check(weights.mtp->layer, "mtp.layers.0.") : Status();
}

}  // namespace

Result<LoadedModel> load_model(const Path& dir, const LoadOptions& options) {
  LoadedModel model;
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(dir));
  SLUICE_ASSIGN_OR_RETURN(model.generation, load_generation_config(dir));
  SLUICE_ASSIGN_OR_RETURN(model.stop_token_ids, stop_token_ids(config, model.generation));
  SLUICE_ASSIGN_OR_RETURN(ShardSet shards, ShardSet::open(dir));
  model.storage = std::make_unique<LoadedModel::Storage>();
  model.storage->shards = std::move(shards);
  model.diagnostics.warnings = model.storage->shards.warnings();
  SLUICE_RETURN_IF_ERROR(load_weights(options, config, &model));
  SLUICE_RETURN_IF_ERROR(check_mlp_formats(model.weights, model.storage->shards.dir_name()));
  check_norm_convention(model.weights, model.storage->shards.dir_name(), &model.diagnostics);
  if (options.load_mtp && !model.weights.mtp && config.mtp_num_hidden_layers > 0) {
    model.diagnostics.notes.push_back(
        fmt::format("{}: no mtp.* tensors, though config.json announces an MTP head; speculation "
                    "needs it",
                    model.storage->shards.dir_name()));
  }
  return model;
}

}  // namespace sluice
