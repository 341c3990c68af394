#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "golden.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

// The ids of single bytes, so that every cut of a code point happens.
Ids byte_by_byte(const Tokenizer& tokenizer, std::string_view bytes) {
  Ids ids;
  for (const char c : bytes) {
    for (int32_t id = 0; id < tokenizer.num_defined(); ++id) {
      if (tokenizer.token_bytes(id) == std::string_view(&c, 1)) ids.push_back(id);
    }
  }
  EXPECT_EQ(ids.size(), bytes.size());
  return ids;
}

void expect_stream_equals_whole(const Tokenizer& tokenizer, const Ids& ids,
                                const DecodeOptions& options) {
  std::string whole, streamed;
  ASSERT_TRUE(tokenizer.decode(ids, options, &whole).ok());
  StreamDecoder decoder(tokenizer, options);
  for (const int32_t id : ids) {
    std::string piece;
    ASSERT_TRUE(decoder.push(id, &piece).ok());
    ASSERT_TRUE(is_valid_utf8(piece));
    ASSERT_LE(decoder.num_pending_bytes(), 3u);
    streamed += piece;
  }
  decoder.finish(&streamed);
  EXPECT_EQ(streamed, whole);
  EXPECT_EQ(decoder.num_pending_bytes(), 0u);
}

TEST(StreamDecoder, EveryCutGivesTheWhole) {
  const Tokenizer tokenizer = load_golden({});
  for (const std::string_view text : {"caf\u00E9", "\U0001F469\u200D\U0001F680", "\u4F60\u597D",
                                      "\xE2\x82\xE2\x82\xAC", "\xF0\x9F\xFF\x9F", "\x80\x80"}) {
    const Ids ids = byte_by_byte(tokenizer, text);
    for (size_t length = 0; length <= ids.size(); ++length) {  // max_tokens at every byte
      expect_stream_equals_whole(
          tokenizer, Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length)), {});
    }
  }
}

TEST(StreamDecoder, RandomIdsGiveTheWhole) {
  const Tokenizer tokenizer = load_golden({});
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    Ids ids(rng() % 12);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(rng() % 2 == 0 ? rng() % 256
                                               : rng() % static_cast<uint32_t>(kGoldenDefined));
    }
    expect_stream_equals_whole(tokenizer, ids, {.skip_special = round % 2 == 0});
  }
}

TEST(StreamDecoder, TextComesAsSoonAsItIsCertain) {
  const Tokenizer tokenizer = load_golden({});
  StreamDecoder decoder(tokenizer, {});
  const auto push = [&](std::string_view byte) {
    std::string out;
    EXPECT_TRUE(decoder.push(byte_by_byte(tokenizer, byte)[0], &out).ok());
    return out;
  };
  const std::string bad(kReplacementCharacter);
  EXPECT_EQ(push("a"), "a");
  EXPECT_EQ(push("\xE2"), "");
  EXPECT_EQ(push("\x82"), "");
  EXPECT_EQ(push("\xAC"), "\u20AC");
  EXPECT_EQ(push("\xFF"), bad);  // can become nothing
  EXPECT_EQ(push("\xE2"), "");
  EXPECT_EQ(push("x"), bad + "x");
  EXPECT_EQ(push("\xED"), "");
  EXPECT_EQ(push("\xA0"), bad + bad);  // a surrogate, certain at its second byte
  EXPECT_EQ(push("\xF0"), "");
  EXPECT_EQ(push("\xE2"), bad);  // the new lead byte waits
  std::string out;
  decoder.finish(&out);
  EXPECT_EQ(out, bad);
}

TEST(StreamDecoder, AddedTokensEndWhatWasHeld) {
  const Tokenizer tokenizer = load_golden({});
  const int32_t lead = byte_by_byte(tokenizer, "\xE2")[0];
  for (const bool skip : {false, true}) {
    StreamDecoder decoder(tokenizer, {.skip_special = skip});
    std::string out;
    ASSERT_TRUE(decoder.push(lead, &out).ok());
    ASSERT_TRUE(decoder.push(*tokenizer.added_token_id("<|im_end|>"), &out).ok());
    EXPECT_EQ(out, skip ? "" : std::string(kReplacementCharacter) + "<|im_end|>");
  }
}

TEST(StreamDecoder, PaddingIsRefusedAndChangesNothing) {
  const Tokenizer tokenizer = load_golden({.vocab_size = 1000});
  StreamDecoder decoder(tokenizer, {});
  std::string out;
  ASSERT_TRUE(decoder.push(byte_by_byte(tokenizer, "\xC3")[0], &out).ok());
  EXPECT_EQ(decoder.push(990, &out).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(decoder.push(byte_by_byte(tokenizer, "\xA9")[0], &out).ok());
  EXPECT_EQ(out, "\u00E9");
}

}  // namespace
}  // namespace sluice
