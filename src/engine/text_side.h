#pragma once

#include "base/file.h"
#include "chat/template.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

/// The text of the checkpoint's chat template: chat_template.jinja, or "chat_template" in tokenizer_config.json.
Result<std::string> read_template_text(const Path& model_dir);

/// Loads the tokenizer and checks it against the model: every id must have a row in embed_tokens.
Result<Tokenizer> load_model_tokenizer(const Path& model_dir, const ModelConfig& config);

}  // namespace sluice
