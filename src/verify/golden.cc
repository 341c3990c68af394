#include "verify/golden.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/json.h"
#include "verify/op_places.h"
#include "verify/tensor_reader.h"

namespace sluice {
namespace {

constexpr size_t kManifestBytesMax = size_t{4} << 20;
constexpr int64_t kFormat = 1;
constexpr std::string_view kCaseEnding = ".safetensors";

struct StateKindName {
  std::string_view name;
  GoldenState::Kind kind;
};
constexpr StateKindName kStateKinds[] = {{"recurrent", GoldenState::Kind::kRecurrent},
                                         {"conv", GoldenState::Kind::kConv},
                                         {"key", GoldenState::Kind::kKey},
                                         {"value", GoldenState::Kind::kValue}};

Result<std::string> text_field(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || !value->is_string()) {
    return data_loss("\"{}\" is missing or not a string", key);
  }
  return value->text();
}

Result<int64_t> int_field(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || !value->is_integer()) {
    return data_loss("\"{}\" is missing or not an integer", key);
  }
  return value->as_int64();
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// "layers.3.key.129" taken apart; nothing for another name.
std::optional<GoldenState> state_of_name(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view rest = name.substr(kPrefix.size());
  const size_t kind_at = rest.find('.');
  const size_t tokens_at = rest.rfind('.');
  if (kind_at == std::string_view::npos || tokens_at == kind_at) return std::nullopt;
  const auto layer = number_of(rest.substr(0, kind_at));
  const auto num_tokens = number_of(rest.substr(tokens_at + 1));
  const std::string_view kind = rest.substr(kind_at + 1, tokens_at - kind_at - 1);
  for (const StateKindName& row : kStateKinds) {
    if (row.name != kind || !layer || !num_tokens) continue;
    GoldenState state;
    state.name = name;
    state.kind = row.kind;
    state.layer = *layer;
    state.num_tokens = *num_tokens;
    return state;
  }
  return std::nullopt;
}

Status check_ids(const SafetensorsFile& file, std::string_view name, std::span<const int32_t> ids,
                 const ModelConfig& config) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < config.vocab_size) continue;
    return data_loss("{}: tensor {} holds id {}; expected 0 to {}", file.name(), name, id,
                     config.vocab_size - 1);
  }
  return Status();
}

bool is_ranking(std::span<const int32_t> ids, std::span<const bf16> logits) {
  const auto falls = [](bf16 a, bf16 b) { return to_float(a) < to_float(b); };
  return std::set<int32_t>(ids.begin(), ids.end()).size() == ids.size() &&
         std::adjacent_find(logits.begin(), logits.end(), falls) == logits.end();
}

/// Reads one case file against the model's shape.
class CaseReader {
 public:
  CaseReader(const SafetensorsFile& file, const ModelConfig& config, int64_t top,
             int64_t state_rows)
      : file_(file), reader_(file), config_(config), top_(top), state_rows_(state_rows) {}

  Result<GoldenCase> read(int64_t num_ids) {
    num_ids_ = num_ids;
    GoldenCase out;
    SLUICE_ASSIGN_OR_RETURN(out.ids, ids("ids", {num_ids}));
    SLUICE_ASSIGN_OR_RETURN(out.prompt, top_logits("", num_ids));
    SLUICE_RETURN_IF_ERROR(read_other_paths(&out));
    SLUICE_RETURN_IF_ERROR(read_full_rows(&out));
    if (reader_.has("greedy_ids")) {
      SLUICE_ASSIGN_OR_RETURN(out.greedy_ids, ids("greedy_ids", {TensorReader::kAnySize}));
      SLUICE_ASSIGN_OR_RETURN(out.greedy,
                              top_logits("greedy_", static_cast<int64_t>(out.greedy_ids.size())));
    }
    if (reader_.has("mtp_top_ids")) {
      SLUICE_ASSIGN_OR_RETURN(out.mtp, top_logits("mtp_", num_ids - 1));
    }
    SLUICE_RETURN_IF_ERROR(read_states(&out));
    return out;
  }

 private:
  /// Token ids of a tensor, each below vocab_size.
  Result<std::vector<int32_t>> ids(std::string_view name, std::vector<int64_t> shape) const {
    SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> values, reader_.int32s(name, std::move(shape)));
    SLUICE_RETURN_IF_ERROR(check_ids(file_, name, values, config_));
    return values;
  }

  Result<TopLogits> top_logits(const std::string& prefix, int64_t num_positions) const {
    TopLogits out;
    out.top = top_;
    SLUICE_ASSIGN_OR_RETURN(out.ids, ids(prefix + "top_ids", {num_positions, top_}));
    SLUICE_ASSIGN_OR_RETURN(out.logits,
                            reader_.bf16s(prefix + "top_logits", {num_positions, top_}));
    for (int64_t i = 0; i < num_positions; ++i) {
      if (is_ranking(out.ids_at(i), out.logits_at(i))) continue;
      return data_loss(
          "{}: tensors {}top_ids and {}top_logits, position {}; expected distinct ids, largest "
          "logit first",
          file_.name(), prefix, prefix, i);
    }
    return out;
  }

  Result<OtherPath> other_path(const std::string& prefix, int64_t first) const {
    OtherPath out;
    out.first = first;
    const int64_t num_positions = num_ids_ - first;
    SLUICE_ASSIGN_OR_RETURN(out.top_logits,
                            reader_.bf16s(prefix + "_logits", {num_positions, top_}));
    SLUICE_ASSIGN_OR_RETURN(out.best, ids(prefix + "_best", {num_positions}));
    return out;
  }

  Status read_other_paths(GoldenCase* out) const {
    if (reader_.has("gen_logits")) {
      SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> first, reader_.int32s("gen_first", {1}));
      if (first[0] < 1 || first[0] >= num_ids_) {
        return data_loss("{}: tensor gen_first is {}; expected 1 to {}", file_.name(), first[0],
                         num_ids_ - 1);
      }
      SLUICE_ASSIGN_OR_RETURN(out->generation, other_path("gen", first[0]));
    }
    if (reader_.has("dither_logits")) {
      SLUICE_ASSIGN_OR_RETURN(out->dither, other_path("dither", 0));
    }
    return Status();
  }

  Status read_full_rows(GoldenCase* out) const {
    if (!reader_.has("full_positions")) return Status();
    SLUICE_ASSIGN_OR_RETURN(out->full_positions,
                            reader_.int32s("full_positions", {TensorReader::kAnySize}));
    const auto count = static_cast<int64_t>(out->full_positions.size());
    for (const int32_t position : out->full_positions) {
      if (position >= 0 && position < num_ids_) continue;
      return data_loss("{}: tensor full_positions holds {}; expected 0 to {}", file_.name(),
                       position, num_ids_ - 1);
    }
    SLUICE_ASSIGN_OR_RETURN(out->full_logits,
                            reader_.bf16s("full_logits", {count, config_.vocab_size}));
    return Status();
  }

  std::vector<int64_t> state_shape(const GoldenState& state) const {
    const int64_t cached = std::min<int64_t>(state.num_tokens, 4);
    switch (state.kind) {
      case GoldenState::Kind::kRecurrent:
        return {config_.linear_num_value_heads,
                (config_.linear_key_head_dim + state_rows_ - 1) / state_rows_,
                config_.linear_value_head_dim};
      case GoldenState::Kind::kConv:
        return {config_.conv_dim(), 3};
      default:
        return {config_.num_key_value_heads, cached, config_.head_dim};
    }
  }

  Status read_states(GoldenCase* out) const {
    for (const TensorEntry& entry : file_.tensors()) {
      std::optional<GoldenState> state = state_of_name(entry.name);
      if (!state && entry.name.starts_with("layers.")) {
        return data_loss(
            "{}: tensor {} is no state; expected layers.LAYER.KIND.TOKENS, KIND one of recurrent, "
            "conv, key, value",
            file_.name(), entry.name);
      }
      if (!state) continue;
      const bool is_gdn =
          state->kind == GoldenState::Kind::kRecurrent || state->kind == GoldenState::Kind::kConv;
      const auto wanted = is_gdn ? LayerType::kLinearAttention : LayerType::kFullAttention;
      state->shape = state_shape(*state);
      if (state->layer >= config_.num_hidden_layers || state->num_tokens < 1 ||
          state->num_tokens > num_ids_ ||
          config_.layer_types[static_cast<size_t>(state->layer)] != wanted ||
          entry.shape != state->shape) {
        return data_loss(
            "{}: tensor {} {} does not fit: this model would have {} there, in a {} layer, at most "
            "{} tokens",
            file_.name(), entry.name, shape_text(entry.shape), shape_text(state->shape),
            layer_type_name(wanted), num_ids_);
      }
      SLUICE_ASSIGN_OR_RETURN(state->values, reader_.floats(entry));
      out->states.push_back(*std::move(state));
    }
    return Status();
  }

  const SafetensorsFile& file_;
  TensorReader reader_;
  const ModelConfig& config_;
  int64_t top_;
  int64_t state_rows_;
  int64_t num_ids_ = 0;
};

/// 0 where it was not recorded.
Result<double> noise_of(const JsonValue& of_state, std::string_view key) {
  const JsonValue* value = of_state.find(key);
  if (value == nullptr) return 0.0;
  const double noise = value->is_number() ? value->as_double() : -1.0;
  if (std::isfinite(noise) && noise >= 0.0 && noise < 1.0) return noise;
  return data_loss("\"{}\" in \"state_noise\"; expected a number from 0 to 1", key);
}

Status add_state_noise(const JsonValue& entry, GoldenCase* out) {
  const JsonValue* noise = entry.find("state_noise");
  if (noise == nullptr) return Status();
  for (GoldenState& state : out->states) {
    const JsonValue* of_state = noise->find(state.name);
    if (of_state == nullptr) continue;
    SLUICE_ASSIGN_OR_RETURN(state.generation_noise, noise_of(*of_state, "generation"));
    SLUICE_ASSIGN_OR_RETURN(state.dither_noise, noise_of(*of_state, "dither"));
  }
  return Status();
}

Result<GoldenOps> read_ops(const Path& path, const ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  const TensorReader reader(file);
  GoldenOps ops;
  SLUICE_ASSIGN_OR_RETURN(ops.ids, reader.int32s("ids", {TensorReader::kAnySize}));
  if (ops.ids.size() < 2)
    return data_loss("{}: tensor ids holds {} ids; expected at least 2", file.name(),
                     ops.ids.size());
  SLUICE_RETURN_IF_ERROR(check_ids(file, "ids", ops.ids, config));
  for (const TensorEntry& entry : file.tensors()) {
    if (entry.name == "ids") continue;
    const std::vector<int64_t> shape =
        op_tensor_shape(config, entry.name, static_cast<int64_t>(ops.ids.size()));
    if (entry.shape != shape) {
      return data_loss("{}: tensor {} is {}; expected {}", file.name(), entry.name,
                       shape_text(entry.shape),
                       shape.empty() ? "no tensor of that name" : shape_text(shape));
    }
    SLUICE_ASSIGN_OR_RETURN(std::vector<float> values, reader.floats(entry));
    ops.tensors[entry.name] = {entry.shape, std::move(values)};
  }
  if (ops.find("norm") == nullptr) return data_loss("{}: tensor norm is missing", file.name());
  return ops;
}

Status read_manifest_head(const JsonValue& manifest, Golden* golden, int64_t* top) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t format, int_field(manifest, "format"));
  if (format != kFormat) {
    return unsupported("golden format {}; this build reads {}", format, kFormat);
  }
  SLUICE_ASSIGN_OR_RETURN(golden->oracle, text_field(manifest, "oracle"));
  const JsonValue* checkpoint = manifest.find("checkpoint");
  if (checkpoint == nullptr) return data_loss("\"checkpoint\" is missing; expected an object");
  SLUICE_ASSIGN_OR_RETURN(golden->checkpoint_name, text_field(*checkpoint, "name"));
  SLUICE_ASSIGN_OR_RETURN(golden->checkpoint_hash, text_field(*checkpoint, "xxh3_128"));
  SLUICE_ASSIGN_OR_RETURN(golden->state_rows, int_field(manifest, "state_rows"));
  SLUICE_ASSIGN_OR_RETURN(*top, int_field(manifest, "top"));
  if (*top < 2 || golden->state_rows < 1) {
    return data_loss("\"top\" is {} and \"state_rows\" {}; expected at least 2 and 1", *top,
                     golden->state_rows);
  }
  return Status();
}

Result<GoldenCase> read_case(const Path& dir, const JsonValue& entry, const ModelConfig& config,
                             int64_t top, int64_t state_rows, int64_t num_ids) {
  SLUICE_ASSIGN_OR_RETURN(const std::string name, text_field(entry, "file"));
  if (name.find('/') != std::string::npos || !name.ends_with(kCaseEnding)) {
    return data_loss("case file \"{}\"; expected a name that ends in {}", name, kCaseEnding);
  }
  SLUICE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(dir / name));
  CaseReader reader(file, config, top, state_rows);
  SLUICE_ASSIGN_OR_RETURN(GoldenCase out, reader.read(num_ids));
  out.name = name.substr(0, name.size() - kCaseEnding.size());
  SLUICE_RETURN_IF_ERROR(add_state_noise(entry, &out));
  return out;
}

Status read_cases(const Path& dir, const JsonValue& manifest, const ModelConfig& config,
                  int64_t top, Golden* golden) {
  const JsonValue* cases = manifest.find("cases");
  if (cases == nullptr || !cases->is_array() || cases->items().empty()) {
    return data_loss("\"cases\" is missing or empty; expected a list");
  }
  for (const JsonValue& entry : cases->items()) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t num_ids, int_field(entry, "num_ids"));
    if (num_ids < 1 || num_ids > config.max_position_embeddings) {
      return data_loss("\"num_ids\" is {}; expected 1 to {}", num_ids,
                       config.max_position_embeddings);
    }
    SLUICE_ASSIGN_OR_RETURN(GoldenCase out,
                            read_case(dir, entry, config, top, golden->state_rows, num_ids));
    golden->cases.push_back(std::move(out));
  }
  return Status();
}

}  // namespace

Result<Golden> load_golden(const Path& dir, const ModelConfig& config) {
  const Path path = dir / "manifest.json";
  SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kManifestBytesMax));
  Result<JsonValue> manifest = parse_json(text);
  if (!manifest.ok()) return manifest.status().with_context(path.string());
  Golden golden;
  int64_t top = 0;
  if (const Status head = read_manifest_head(*manifest, &golden, &top); !head.ok()) {
    return head.with_context(path.string());
  }
  if (const Status cases = read_cases(dir, *manifest, config, top, &golden); !cases.ok()) {
    return cases.with_context(path.string());
  }
  SLUICE_ASSIGN_OR_RETURN(golden.ops, read_ops(dir / "ops.safetensors", config));
  return golden;
}

}  // namespace sluice
