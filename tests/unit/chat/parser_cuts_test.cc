// The result is a function of the text, however it is cut.

#include <gtest/gtest.h>

#include "tests/unit/chat/corpus.h"

namespace sluice::chat {
namespace {

void expect_same(const Parsed& parsed, const std::string& whole, std::string_view text) {
  ASSERT_EQ(describe(parsed.message), whole) << text;
  ASSERT_EQ(describe_events(parsed.events), whole) << text;
}

std::string whole_of(std::string_view text) {
  return describe(parse_message(text, corpus_tools(), true));
}

TEST(ParserCuts, EveryCutInTwo) {
  for (const std::string& text : raw_outputs()) {
    const std::string whole = whole_of(text);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      expect_same(parse_cut(text, std::array{cut}), whole, text.substr(0, cut));
    }
  }
}

TEST(ParserCuts, EveryByteAlone) {
  for (const std::string& text : raw_outputs()) {
    std::vector<size_t> cuts;
    for (size_t i = 1; i < text.size(); ++i) cuts.push_back(i);
    expect_same(parse_cut(text, cuts), whole_of(text), text);
  }
}

TEST(ParserCuts, RandomChunks) {
  std::mt19937 rng(11);
  for (const std::string& text : raw_outputs()) {
    const std::string whole = whole_of(text);
    for (int round = 0; round < 5; ++round) {
      std::vector<size_t> cuts;
      for (size_t at = rng() % 24; at < text.size(); at += 1 + rng() % 24) cuts.push_back(at);
      expect_same(parse_cut(text, cuts), whole, text);
    }
  }
}

TEST(ParserCuts, OrdinaryPiecesCutAnywhereBetweenControlPieces) {
  std::mt19937 rng(13);
  for (const std::string& text : raw_outputs()) {
    const auto pieces = pieces_of(text);
    const std::string whole = describe(parse_pieces(pieces, true).message);
    std::vector<std::pair<std::string, PieceKind>> cut;
    for (const auto& [piece, kind] : pieces) {
      const size_t at = kind == PieceKind::kControl ? 0 : rng() % (piece.size() + 1);
      if (at > 0) cut.emplace_back(piece.substr(0, at), kind);
      cut.emplace_back(piece.substr(at), kind);
    }
    expect_same(parse_pieces(cut, true), whole, text);
  }
}

TEST(ParserCuts, NegativeControlComparisonSeesOneByte) {
  std::string text = raw_outputs().front();
  const std::string whole = whole_of(text);
  text.at(text.find("start_line>\n") + 12) = '9';
  EXPECT_NE(whole_of(text), whole);
}

TEST(ParserCuts, InvalidUtf8IsReplacedAlikeAtEveryCut) {
  const std::string text =
      "a\xff\xe2\x82</think>\n\n\xf0\x9f\x92\xa9 "
      "b\xf0\x9f<tool_call>\n<function=write_file>\n<parameter=content>\n\xed\xa0\x80\xc3";
  const std::string whole = whole_of(text);
  EXPECT_EQ(whole,
            "reasoning \"a��\"\ncontent \"💩 b�\"\ncall write_file {\"content\":\"����\"} (cut)\n");
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    expect_same(parse_cut(text, std::array{cut}), whole, text.substr(0, cut));
  }
}

TEST(ParserCuts, ArgumentsAreOneJsonObjectAtEveryEnd) {
  for (const std::string& text : raw_outputs()) {
    for (size_t end = 0; end <= text.size(); end += 3) {
      for (const ParsedToolCall& call :
           parse_message(text.substr(0, end), corpus_tools(), true).tool_calls) {
        const Result<JsonValue> arguments = parse_json(call.arguments_json);
        ASSERT_TRUE(arguments.ok() && arguments->is_object()) << call.arguments_json;
        ASSERT_EQ(*arguments, call.arguments);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::chat
