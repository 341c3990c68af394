#pragma once
// Bytes <-> ids: the byte-level BPE of tokenizer.json with the added tokens of tokenizer_config.json.
// Order of work (model-spec 6.1): added tokens in raw text, NFC, pre-tokeniser regex, merges.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "tokenizer/pretokenize.h"

namespace sluice {

struct TokenizerOptions {
  /// Overrides the pre-tokeniser named in tokenizer.json; transformers does so in some versions (model-spec 6.3).
  std::optional<PreTokenizerRegex> regex = std::nullopt;
  /// Rows of the embedding, config.json's vocab_size; ids from num_defined() up to it are padding. 0: no padding.
  int32_t vocab_size = 0;
};

enum class AddedTokens {
  /// Trusted text, such as a rendered template: "<|im_end|>" is one id.
  kMatch,
  /// Untrusted text: "<|im_end|>" is spelled in ordinary tokens and can never become control.
  kIgnore,
};

/// A part of a longer text. The parts say only where added tokens may be matched.
struct TextPiece {
  std::string_view text;
  AddedTokens added;
};

struct DecodeOptions {
  /// Leaves out added tokens that are special; <think> and <tool_call> are not special.
  bool skip_special = false;
};

/// Immutable once loaded: any number of threads may use one tokenizer. Each thread that encodes keeps its own buffers
/// and chunk cache (about 0.5 MB, for the tokenizer it used last). Moving is cheap; a moved-from tokenizer is unusable.
class Tokenizer {
 public:
  /// Reads tokenizer.json and, where it exists, tokenizer_config.json. Errors: tokenizer_json.h; kInvalidArgument when
  /// vocab_size is below num_defined(). Cost: about 0.6 s for 248,000 tokens.
  static Result<Tokenizer> load(const Path& dir, const TokenizerOptions& options);
  /// The same from text; `config_json` may be empty.
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view config_json,
                                 const TokenizerOptions& options);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// No BOS or EOS is added. Invalid UTF-8 is read as Python's bytes.decode(errors="replace") reads it: one U+FFFD for
  /// each maximal invalid part. The two spans of a cut text encoded apart do not give the ids of the whole.
  /// Cost: linear (merges.h). Pre: text.size() < 2^31.
  std::vector<int32_t> encode(std::string_view text, AddedTokens added) const;
  /// Appends to *ids; allocates only when *ids or this thread's buffers must grow.
  void encode_append(std::string_view text, AddedTokens added, std::vector<int32_t>* ids) const;
  /// The pieces as one text: normalisation and the pre-tokeniser run across them, so that a prompt whose bodies hold no
  /// added token gets the ids of its joined text. An added token is matched inside one kMatch piece only, invalid UTF-8
  /// is read piece by piece. Pre: fewer than 2^31 bytes together.
  void encode_pieces(std::span<const TextPiece> pieces, std::vector<int32_t>* ids) const;

  /// Appends the text; invalid UTF-8 becomes U+FFFD, one for each maximal invalid part. kInvalidArgument, with nothing
  /// appended, when an id is negative, padding or beyond.
  Status decode(std::span<const int32_t> ids, const DecodeOptions& options, std::string* out) const;
  /// An ok status when the id has text, else the error that decode gives.
  Status check_id(int32_t id) const;

  /// The bytes an id stands for; they need not be whole UTF-8. Valid while the tokenizer lives. Pre: is_defined(id).
  std::string_view token_bytes(int32_t id) const;
  bool is_defined(int32_t id) const { return id >= 0 && id < num_defined(); }
  bool is_added(int32_t id) const;
  /// An added token that decoding may skip. False for <think>, <tool_call> and all of the base vocabulary.
  bool is_special(int32_t id) const;
  /// The id of an added token by its content, such as "<|im_end|>".
  std::optional<int32_t> added_token_id(std::string_view content) const;

  int32_t num_defined() const;
  /// At least num_defined().
  int32_t vocab_size() const;
  PreTokenizerRegex regex() const;

 private:
  struct Data;
  explicit Tokenizer(std::unique_ptr<const Data> data);

  std::unique_ptr<const Data> data_;
};

}  // namespace sluice
