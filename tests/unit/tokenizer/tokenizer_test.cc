#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/json.h"
#include "base/utf8.h"
#include "golden.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

const JsonValue& golden_rows() {
  static const JsonValue root = [] {
    const auto text = read_file(golden_dir() / "encodings.json", size_t{4} << 20);
    return parse_json(text.value()).value();
  }();
  return *root.find("rows");
}

Ids ids_of(const JsonValue& row, std::string_view column) {
  const JsonValue* list = row.find(column);
  if (list == nullptr) list = row.find("M_match");
  Ids ids;
  for (const JsonValue& item : list->items()) ids.push_back(static_cast<int32_t>(*item.as_int64()));
  return ids;
}

TEST(Tokenizer, GoldenEncodings) {
  const struct {
    const char* column;
    std::optional<PreTokenizerRegex> regex;
    AddedTokens added;
  } settings[] = {
      {"M_match", std::nullopt, AddedTokens::kMatch},
      {"M_ignore", PreTokenizerRegex::kWithMarks, AddedTokens::kIgnore},
      {"Q_match", PreTokenizerRegex::kQwen2, AddedTokens::kMatch},
      {"Q_ignore", PreTokenizerRegex::kQwen2, AddedTokens::kIgnore},
  };
  for (const auto& s : settings) {
    const Tokenizer tokenizer = load_golden({.regex = s.regex});
    size_t num_own = 0;  // negative control: each setting must differ from the first somewhere
    for (const JsonValue& row : golden_rows().items()) {
      const std::string& text = row.find("text")->text();
      EXPECT_EQ(tokenizer.encode(text, s.added), ids_of(row, s.column))
          << s.column << ": " << json_quote(text);
      num_own += row.find(s.column) != nullptr ? 1 : 0;
    }
    EXPECT_GE(num_own, 20u) << s.column;
    EXPECT_GE(golden_rows().items().size(), 400u);
  }
}

TEST(Tokenizer, CachedAndAppendedResultsAreTheSame) {
  const Tokenizer tokenizer = load_golden({});
  Ids joined, expected;
  for (int pass = 0; pass < 2; ++pass) {
    for (const JsonValue& row : golden_rows().items()) {
      tokenizer.encode_append(row.find("text")->text(), AddedTokens::kMatch, &joined);
      const Ids ids = ids_of(row, "M_match");
      expected.insert(expected.end(), ids.begin(), ids.end());
    }
  }
  EXPECT_EQ(joined, expected);
}

TEST(Tokenizer, TwoTokenizersInOneThreadKeepApart) {
  const Tokenizer m = load_golden({});
  const Tokenizer q = load_golden({.regex = PreTokenizerRegex::kQwen2});
  for (const JsonValue& row : golden_rows().items()) {
    const std::string& text = row.find("text")->text();
    ASSERT_EQ(m.encode(text, AddedTokens::kMatch), ids_of(row, "M_match"));
    ASSERT_EQ(q.encode(text, AddedTokens::kMatch), ids_of(row, "Q_match"));
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = load_golden({});
  const auto work = [&] {
    for (const JsonValue& row : golden_rows().items()) {
      EXPECT_EQ(tokenizer.encode(row.find("text")->text(), AddedTokens::kMatch),
                ids_of(row, "M_match"));
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
}

TEST(Tokenizer, UntrustedTextNeverHasAddedTokens) {
  const Tokenizer tokenizer = load_golden({});
  for (int32_t id = kGoldenBase; id < kGoldenDefined; ++id) {
    const std::string text = "x " + std::string(tokenizer.token_bytes(id)) + "y";
    for (const int32_t got : tokenizer.encode(text, AddedTokens::kIgnore))
      EXPECT_LT(got, kGoldenBase);
    const Ids trusted = tokenizer.encode(text, AddedTokens::kMatch);
    EXPECT_EQ(std::ranges::count(trusted, id), 1) << text;
  }
}

TEST(Tokenizer, PiecesAreOneText) {
  const Tokenizer tokenizer = load_golden({});
  const auto encoded = [&](std::span<const TextPiece> pieces) {
    Ids ids;
    tokenizer.encode_pieces(pieces, &ids);
    return ids;
  };
  for (const JsonValue& row : golden_rows().items()) {  // cut everywhere, nothing changes
    const std::string_view text = row.find("text")->text();
    const Ids whole = tokenizer.encode(text, AddedTokens::kIgnore);
    for (size_t cut = 0; cut <= std::min<size_t>(text.size(), 40); ++cut) {
      if (!is_valid_utf8(text.substr(0, cut))) continue;
      const TextPiece pieces[] = {{text.substr(0, cut), AddedTokens::kIgnore},
                                  {text.substr(cut), AddedTokens::kIgnore}};
      ASSERT_EQ(encoded(pieces), whole) << json_quote(text) << " cut at " << cut;
    }
  }
  const struct {
    std::vector<TextPiece> pieces;
    const char* same_as;  // with added tokens matched; "@" stands for "<|im_end|>" as plain text
  } cases[] = {
      {{}, ""},
      {{{"<|im_start|>user\n", AddedTokens::kMatch},
        {"\nhello", AddedTokens::kIgnore},
        {"<|im_end|>\n", AddedTokens::kMatch}},
       "<|im_start|>user\n\nhello<|im_end|>\n"},
      {{{"e", AddedTokens::kMatch}, {"\u0301", AddedTokens::kIgnore}}, "\u00E9"},
      {{{"<|im_", AddedTokens::kMatch}, {"end|>", AddedTokens::kMatch}}, "@"},
      {{{"<|im_end|>", AddedTokens::kIgnore}}, "@"},
      {{{"<|im_end|>", AddedTokens::kMatch}, {"x", AddedTokens::kIgnore}}, "<|im_end|> x"},
      {{{"a\xE2\x82", AddedTokens::kMatch}, {"\xAC", AddedTokens::kIgnore}}, "a\uFFFD\uFFFD"},
  };
  for (const auto& c : cases) {
    Ids expected = std::string_view(c.same_as) == "@"
                       ? tokenizer.encode("<|im_end|>", AddedTokens::kIgnore)
                       : tokenizer.encode(c.same_as, AddedTokens::kMatch);
    // "<|im_end|>x" is a token of its own; the piece's border keeps it apart.
    if (std::string_view(c.same_as) == "<|im_end|> x") {
      expected = {942, tokenizer.encode("x", AddedTokens::kIgnore)[0]};
    }
    EXPECT_EQ(encoded(c.pieces), expected) << c.same_as;
  }
}

TEST(Tokenizer, InvalidUtf8EncodesAsReplacementCharacters) {
  const Tokenizer tokenizer = load_golden({});
  for (const std::string_view bytes :
       {"\xFF", "a\xE2\x82", "\xE2\x82<think>\xF0\x9F\x9A x", "\xED\xA0\x80"}) {
    std::string read;
    append_lossy_utf8(bytes, &read);
    EXPECT_EQ(tokenizer.encode(bytes, AddedTokens::kMatch),
              tokenizer.encode(read, AddedTokens::kMatch));
  }
}

TEST(Tokenizer, DecodeReturnsNfcOfTheText) {
  const Tokenizer tokenizer = load_golden({});
  for (const std::string_view text :
       {"caf\u00E9 <think>\n</think>", "\u4F60\u597D \U0001F680", "<|im_end|>", ""}) {
    std::string out = "before:";
    ASSERT_TRUE(tokenizer.decode(tokenizer.encode(text, AddedTokens::kMatch), {}, &out).ok());
    EXPECT_EQ(out, "before:" + std::string(text));
  }
}

TEST(Tokenizer, SkipSpecialKeepsTheOthers) {
  const Tokenizer tokenizer = load_golden({});
  std::string out;
  const Ids ids =
      tokenizer.encode("<|im_start|>a<think>b</think><tts text>c<|im_end|>", AddedTokens::kMatch);
  ASSERT_TRUE(tokenizer.decode(ids, {.skip_special = true}, &out).ok());
  EXPECT_EQ(out, "a<think>b</think>c");
}

TEST(Tokenizer, FlagsAndLookUp) {
  const Tokenizer tokenizer = load_golden({.vocab_size = 1000});
  EXPECT_EQ(tokenizer.num_defined(), kGoldenDefined);
  EXPECT_EQ(tokenizer.vocab_size(), 1000);
  EXPECT_EQ(tokenizer.regex(), PreTokenizerRegex::kWithMarks);
  const struct {
    const char* content;
    int32_t id;
    bool special;
  } cases[] = {{"<|endoftext|>", 940, true},   {"<|im_end|>", 942, true},
               {"<tool_call>", 943, false},    {"<think>", 945, false},
               {"<|audio_start|>", 948, true}, {"<tts text>", 949, true}};
  for (const auto& c : cases) {
    EXPECT_EQ(tokenizer.added_token_id(c.content), c.id);
    EXPECT_EQ(tokenizer.token_bytes(c.id), c.content);
    EXPECT_TRUE(tokenizer.is_added(c.id));
    EXPECT_EQ(tokenizer.is_special(c.id), c.special) << c.content;
  }
  EXPECT_EQ(tokenizer.added_token_id("hello"), std::nullopt);
  for (const int32_t id : {-1, 0, kGoldenBase - 1, kGoldenDefined, 999, 1000}) {
    EXPECT_FALSE(tokenizer.is_added(id));
    EXPECT_FALSE(tokenizer.is_special(id));
  }
}

TEST(Tokenizer, IdsWithoutTextAreRefused) {
  const Tokenizer tokenizer = load_golden({.vocab_size = 1000});
  const struct {
    int32_t id;
    const char* message;
  } cases[] = {{950, "padding"}, {999, "padding"}, {1000, "outside"}, {-1, "outside"}};
  for (const auto& c : cases) {
    EXPECT_FALSE(tokenizer.is_defined(c.id));
    std::string out = "kept";
    const Status status = tokenizer.decode(Ids{1, c.id}, {.skip_special = true}, &out);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(c.message), std::string::npos) << status.message();
    EXPECT_EQ(out, "kept");
  }
  EXPECT_TRUE(tokenizer.is_defined(949));
  EXPECT_FALSE(Tokenizer::load(golden_dir(), {.vocab_size = 949}).ok());
}

TEST(Tokenizer, HostileTextTakesLinearWork) {
  const Tokenizer tokenizer = load_golden({});
  const struct {
    std::string_view unit;
    size_t size;
  } cases[] = {{"a", 10'000'000},      {" ", 10'000'000},     {"\u0301\u0323", 10'000'000},
               {"\u4F60", 10'000'000}, {"\u0301", 1'000'000}, {"<", 1'000'000},
               {"<|im_", 1'000'000},   {"\n", 1'000'000},     {"'", 1'000'000},
               {"\x80", 1'000'000},    {" \n", 1'000'000}};
  for (const auto& c : cases) {
    std::string text;
    while (text.size() < c.size) text += c.unit;
    EXPECT_GT(tokenizer.encode(text, AddedTokens::kMatch).size(), 10u) << c.unit;
  }
}

}  // namespace
}  // namespace sluice
