#include <algorithm>
#include <limits>

#include "model/config.h"
#include "model/json_fields.h"

namespace sluice {
namespace {

constexpr size_t kBytesMax = size_t{1} << 20;

// The family's own vocabulary and its two stop tokens; spec 8.1: some published files name only the second.
constexpr int64_t kFamilyVocabSize = 248320;
constexpr int32_t kImEnd = 248046;
constexpr int32_t kEndOfText = 248044;

Status read_optional_real(const JsonFields& fields, std::string_view key, double min, double max,
                          float* out) {
  if (!fields.has(key)) return Status();
  SLUICE_ASSIGN_OR_RETURN(const double value, fields.real(key, min, max));
  *out = static_cast<float>(value);
  return Status();
}

Status check_ids(const std::vector<int32_t>& ids, int64_t vocab_size, std::string_view file) {
  for (const int32_t id : ids) {
    if (id < vocab_size) continue;
    return invalid_argument("{}: eos_token_id {} is outside the vocabulary of {} ids", file, id,
                            vocab_size);
  }
  return Status();
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view json, std::string_view file) {
  JsonLimits limits;
  limits.max_depth = 16;
  limits.max_bytes = kBytesMax;
  Result<JsonValue> root = parse_json(json, limits);
  if (!root.ok()) return root.status().with_context(file);
  if (!root->is_object()) return invalid_argument("{}: expected a JSON object", file);
  const JsonFields fields(*root, file, "");
  GenerationConfig config;
  SLUICE_ASSIGN_OR_RETURN(config.eos_token_ids,
                          fields.ids("eos_token_id", 0, std::numeric_limits<int32_t>::max()));
  if (fields.has("do_sample")) {
    SLUICE_ASSIGN_OR_RETURN(config.do_sample, fields.boolean("do_sample"));
  }
  SLUICE_RETURN_IF_ERROR(
      read_optional_real(fields, "temperature", 0.0, 100.0, &config.temperature));
  SLUICE_RETURN_IF_ERROR(read_optional_real(fields, "top_p", 0.0, 1.0, &config.top_p));
  if (fields.has("top_k")) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t top_k, fields.integer("top_k", 0, 1 << 24));
    config.top_k = static_cast<int32_t>(top_k);
  }
  return config;
}

Result<GenerationConfig> load_generation_config(const Path& dir) {
  const Path path = dir / "generation_config.json";
  const Result<std::string> text = read_file(path, kBytesMax);
  if (text.ok()) return parse_generation_config(*text, path.string());
  if (text.status().code() == StatusCode::kNotFound) return GenerationConfig();
  return text.status();
}

Result<std::vector<int32_t>> stop_token_ids(const ModelConfig& config,
                                            const GenerationConfig& generation) {
  SLUICE_RETURN_IF_ERROR(
      check_ids(generation.eos_token_ids, config.vocab_size, "generation_config.json"));
  std::vector<int32_t> ids = generation.eos_token_ids;
  ids.insert(ids.end(), config.eos_token_ids.begin(), config.eos_token_ids.end());
  if (config.vocab_size == kFamilyVocabSize) ids.insert(ids.end(), {kImEnd, kEndOfText});
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace sluice
