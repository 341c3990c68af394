#include "tokenizer/tokenizer.h"

#include <atomic>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/chunk_table.h"
#include "tokenizer/merges.h"
#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer_json.h"

namespace sluice {
namespace {

constexpr size_t kTokenizerJsonBytesMax = size_t{128} << 20;  // the largest of the family has 20 MB
constexpr size_t kConfigJsonBytesMax = size_t{8} << 20;
constexpr size_t kTextBytesMax = size_t{1} << 31;
constexpr size_t kBatch = 16;                        // chunks looked up together
constexpr size_t kKeptSymbolsMax = size_t{1} << 20;  // a longer chunk's buffers are given back

// What one thread keeps between calls. `owner` is the serial of the tokenizer that filled the cache.
struct EncodeScratch {
  uint64_t owner = 0;
  NfcScratch nfc;
  MergeScratch merge;
  ChunkCache cache;
  std::string lossy;
  std::string joined;

  std::string_view valid(std::string_view text) {
    if (is_valid_utf8(text)) return text;
    lossy.clear();
    append_lossy_utf8(text, &lossy);
    return lossy;
  }

  void give_back_large() {
    if (merge.symbols.capacity() > kKeptSymbolsMax) merge = {};
    for (auto* run : {&nfc.run, &nfc.composed}) give_back(kKeptSymbolsMax, run);
    for (auto* text : {&nfc.text, &lossy, &joined}) give_back(4 * kKeptSymbolsMax, text);
  }

 private:
  template <typename Container>
  static void give_back(size_t size_max, Container* container) {
    if (container->capacity() > size_max) Container().swap(*container);  // "= {}" would keep it
  }
};

struct PendingChunk {
  std::string_view chunk;
  ChunkKey key;
};

EncodeScratch& scratch_for(uint64_t serial) {
  thread_local EncodeScratch scratch;
  if (scratch.owner != serial) {
    scratch.cache.clear();
    scratch.owner = serial;
  }
  return scratch;
}

uint64_t next_serial() {
  static std::atomic<uint64_t> serial{0};
  return ++serial;
}

}  // namespace

struct Tokenizer::Data {
  Data(TokenizerSpec spec, const TokenizerOptions& options)
      : serial(next_serial()),
        regex(options.regex.value_or(spec.regex)),
        vocab_size(options.vocab_size),
        added(std::move(spec.added_tokens)),
        matcher(added),
        pre_tokenizer(regex, tables),
        tokens(std::move(spec.token_bytes)),
        merge_table(spec.merges, std::move(spec.byte_ids), tokens) {
    set_flags();
    if (vocab_size == 0) vocab_size = num_defined();
    find_whole_chunks();
  }

  int32_t num_defined() const { return static_cast<int32_t>(tokens.size()); }
  std::string_view token(int32_t id) const { return tokens[id]; }

  void set_flags() {
    flags.assign(tokens.size(), 0);
    for (const AddedToken& token : added) {
      flags[static_cast<size_t>(token.id)] = token.special ? kAdded | kSpecial : kAdded;
    }
  }

  void find_whole_chunks() {
    MergeScratch scratch;
    whole_chunks.reserve(static_cast<size_t>(num_defined()));
    for (int32_t id = 0; id < num_defined(); ++id) {
      if (flags[static_cast<size_t>(id)] & kAdded) continue;
      merge_table.apply(token(id), &scratch);
      if (scratch.ids.size() == 1 && scratch.ids[0] == id) whole_chunks.insert(token(id), id);
    }
  }

  void encode_chunk(const PendingChunk& pending, EncodeScratch* scratch,
                    std::vector<int32_t>* ids) const {
    const auto& [chunk, key] = pending;
    const int32_t whole = whole_chunks.find(chunk, key, [this](int32_t id) { return token(id); });
    if (whole >= 0) return ids->push_back(whole);
    std::span<const int32_t> found = scratch->cache.find(chunk, key.hash);
    if (found.empty()) {
      merge_table.apply(chunk, &scratch->merge);
      found = scratch->merge.ids;
      scratch->cache.insert(chunk, key.hash, found);
    }
    ids->insert(ids->end(), found.begin(), found.end());
  }

  // Works in small batches: a chunk's table line arrives while its followers are cut.
  // Pre: valid UTF-8 without added tokens to match.
  void encode_plain(std::string_view raw, EncodeScratch* scratch, std::vector<int32_t>* ids) const {
    const std::string_view text = nfc(tables, raw, &scratch->nfc);
    PendingChunk batch[kBatch];
    for (size_t pos = 0; pos < text.size();) {
      size_t count = 0;
      for (; count < kBatch && pos < text.size(); ++count) {
        const size_t end = pre_tokenizer.chunk_end(text, pos);
        const std::string_view chunk = text.substr(pos, end - pos);
        batch[count] = {chunk, chunk_key(chunk, text.size() - pos)};
        whole_chunks.prefetch(batch[count].key);
        pos = end;
      }
      for (size_t i = 0; i < count; ++i) encode_chunk(batch[i], scratch, ids);
    }
  }

  // Calls plain(text) for what stands between added tokens and token(id) for them.
  template <typename Plain, typename Token>
  void split_added(std::string_view text, const Plain& plain, const Token& token_found) const {
    for (size_t pos = 0; pos < text.size();) {
      const AddedTokenMatcher::Match match = matcher.find(text, pos);
      plain(text.substr(pos, match.begin - pos));
      if (match.length > 0) token_found(match.id);
      pos = match.begin + match.length;
    }
  }

  void encode_matching(std::string_view text, EncodeScratch* scratch,
                       std::vector<int32_t>* ids) const {
    split_added(
        text, [&](std::string_view plain) { encode_plain(plain, scratch, ids); },
        [&](int32_t id) { ids->push_back(id); });
  }

  void encode_joined(EncodeScratch* scratch, std::vector<int32_t>* ids) const {
    encode_plain(scratch->joined, scratch, ids);
    scratch->joined.clear();
  }

  // Pre: valid UTF-8. scratch->joined holds the plain text since the last added token.
  void encode_piece(const TextPiece& piece, EncodeScratch* scratch,
                    std::vector<int32_t>* ids) const {
    if (piece.added == AddedTokens::kIgnore) {
      scratch->joined.append(piece.text);
      return;
    }
    split_added(
        piece.text, [&](std::string_view plain) { scratch->joined.append(plain); },
        [&](int32_t id) {
          encode_joined(scratch, ids);
          ids->push_back(id);
        });
  }

  static constexpr uint8_t kAdded = 1;
  static constexpr uint8_t kSpecial = 2;

  const UnicodeTables& tables = UnicodeTables::get();
  uint64_t serial;
  PreTokenizerRegex regex;
  int32_t vocab_size;
  std::vector<AddedToken> added;
  AddedTokenMatcher matcher;
  PreTokenizer pre_tokenizer;
  TokenBytes tokens;  // [num_defined]
  MergeTable merge_table;
  std::vector<uint8_t> flags;  // [num_defined]
  ChunkTable whole_chunks;
};

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const Path& dir, const TokenizerOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string json,
                          read_file(dir / "tokenizer.json", kTokenizerJsonBytesMax));
  Result<std::string> config = read_file(dir / "tokenizer_config.json", kConfigJsonBytesMax);
  if (!config.ok() && config.status().code() != StatusCode::kNotFound) return config.status();
  auto tokenizer =
      parse(json, config.ok() ? std::string_view(*config) : std::string_view(), options);
  if (!tokenizer.ok()) return tokenizer.status().with_context(dir.string());
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json,
                                   const TokenizerOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(TokenizerSpec spec, parse_tokenizer_spec(tokenizer_json, config_json));
  const auto num_defined = static_cast<int32_t>(spec.token_bytes.size());
  if (options.vocab_size != 0 && options.vocab_size < num_defined) {
    return invalid_argument(
        "the tokenizer defines {} ids, more than vocab_size {}; is it another model's?",
        num_defined, options.vocab_size);
  }
  return Tokenizer(std::make_unique<const Data>(std::move(spec), options));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, AddedTokens added) const {
  std::vector<int32_t> ids;
  encode_append(text, added, &ids);
  return ids;
}

void Tokenizer::encode_append(std::string_view text, AddedTokens added,
                              std::vector<int32_t>* ids) const {
  SLUICE_CHECK_LT(text.size(), kTextBytesMax);
  EncodeScratch& scratch = scratch_for(data_->serial);
  text = scratch.valid(text);
  if (added == AddedTokens::kMatch) {
    data_->encode_matching(text, &scratch, ids);
  } else {
    data_->encode_plain(text, &scratch, ids);
  }
  scratch.give_back_large();
}

void Tokenizer::encode_pieces(std::span<const TextPiece> pieces, std::vector<int32_t>* ids) const {
  size_t num_bytes = 0;
  for (const TextPiece& piece : pieces) num_bytes += piece.text.size();
  SLUICE_CHECK_LT(num_bytes, kTextBytesMax);
  EncodeScratch& scratch = scratch_for(data_->serial);
  for (const TextPiece& piece : pieces) {
    data_->encode_piece({scratch.valid(piece.text), piece.added}, &scratch, ids);
  }
  data_->encode_joined(&scratch, ids);
  scratch.give_back_large();
}

Status Tokenizer::check_id(int32_t id) const {
  if (is_defined(id)) return Status();
  if (id >= 0 && id < vocab_size()) {
    return invalid_argument(
        "id {} is padding: the vocabulary defines {} ids, the rows up to {} have no text", id,
        num_defined(), vocab_size());
  }
  return invalid_argument("id {} is outside the vocabulary of {} ids", id, num_defined());
}

Status Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options,
                         std::string* out) const {
  std::string raw;
  for (const int32_t id : ids) {
    SLUICE_RETURN_IF_ERROR(check_id(id));
    if (options.skip_special && is_special(id)) continue;
    raw.append(token_bytes(id));
  }
  append_lossy_utf8(raw, out);
  return Status();
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  SLUICE_CHECK(is_defined(id));
  return data_->token(id);
}

bool Tokenizer::is_added(int32_t id) const {
  return is_defined(id) && (data_->flags[static_cast<size_t>(id)] & Data::kAdded) != 0;
}

bool Tokenizer::is_special(int32_t id) const {
  return is_defined(id) && (data_->flags[static_cast<size_t>(id)] & Data::kSpecial) != 0;
}

std::optional<int32_t> Tokenizer::added_token_id(std::string_view content) const {
  for (const AddedToken& token : data_->added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

int32_t Tokenizer::num_defined() const {
  return data_->num_defined();
}
int32_t Tokenizer::vocab_size() const {
  return data_->vocab_size;
}
PreTokenizerRegex Tokenizer::regex() const {
  return data_->regex;
}

}  // namespace sluice
