#include "tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/json.h"
#include "base/utf8.h"
#include "golden.h"

namespace sluice {
namespace {

JsonValue golden_json(const char* name) {
  const auto text = read_file(golden_dir() / name, size_t{4} << 20);
  return parse_json(text.value()).value();
}

JsonValue& at(JsonValue& value, std::string_view key) {
  for (auto& [name, member] : value.members()) {
    if (name == key) return member;
  }
  ADD_FAILURE() << "no " << key;
  return value;
}

void erase(JsonValue& object, std::string_view key) {
  std::erase_if(object.members(), [&](const JsonValue::Member& m) { return m.first == key; });
}

JsonValue parsed(std::string_view text) {
  return parse_json(text).value();
}

struct Case {
  const char* name;
  std::function<void(JsonValue& root, JsonValue& config)> change;
  StatusCode code;
  const char* message;  // must be part of the error's
};

JsonValue& vocab(JsonValue& root) {
  return at(at(root, "model"), "vocab");
}
JsonValue& merges(JsonValue& root) {
  return at(at(root, "model"), "merges");
}
JsonValue& added(JsonValue& root, size_t i) {
  return at(root, "added_tokens").items()[i];
}
JsonValue& config_token(JsonValue& config, const char* id) {
  return at(at(config, "added_tokens_decoder"), id);
}
JsonValue& pre(JsonValue& root, size_t i) {
  return at(at(root, "pre_tokenizer"), "pretokenizers").items()[i];
}

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kLoss = StatusCode::kDataLoss;
constexpr StatusCode kUnsup = StatusCode::kUnsupported;

const Case kCases[] = {
    {"no model", [](auto& r, auto&) { erase(r, "model"); }, kInvalid, "no \"model\""},
    {"no vocab", [](auto& r, auto&) { erase(at(r, "model"), "vocab"); }, kInvalid, "no \"vocab\""},
    {"vocab is a list", [](auto& r, auto&) { vocab(r) = parsed("[]"); }, kInvalid, "wrong kind"},
    {"no merges", [](auto& r, auto&) { erase(at(r, "model"), "merges"); }, kInvalid,
     "no \"merges\""},
    {"empty vocab", [](auto& r, auto&) { vocab(r) = parsed("{}"); }, kLoss, "dense"},
    {"a code point where a message is cut",
     [](auto& r, auto&) { vocab(r).members()[5].first = std::string(199, 'x') + "\xE6\x97\xA5"; },
     kLoss, "neither spelled"},
    {"id twice", [](auto& r, auto&) { vocab(r).members()[5].second = JsonValue::integer(6); },
     kLoss, "both have id 6"},
    {"id negative", [](auto& r, auto&) { vocab(r).members()[5].second = JsonValue::integer(-1); },
     kInvalid, "the id of"},
    {"id a string", [](auto& r, auto&) { vocab(r).members()[5].second = JsonValue::string("5"); },
     kInvalid, "the id of"},
    {"id a fraction", [](auto& r, auto&) { vocab(r).members()[5].second = JsonValue::real(5.0); },
     kInvalid, "the id of"},
    {"id of many digits",
     [](auto& r, auto&) {
       vocab(r).members()[5].second = JsonValue::number("99999999999999999999");
     },
     kInvalid, "the id of"},
    {"id beyond", [](auto& r, auto&) { vocab(r).members()[700].second = JsonValue::integer(5000); },
     kLoss, "dense"},
    {"a hole",
     [](auto& r, auto&) {
       vocab(r).members().pop_back();
       merges(r) = parsed("[]");
     },
     kLoss, "dense"},
    {"empty token", [](auto& r, auto&) { vocab(r).members()[700].first = ""; }, kInvalid,
     "empty token"},
    {"raw space in a token", [](auto& r, auto&) { vocab(r).members()[700].first = "a b"; }, kLoss,
     "byte alphabet"},
    {"no single byte", [](auto& r, auto&) { vocab(r).members()[7].first = "((((((("; }, kLoss,
     "single byte 0x28"},
    {"merge of unknown left",
     [](auto& r, auto&) { merges(r).items()[0] = parsed(R"(["zzzz","a"])"); }, kLoss, "\"zzzz\""},
    {"merge of unknown right", [](auto& r, auto&) { merges(r).items()[0] = parsed(R"("a zzzz")"); },
     kLoss, "\"zzzz\""},
    {"merge into unknown", [](auto& r, auto&) { merges(r).items()[3] = parsed(R"(["z","q"])"); },
     kLoss, "merge 3 names \"zq\""},
    {"merge twice", [](auto& r, auto&) { merges(r).items()[3] = merges(r).items()[1]; }, kLoss,
     "merges 1 and 3 are the same"},
    {"merge of three", [](auto& r, auto&) { merges(r).items()[0] = parsed(R"("a b c")"); },
     kInvalid, "merge 0"},
    {"merge of one", [](auto& r, auto&) { merges(r).items()[0] = parsed(R"("ab")"); }, kInvalid,
     "merge 0"},
    {"merge a number", [](auto& r, auto&) { merges(r).items()[0] = parsed("[1]").items()[0]; },
     kInvalid, "merge 0"},
    {"merge list of three",
     [](auto& r, auto&) { merges(r).items()[0] = parsed(R"(["a","b","c"])"); }, kInvalid,
     "merge 0"},
    {"WordPiece",
     [](auto& r, auto&) { at(r, "model").set("type", JsonValue::string("WordPiece")); }, kUnsup,
     "only BPE"},
    {"dropout", [](auto& r, auto&) { at(r, "model").set("dropout", JsonValue::real(0.1)); }, kUnsup,
     "dropout"},
    {"unk", [](auto& r, auto&) { at(r, "model").set("unk_token", JsonValue::string("<unk>")); },
     kUnsup, "unk_token"},
    {"byte_fallback",
     [](auto& r, auto&) { at(r, "model").set("byte_fallback", JsonValue::boolean(true)); }, kUnsup,
     "byte_fallback"},
    {"ignore_merges",
     [](auto& r, auto&) { at(r, "model").set("ignore_merges", JsonValue::boolean(true)); }, kUnsup,
     "ignore_merges"},
    {"suffix",
     [](auto& r, auto&) { at(r, "model").set("end_of_word_suffix", JsonValue::string("</w>")); },
     kUnsup, "end_of_word_suffix"},
    {"NFKC", [](auto& r, auto&) { at(r, "normalizer") = parsed(R"({"type":"NFKC"})"); }, kUnsup,
     "\"NFKC\""},
    {"no normalizer", [](auto& r, auto&) { at(r, "normalizer") = JsonValue(); }, kUnsup,
     "only NFC"},
    {"two normalizers",
     [](auto& r, auto&) {
       at(r, "normalizer") =
           parsed(R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})");
     },
     kUnsup, "only NFC"},
    {"no pre_tokenizer", [](auto& r, auto&) { erase(r, "pre_tokenizer"); }, kUnsup,
     "pre_tokenizer"},
    {"pre_tokenizer ByteLevel",
     [](auto& r, auto&) { at(r, "pre_tokenizer") = parsed(R"({"type":"ByteLevel"})"); }, kUnsup,
     "pre_tokenizer"},
    {"another regex",
     [](auto& r, auto&) { pre(r, 0).set("pattern", parsed(R"({"Regex":"\\s+"})")); }, kUnsup,
     "neither of the two"},
    {"a string pattern",
     [](auto& r, auto&) { pre(r, 0).set("pattern", parsed(R"({"String":" "})")); }, kUnsup,
     "no Regex"},
    {"inverted", [](auto& r, auto&) { pre(r, 0).set("invert", JsonValue::boolean(true)); }, kUnsup,
     "invert"},
    {"removed", [](auto& r, auto&) { pre(r, 0).set("behavior", JsonValue::string("Removed")); },
     kUnsup, "Isolated"},
    {"use_regex", [](auto& r, auto&) { pre(r, 1).set("use_regex", JsonValue::boolean(true)); },
     kUnsup, "use_regex"},
    {"use_regex by default", [](auto& r, auto&) { erase(pre(r, 1), "use_regex"); }, kUnsup,
     "use_regex"},
    {"prefix space",
     [](auto& r, auto&) { pre(r, 1).set("add_prefix_space", JsonValue::boolean(true)); }, kUnsup,
     "add_prefix_space"},
    {"decoder", [](auto& r, auto&) { at(r, "decoder") = parsed(R"({"type":"WordPiece"})"); },
     kUnsup, "decoder"},
    {"template",
     [](auto& r, auto&) { r.set("post_processor", parsed(R"({"type":"TemplateProcessing"})")); },
     kUnsup, "post_processor"},
    {"truncation", [](auto& r, auto&) { r.set("truncation", parsed(R"({"max_length":4})")); },
     kUnsup, "truncation"},
    {"added is an object", [](auto& r, auto&) { at(r, "added_tokens") = parsed("{}"); }, kInvalid,
     "not an array"},
    {"added twice", [](auto& r, auto&) { added(r, 1).set("id", JsonValue::integer(940)); }, kLoss,
     "two added tokens have id 940"},
    {"added content twice",
     [](auto& r, auto&) {
       added(r, 1) = added(r, 0);
       added(r, 1).set("id", JsonValue::integer(941));
     },
     kLoss, "added token 940 is too"},
    {"added without id", [](auto& r, auto&) { erase(added(r, 1), "id"); }, kInvalid, "no \"id\""},
    {"added without content", [](auto& r, auto&) { erase(added(r, 1), "content"); }, kInvalid,
     "no \"content\""},
    {"added empty", [](auto& r, auto&) { added(r, 1).set("content", JsonValue::string("")); },
     kInvalid, "is empty"},
    {"added too long",
     [](auto& r, auto&) { added(r, 1).set("content", JsonValue::string(std::string(2000, 'x'))); },
     StatusCode::kResourceExhausted, "limit is 1024"},
    {"added normalized",
     [](auto& r, auto&) { added(r, 1).set("normalized", JsonValue::boolean(true)); }, kUnsup,
     "normalized"},
    {"added lstrip", [](auto& r, auto&) { added(r, 1).set("lstrip", JsonValue::boolean(true)); },
     kUnsup, "lstrip"},
    {"added in the byte alphabet",
     [](auto& r, auto&) { added(r, 1).set("content", JsonValue::string("\u0120x")); }, kUnsup,
     "other bytes"},
    {"added over a base id", [](auto& r, auto&) { added(r, 1).set("id", JsonValue::integer(5)); },
     kLoss, "the vocabulary has"},
    {"added spelled as a base token",
     [](auto& r, auto&) { added(r, 1).set("content", JsonValue::string("(")); }, kLoss, "at id 7"},
    {"config not an object", [](auto&, auto& c) { c = parsed("[]"); }, kInvalid, "not an object"},
    {"config decoder a list", [](auto&, auto& c) { at(c, "added_tokens_decoder") = parsed("[]"); },
     kInvalid, "not an object"},
    {"config content differs",
     [](auto&, auto& c) { config_token(c, "942").set("content", JsonValue::string("<|end|>")); },
     kLoss, "but tokenizer.json has \"<|im_end|>\""},
    {"config special differs",
     [](auto&, auto& c) { config_token(c, "942").set("special", JsonValue::boolean(false)); },
     kLoss, "special: false"},
    {"config id no number",
     [](auto&, auto& c) { at(c, "added_tokens_decoder").members()[0].first = "9x"; }, kInvalid,
     "no id"},
    {"config id far away",
     [](auto&, auto& c) { at(c, "added_tokens_decoder").members()[9].first = "1000"; }, kLoss,
     "dense"},
    {"config id huge",
     [](auto&, auto& c) { at(c, "added_tokens_decoder").members()[9].first = "4294967296"; },
     kInvalid, "no id"},
    {"config token no object",
     [](auto&, auto& c) { at(c, "added_tokens_decoder").members()[9].second = JsonValue(); },
     kInvalid, "content"},
};

TEST(TokenizerJson, EachFaultIsNamedInOneLine) {
  const JsonValue root = golden_json("tokenizer.json");
  const JsonValue config = golden_json("tokenizer_config.json");
  ASSERT_TRUE(
      parse_tokenizer_spec(dump_json(root), dump_json(config)).ok());  // unchanged, it loads
  for (const Case& c : kCases) {
    JsonValue changed_root = root, changed_config = config;
    c.change(changed_root, changed_config);
    const auto spec = parse_tokenizer_spec(dump_json(changed_root), dump_json(changed_config));
    ASSERT_FALSE(spec.ok()) << c.name;
    EXPECT_EQ(spec.status().code(), c.code) << c.name << ": " << spec.status().message();
    EXPECT_NE(spec.status().message().find(c.message), std::string::npos)
        << c.name << ": " << spec.status().message();
    EXPECT_EQ(spec.status().message().find('\n'), std::string::npos) << c.name;
    EXPECT_TRUE(is_valid_utf8(spec.status().message())) << c.name;
  }
}

TEST(TokenizerJson, TextThatIsNoJson) {
  const std::string root = dump_json(golden_json("tokenizer.json"));
  for (const std::string_view text :
       {"", "{", "[]", "null", "{\"model\":{\"vocab\":{\"\xFF\":1}}}", "{} {}"}) {
    EXPECT_FALSE(parse_tokenizer_spec(text, "").ok()) << text;
  }
  for (const std::string_view text : {"{", "[]", "{\"a\":\"\xFF\"}", "{} {}"}) {
    EXPECT_FALSE(parse_tokenizer_spec(root, text).ok()) << text;
  }
}

TEST(TokenizerJson, ATokenTwiceIsRefused) {
  std::string text = dump_json(golden_json("tokenizer.json"));
  text.insert(text.find("\"vocab\":{") + 9, "\"!\":940,");
  const auto spec = parse_tokenizer_spec(text, "");
  ASSERT_FALSE(spec.ok());
  EXPECT_NE(spec.status().message().find("twice"), std::string::npos) << spec.status().message();
}

TEST(TokenizerJson, BothSpellingsOfMergesAreTheSame) {
  JsonValue root = golden_json("tokenizer.json");
  const auto pairs = parse_tokenizer_spec(dump_json(root), "");
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  for (JsonValue& item : merges(root).items()) {
    item = JsonValue::string(item.items()[0].text() + " " + item.items()[1].text());
  }
  auto& items = merges(root).items();
  items.insert(items.begin(), JsonValue::string("#version: 0.2"));
  const auto strings = parse_tokenizer_spec(dump_json(root), "");
  ASSERT_TRUE(strings.ok()) << strings.status().message();
  ASSERT_EQ(strings->merges.size(), pairs->merges.size());
  for (size_t i = 0; i < pairs->merges.size(); ++i) {
    EXPECT_EQ(strings->merges[i].left, pairs->merges[i].left);
    EXPECT_EQ(strings->merges[i].result, pairs->merges[i].result);
  }
}

TEST(TokenizerJson, AddedTokensComeFromBothFiles) {
  const std::string root = dump_json(golden_json("tokenizer.json"));
  EXPECT_EQ(parse_tokenizer_spec(root, "")->added_tokens.size(), 8u);
  EXPECT_EQ(parse_tokenizer_spec(root, "{}")->added_tokens.size(), 8u);
  const auto both = parse_tokenizer_spec(root, dump_json(golden_json("tokenizer_config.json")));
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->added_tokens.size(), 10u);
  EXPECT_EQ(both->token_bytes.size(), static_cast<size_t>(kGoldenDefined));
}

TEST(TokenizerJson, AnAddedTokenMayBeInTheVocabularyToo) {
  JsonValue root = golden_json("tokenizer.json");
  vocab(root).set("<|endoftext|>", JsonValue::integer(940));
  EXPECT_TRUE(parse_tokenizer_spec(dump_json(root), "").ok());
}

TEST(TokenizerJson, RegexComesFromTheText) {
  JsonValue root = golden_json("tokenizer.json");
  EXPECT_EQ(parse_tokenizer_spec(dump_json(root), "")->regex, PreTokenizerRegex::kWithMarks);
  JsonValue pattern = JsonValue::object();
  pattern.set("Regex", JsonValue::string(std::string(kQwen2RegexText)));
  pre(root, 0).set("pattern", pattern);
  EXPECT_EQ(parse_tokenizer_spec(dump_json(root), "")->regex, PreTokenizerRegex::kQwen2);
}

TEST(TokenizerJson, LoadNamesTheFolder) {
  const auto missing = Tokenizer::load(golden_dir() / "nothing", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
