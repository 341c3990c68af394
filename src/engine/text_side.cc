#include "engine/text_side.h"

#include "base/json.h"

namespace sluice {
namespace {

constexpr size_t kTemplateBytesMax = size_t{1} << 20;
constexpr size_t kTokenizerConfigBytesMax = size_t{16} << 20;

}  // namespace

Result<std::string> read_template_text(const Path& model_dir) {
  Result<std::string> text = read_file(model_dir / "chat_template.jinja", kTemplateBytesMax);
  if (text.ok() || text.status().code() != StatusCode::kNotFound) return text;
  const Path config_path = model_dir / "tokenizer_config.json";
  SLUICE_ASSIGN_OR_RETURN(const std::string config_text,
                          read_file(config_path, kTokenizerConfigBytesMax));
  Result<JsonValue> config = parse_json(config_text);
  if (!config.ok()) return config.status().with_context(config_path.string());
  const JsonValue* chat_template = config->find("chat_template");
  if (chat_template == nullptr || !chat_template->is_string()) {
    return not_found(
        "{}: neither chat_template.jinja nor \"chat_template\" in tokenizer_config.json",
        model_dir.string());
  }
  return chat_template->text();
}

Result<Tokenizer> load_model_tokenizer(const Path& model_dir, const ModelConfig& config) {
  TokenizerOptions options;
  options.vocab_size = static_cast<int32_t>(config.vocab_size);
  return Tokenizer::load(model_dir, options);
}

}  // namespace sluice
