#include "model/safetensors.h"

#include <gtest/gtest.h>

#include "checkpoint_fixture.h"

namespace sluice {
namespace {

using test::safetensors_bytes;
using test::TempDir;
using test::write_text;

std::string parse_error(const std::string& bytes) {
  const auto entries =
      parse_safetensors_header(std::as_bytes(std::span(bytes)), bytes.size(), "a.safetensors");
  return entries.ok() ? "" : entries.status().message();
}

TEST(Safetensors, ReadsEntriesAndBytes) {
  const TempDir dir;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
      R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0],"data_offsets":[7,7]}})";
  write_text(dir.path() / "x.safetensors", safetensors_bytes(header, "ABCDEFG"));
  const Result<SafetensorsFile> file = SafetensorsFile::open(dir.path() / "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 3u);
  const TensorEntry* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, Dtype::kBf16);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{1, 2}));
  const std::span<const std::byte> bytes = file->bytes(*file->find("b"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "EFG");
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, DtypeNamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(Dtype::kBool); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_GT(dtype_bytes(dtype), 0);
  }
  EXPECT_EQ(dtype_from_name("F4"), std::nullopt);
}

// A file of one header and `num_bytes` of data.
struct BadFile {
  const char* header;
  size_t num_bytes;
  const char* message;
};
constexpr BadFile kBadFiles[] = {
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})", 7,
     "tensor a ends at byte 8 of the data, which has 7: the file is truncated"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})", 9,
     "1 bytes after the last tensor; expected none"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[2,10]}})", 10,
     "tensor a starts at byte 2 of the data; expected 0 (a gap)"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
     7, "tensor b starts at byte 3 of the data; expected 4 (tensors overlap)"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
     4, "(tensors overlap)"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
     9, "tensor b starts at byte 5 of the data; expected 4 (a gap)"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,6]}})", 6,
     "tensor a has 6 bytes; expected 8 for BF16 [4]"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[8,0]}})", 8,
     "tensor a has data_offsets [8,0]; expected [begin, end]"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[-8,0]}})", 8,
     "tensor a has data_offsets [-8,0]; expected"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8.0]}})", 8,
     "tensor a has data_offsets [0,8.0]; expected"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,18446744073709551616]}})", 8,
     "tensor a has data_offsets"},
    {R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8,8]}})", 8,
     "tensor a has data_offsets [0,8,8]"},
    {R"({"a":{"dtype":"BF16","shape":[4]}})", 8, "tensor a has no data_offsets; expected"},
    {R"({"a":{"dtype":"BF16","shape":[-4],"data_offsets":[0,8]}})", 8,
     "tensor a has shape [-4]; expected at most 8 sizes"},
    {R"({"a":{"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8,
     "tensor a has shape [4294967296,4294967296]; expected"},
    {R"({"a":{"dtype":"BF16","shape":[9223372036854775807,2],"data_offsets":[0,8]}})", 8,
     "tensor a has shape [9223372036854775807,2]; expected"},
    {R"({"a":{"dtype":"BF16","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,8]}})", 8,
     "tensor a has shape [1,1,1,1,1,1,1,1,4]; expected"},
    {R"({"a":{"dtype":"BF16","shape":4,"data_offsets":[0,8]}})", 8,
     "tensor a has shape 4; expected"},
    {R"({"a":{"dtype":"BF17","shape":[4],"data_offsets":[0,8]}})", 8,
     "tensor a has dtype \"BF17\"; expected one of"},
    {R"({"a":{"shape":[4],"data_offsets":[0,8]}})", 8, "tensor a has no dtype; expected one of"},
    {R"({"a":[1]})", 0, "tensor a is [1]; expected an object"},
    {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2, "header: JSON: the key \"a\" appears twice"},
    {R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1,
     "the key \"shape\" appears twice"},
    {"{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "header: JSON"},
    {R"({"a\nb":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1,
     "tensor a\\nb has 1 bytes; expected 2"},
    {R"([])", 0, "header: expected a JSON object"},
    {R"({"a":{"dtype":"U8","shape":[[[1]]],"data_offsets":[0,1]}})", 1,
     "header: JSON is nested deeper than 4"},
    {R"({"a":)", 0, "header: JSON"},
    {"", 0, "header: JSON"},
};

TEST(Safetensors, DamagedHeadersAreNamed) {
  for (const BadFile& bad : kBadFiles) {
    const std::string message =
        parse_error(safetensors_bytes(bad.header, std::string(bad.num_bytes, 'x')));
    EXPECT_NE(message.find(bad.message), std::string::npos)
        << bad.header << " with " << bad.num_bytes << " bytes\n  gave: " << message;
    EXPECT_EQ(message.rfind("a.safetensors: ", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Safetensors, DamagedLengths) {
  EXPECT_EQ(parse_error(""), "a.safetensors: 0 bytes; a safetensors file has at least 8");
  EXPECT_EQ(parse_error("1234567"), "a.safetensors: 7 bytes; a safetensors file has at least 8");
  EXPECT_EQ(parse_error(std::string("\x40\0\0\0\0\0\0\0{}", 10)),
            "a.safetensors: truncated: header of 64 bytes in a file of 10");
  EXPECT_EQ(
      parse_error(std::string("\x01\0\x80\0\0\0\0\0{}", 10)),
      "a.safetensors: header of 8388609 bytes; the limit is 8388608 (is this a safetensors file?)");
  EXPECT_EQ(parse_error("version https://git-lfs.github.com/spec/v1\n"),
            "a.safetensors: this is a Git LFS pointer, not the weights: fetch them (git lfs pull)");
}

TEST(Safetensors, EveryTruncationOfAGoodFileIsRefused) {
  const std::string good =
      safetensors_bytes(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", "abcd");
  ASSERT_EQ(parse_error(good), "");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(parse_error(good.substr(0, n)), "") << n;
}

}  // namespace
}  // namespace sluice
