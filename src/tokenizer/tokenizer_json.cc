#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/token_texts.h"
#include "tokenizer/tokenizer_components.h"

namespace sluice {
namespace {

constexpr size_t kNumTokensMax = PairRanks::kIdMax;
// Of one added token; the matcher looks this far ahead at each byte.
constexpr size_t kContentBytesMax = 1024;

class SpecReader {
 public:
  Result<TokenizerSpec> read(const JsonValue& root, const JsonValue& config) {
    if (!root.is_object()) return invalid_argument("tokenizer.json is not an object");
    SLUICE_RETURN_IF_ERROR(check_components(root));
    SLUICE_ASSIGN_OR_RETURN(spec_.regex, parse_pre_tokenizer(root.find("pre_tokenizer")));
    SLUICE_ASSIGN_OR_RETURN(const JsonValue* model,
                            required(root, "model", JsonValue::Kind::kObject, "tokenizer.json"));
    SLUICE_RETURN_IF_ERROR(check_model(*model));
    SLUICE_ASSIGN_OR_RETURN(
        const JsonValue* vocab,
        required(*model, "vocab", JsonValue::Kind::kObject, "tokenizer.json: model"));
    SLUICE_RETURN_IF_ERROR(index_vocab(*vocab));
    SLUICE_RETURN_IF_ERROR(read_added_tokens(root.find("added_tokens")));
    SLUICE_RETURN_IF_ERROR(read_config(config));
    SLUICE_RETURN_IF_ERROR(fill_tokens());
    SLUICE_RETURN_IF_ERROR(find_byte_ids());
    SLUICE_ASSIGN_OR_RETURN(
        const JsonValue* merges,
        required(*model, "merges", JsonValue::Kind::kArray, "tokenizer.json: model"));
    SLUICE_RETURN_IF_ERROR(read_merges(*merges));
    for (auto& [id, token] : added_) spec_.added_tokens.push_back(std::move(token));
    return std::move(spec_);
  }

 private:
  static Status check_model(const JsonValue& model) {
    SLUICE_RETURN_IF_ERROR(require_type(&model, "BPE", "tokenizer.json: model"));
    return require_off(model,
                       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                        "fuse_unk", "byte_fallback", "ignore_merges"},
                       "tokenizer.json: model");
  }

  static Result<int32_t> id_of(const JsonValue& value, std::string_view token) {
    const Result<int64_t> id =
        value.is_integer() ? value.as_int64() : invalid_argument("not an integer");
    if (!id.ok() || *id < 0 || *id >= static_cast<int64_t>(kNumTokensMax)) {
      return invalid_argument("the id of {} is {}; ids are integers from 0 to {}", quoted(token),
                              json_text(value), kNumTokensMax - 1);
    }
    return static_cast<int32_t>(*id);
  }

  Status index_vocab(const JsonValue& vocab) {
    if (vocab.members().size() > kNumTokensMax) {
      return resource_exhausted("tokenizer.json has {} tokens; the limit is {}",
                                vocab.members().size(), kNumTokensMax);
    }
    texts_.reserve(vocab.members().size());
    for (const auto& [text, value] : vocab.members()) {
      if (text.empty())
        return invalid_argument("tokenizer.json: the vocabulary has an empty token");
      SLUICE_ASSIGN_OR_RETURN(const int32_t id, id_of(value, text));
      if (const std::string_view other = texts_.text(id); !other.empty()) {
        return data_loss("tokenizer.json: {} and {} both have id {}", quoted(other), quoted(text),
                         id);
      }
      texts_.insert(text, id);
    }
    return Status();
  }

  Status read_added_tokens(const JsonValue* list) {
    if (list == nullptr || list->is_null()) return Status();
    if (!list->is_array())
      return invalid_argument("tokenizer.json: \"added_tokens\" is not an array");
    for (const JsonValue& item : list->items()) {
      const JsonValue* id_value = item.find("id");
      if (id_value == nullptr)
        return invalid_argument("tokenizer.json: an added token has no \"id\"");
      SLUICE_ASSIGN_OR_RETURN(const int32_t id, id_of(*id_value, "an added token"));
      if (added_.contains(id)) return data_loss("tokenizer.json: two added tokens have id {}", id);
      SLUICE_RETURN_IF_ERROR(add(id, item, "tokenizer.json"));
    }
    return Status();
  }

  Status read_config(const JsonValue& config) {
    if (config.is_null()) return Status();
    if (!config.is_object()) return invalid_argument("tokenizer_config.json is not an object");
    const JsonValue* decoder = config.find("added_tokens_decoder");
    if (decoder == nullptr || decoder->is_null()) return Status();
    if (!decoder->is_object()) {
      return invalid_argument("tokenizer_config.json: \"added_tokens_decoder\" is not an object");
    }
    for (const auto& [key, item] : decoder->members()) {
      int32_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < 0 ||
          id >= static_cast<int32_t>(kNumTokensMax)) {
        return invalid_argument("tokenizer_config.json: {} in added_tokens_decoder is no id",
                                quoted(key));
      }
      SLUICE_RETURN_IF_ERROR(add(id, item, "tokenizer_config.json"));
    }
    return Status();
  }

  Status add(int32_t id, const JsonValue& item, std::string_view file) {
    const std::string where = fmt::format("{}: added token {}", file, id);
    SLUICE_ASSIGN_OR_RETURN(const JsonValue* content,
                            required(item, "content", JsonValue::Kind::kString, where));
    SLUICE_ASSIGN_OR_RETURN(const JsonValue* special,
                            required(item, "special", JsonValue::Kind::kBool, where));
    SLUICE_RETURN_IF_ERROR(
        require_off(item, {"normalized", "lstrip", "rstrip", "single_word"}, where));
    SLUICE_RETURN_IF_ERROR(check_content(content->text(), where));
    return merge_added({id, content->text(), special->as_bool()}, where);
  }

  Status check_content(const std::string& text, std::string_view where) const {
    if (text.empty()) return invalid_argument("{} is empty", where);
    if (text.size() > kContentBytesMax) {
      return resource_exhausted("{} has {} bytes; the limit is {}", where, text.size(),
                                kContentBytesMax);
    }
    // The reference's decoder maps any token that is spelled in the byte alphabet, added tokens too.
    const std::optional<std::string> mapped = alphabet_.bytes(text);
    if (mapped.has_value() && *mapped != text) {
      return unsupported(
          "{}: {} would decode to other bytes, because all its characters are of the byte alphabet",
          where, quoted(text));
    }
    return Status();
  }

  Status merge_added(AddedToken token, std::string_view where) {
    if (const auto known = added_.find(token.id); known != added_.end()) {
      if (known->second.content == token.content && known->second.special == token.special)
        return Status();
      return data_loss("{} is {} (special: {}), but tokenizer.json has {} (special: {})", where,
                       quoted(token.content), token.special, quoted(known->second.content),
                       known->second.special);
    }
    if (const std::string_view base = texts_.text(token.id);
        !base.empty() && base != token.content) {
      return data_loss("{} is {}, but the vocabulary has {} there", where, quoted(token.content),
                       quoted(base));
    }
    if (const auto base = texts_.id(token.content); base.has_value() && *base != token.id) {
      return data_loss("{} is {}, which the vocabulary has at id {}", where, quoted(token.content),
                       *base);
    }
    const auto [same, is_new] = added_ids_.try_emplace(token.content, token.id);
    if (!is_new)
      return data_loss("{} is {}, which added token {} is too", where, quoted(token.content),
                       same->second);
    added_.emplace(token.id, std::move(token));
    return Status();
  }

  Status fill_tokens() {
    size_t size = texts_.num_tokens();
    for (const auto& [id, token] : added_) size += texts_.text(id).empty() ? 1 : 0;
    for (size_t i = 0; i < size; ++i) {
      const auto id = static_cast<int32_t>(i);
      if (const auto added = added_.find(id); added != added_.end()) {
        spec_.token_bytes.push_back(added->second.content);
        continue;
      }
      const std::string_view base = texts_.text(id);
      if (base.empty()) {
        return data_loss(
            "tokenizer.json: {} ids are defined, but id {} is not; ids must be dense from 0", size,
            id);
      }
      const std::optional<std::string> bytes = alphabet_.bytes(base);
      if (!bytes.has_value()) {
        return data_loss(
            "tokenizer.json: token {} (id {}) is neither spelled in the byte alphabet nor an added "
            "token",
            quoted(base), id);
      }
      spec_.token_bytes.push_back(*bytes);
    }
    return Status();
  }

  Status find_byte_ids() {
    spec_.byte_ids.assign(256, -1);
    for (int32_t id = 0; id < texts_.id_end(); ++id) {
      if (texts_.text(id).size() > 2)
        continue;  // one character of the alphabet has at most two bytes
      const std::optional<std::string> bytes = alphabet_.bytes(texts_.text(id));
      if (bytes.has_value() && bytes->size() == 1) {
        spec_.byte_ids[static_cast<unsigned char>((*bytes)[0])] = id;
      }
    }
    const auto missing = std::ranges::find(spec_.byte_ids, -1);
    if (missing == spec_.byte_ids.end()) return Status();
    return data_loss(
        "tokenizer.json: no token for the single byte {:#04x}; text with it could not be encoded",
        missing - spec_.byte_ids.begin());
  }

  Status read_merges(const JsonValue& list) {
    if (list.items().size() > kNumTokensMax) {
      return resource_exhausted("tokenizer.json has {} merges; the limit is {}",
                                list.items().size(), kNumTokensMax);
    }
    spec_.merges.reserve(list.items().size());
    std::vector<std::pair<uint64_t, size_t>> pairs;  // and where they stand
    pairs.reserve(list.items().size());
    for (size_t i = 0; i < list.items().size(); ++i) {
      const JsonValue& item = list.items()[i];
      if (item.is_string() && item.text().starts_with("#version")) continue;
      SLUICE_ASSIGN_OR_RETURN(const Merge merge, parse_merge(item, i));
      pairs.emplace_back(
          uint64_t{static_cast<uint32_t>(merge.left)} << 32 | static_cast<uint32_t>(merge.right),
          i);
      spec_.merges.push_back(merge);
    }
    return check_distinct(std::move(pairs));
  }

  static Status check_distinct(std::vector<std::pair<uint64_t, size_t>> pairs) {
    std::ranges::sort(pairs);
    const auto same = std::ranges::adjacent_find(pairs, {}, &std::pair<uint64_t, size_t>::first);
    if (same == pairs.end()) return Status();
    return data_loss("tokenizer.json: merges {} and {} are the same", same->second,
                     (same + 1)->second);
  }

  // "a b" or ["a", "b"].
  Result<Merge> parse_merge(const JsonValue& item, size_t i) {
    std::string_view left, right;
    if (item.is_string()) {
      const std::string_view text = item.text();
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return invalid_argument("tokenizer.json: merge {} is {}; expected two tokens and one space",
                                i, quoted(text));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (item.is_array() && item.items().size() == 2 && item.items()[0].is_string() &&
               item.items()[1].is_string()) {
      left = item.items()[0].text();
      right = item.items()[1].text();
    } else {
      return invalid_argument("tokenizer.json: merge {} is {}; expected \"a b\" or [\"a\", \"b\"]",
                              i, json_text(item));
    }
    SLUICE_ASSIGN_OR_RETURN(const int32_t left_id, merge_id(left, i));
    SLUICE_ASSIGN_OR_RETURN(const int32_t right_id, merge_id(right, i));
    SLUICE_ASSIGN_OR_RETURN(const int32_t result, result_id(left, right, i));
    return Merge{left_id, right_id, result};
  }

  // Most files list merges in the order of their results' ids: the next one is tried before the search.
  Result<int32_t> result_id(std::string_view left, std::string_view right, size_t i) {
    const std::string_view next = texts_.text(last_result_ + 1);
    if (next.size() == left.size() + right.size() && next.starts_with(left) &&
        next.ends_with(right)) {
      return ++last_result_;
    }
    SLUICE_ASSIGN_OR_RETURN(last_result_, merge_id(std::string(left).append(right), i));
    return last_result_;
  }

  Result<int32_t> merge_id(std::string_view token, size_t i) const {
    if (const auto found = texts_.id(token)) return *found;
    return data_loss("tokenizer.json: merge {} names {}, which is not in the vocabulary", i,
                     quoted(token));
  }

  const ByteAlphabet alphabet_;
  TokenizerSpec spec_;
  TokenTexts texts_;  // base vocabulary
  int32_t last_result_ = -1;
  std::map<int32_t, AddedToken> added_;
  std::map<std::string, int32_t> added_ids_;
};

}  // namespace

Result<TokenizerSpec> parse_tokenizer_spec(std::string_view tokenizer_json,
                                           std::string_view config_json) {
  auto root = parse_json(tokenizer_json, {.unique_keys = true});
  if (!root.ok()) return root.status().with_context("tokenizer.json");
  JsonValue config;
  if (!config_json.empty()) {
    auto parsed = parse_json(config_json);
    if (!parsed.ok()) return parsed.status().with_context("tokenizer_config.json");
    config = std::move(parsed).value();
  }
  return SpecReader().read(*root, config);
}

}  // namespace sluice
