#include "apps/tokenize.h"

#include <unistd.h>

#include <cstdio>

#include "apps/run_prompt.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

constexpr size_t kTextBytesMax = size_t{256} << 20;

Result<std::string> input_text(const TokenizeOptions& options) {
  if (options.file.empty()) return options.text;
  if (options.file == "-") {
    const Result<std::string> text = read_all(UniqueFd(::dup(STDIN_FILENO)), kTextBytesMax);
    return text.ok() ? text : text.status().with_context("standard input");
  }
  return read_file(options.file, kTextBytesMax);
}

void print_token(const Tokenizer& tokenizer, int32_t id) {
  std::string text;
  append_lossy_utf8(tokenizer.token_bytes(id), &text);
  std::printf("%d\t%s\n", id, json_quote(text).c_str());
}

Status print_text(const Tokenizer& tokenizer, const std::string& ids_text) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, parse_ids(ids_text));
  std::string text;
  SLUICE_RETURN_IF_ERROR(tokenizer.decode(ids, {}, &text));
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::printf("\n");
  return Status();
}

Status run(const TokenizeOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const Path dir, model_dir(options.model));
  SLUICE_ASSIGN_OR_RETURN(const std::string text, input_text(options));
  SLUICE_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(dir, {}));
  if (options.decode) return print_text(tokenizer, text);
  const std::vector<int32_t> ids =
      tokenizer.encode(text, options.ignore_added ? AddedTokens::kIgnore : AddedTokens::kMatch);
  if (options.show) {
    for (const int32_t id : ids) print_token(tokenizer, id);
  } else {
    std::printf("%s\n", fmt::format("{}", fmt::join(ids, " ")).c_str());
  }
  return Status();
}

}  // namespace

int run_tokenize(const TokenizeOptions& options) {
  return exit_code_of(run(options));
}

}  // namespace sluice
