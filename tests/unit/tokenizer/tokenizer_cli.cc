// tokenizer_cli MODE DIR [M|Q]: the tokenizer behind a pipe, for the differential test and for timing by hand.
//
//   encode, plain   standard input [u32 num_bytes][bytes]... -> standard output [u32 num_ids][i32 ids]...
//   decode, skip    standard input [u32 num_ids][i32 ids]... -> standard output [u32 num_bytes][bytes]...
//   stream          as decode, but -1 among the ids marks where the text that is certain by then is wanted: the pieces
//                   and last what finish() gives, with a byte 0xFF (never part of UTF-8) between two of them
//   time            standard input is one text; prints MB/s of processor time, and of a second pass
// `encode` matches added tokens, `plain` does not; `skip` leaves out special tokens. M or Q overrides the regex.

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace {

using sluice::AddedTokens;
using sluice::Tokenizer;

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

std::string read_all() {
  std::string all;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) all.append(buffer, n);
  return all;
}

template <typename T>
void write_record(const T* data, size_t count) {
  const auto size = static_cast<uint32_t>(count);
  std::fwrite(&size, sizeof size, 1, stdout);
  if (count > 0) std::fwrite(data, sizeof(T), count, stdout);
}

// Calls handle(bytes) for each record whose length counts units of `unit` bytes; false when the input ends early.
template <typename Handle>
bool for_each_record(const std::string& input, size_t unit, const Handle& handle) {
  for (size_t pos = 0; pos < input.size();) {
    uint32_t count = 0;
    if (input.size() - pos < sizeof count) return false;
    std::memcpy(&count, input.data() + pos, sizeof count);
    pos += sizeof count;
    if (input.size() - pos < count * unit) return false;
    if (!handle(std::string_view(input).substr(pos, count * unit))) return false;
    pos += count * unit;
  }
  return true;
}

bool encode(const Tokenizer& tokenizer, AddedTokens added) {
  return for_each_record(read_all(), 1, [&](std::string_view text) {
    const std::vector<int32_t> ids = tokenizer.encode(text, added);
    write_record(ids.data(), ids.size());
    return true;
  });
}

std::vector<int32_t> ids_of(std::string_view record) {
  std::vector<int32_t> ids(record.size() / sizeof(int32_t));
  std::memcpy(ids.data(), record.data(), record.size());
  return ids;
}

bool decode(const Tokenizer& tokenizer, bool skip_special) {
  return for_each_record(read_all(), sizeof(int32_t), [&](std::string_view record) {
    std::string text;
    if (!tokenizer.decode(ids_of(record), {.skip_special = skip_special}, &text).ok()) return false;
    write_record(text.data(), text.size());
    return true;
  });
}

bool stream(const Tokenizer& tokenizer) {
  sluice::StreamDecoder decoder(tokenizer, {});
  return for_each_record(read_all(), sizeof(int32_t), [&](std::string_view record) {
    std::string text;
    for (const int32_t id : ids_of(record)) {
      if (id == -1) {
        text.push_back('\xFF');
      } else if (!decoder.push(id, &text).ok()) {
        return false;
      }
    }
    text.push_back('\xFF');
    decoder.finish(&text);
    write_record(text.data(), text.size());
    return true;
  });
}

bool time_encoding(const Tokenizer& tokenizer) {
  const std::string text = read_all();
  std::vector<int32_t> ids;
  for (int pass = 0; pass < 2; ++pass) {
    ids.clear();
    const double start = cpu_seconds();
    tokenizer.encode_append(text, AddedTokens::kMatch, &ids);
    const double took = cpu_seconds() - start;
    fmt::print("{} bytes, {} ids, {:.1f} MB/s\n", text.size(), ids.size(),
               static_cast<double>(text.size()) * 1e-6 / took);
  }
  return true;
}

bool run(const Tokenizer& tokenizer, std::string_view mode) {
  if (mode == "encode") return encode(tokenizer, AddedTokens::kMatch);
  if (mode == "plain") return encode(tokenizer, AddedTokens::kIgnore);
  if (mode == "decode") return decode(tokenizer, false);
  if (mode == "skip") return decode(tokenizer, true);
  if (mode == "stream") return stream(tokenizer);
  return mode == "time" && time_encoding(tokenizer);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  sluice::TokenizerOptions options;
  if (argc == 4) {
    options.regex = argv[3][0] == 'Q' ? sluice::PreTokenizerRegex::kQwen2
                                      : sluice::PreTokenizerRegex::kWithMarks;
  }
  const double start = cpu_seconds();
  const auto tokenizer = Tokenizer::load(argv[2], options);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.status().message());
    return 1;
  }
  if (std::string_view(argv[1]) == "time") {
    fmt::print("loaded in {:.0f} ms\n", (cpu_seconds() - start) * 1e3);
  }
  return run(*tokenizer, argv[1]) ? 0 : 1;
}
