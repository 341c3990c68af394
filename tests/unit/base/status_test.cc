#include "base/status.h"

#include <gtest/gtest.h>

#include "base/arena.h"
#include "base/file.h"

namespace sluice {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("{} is odd; expected an even number", x);
  return x / 2;
}

Result<int> quarter(int x) {
  SLUICE_ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

TEST(Status, ErrorsPassThrough) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd; expected an even number");
  EXPECT_EQ(quarter(6).status().with_context("f").message(),
            "f: 3 is odd; expected an even number");
}

TEST(Arena, ScopesGiveBackAndPeakIsKept) {
  Arena arena = *Arena::create(4096, "test");
  arena.take<float>(16);
  {
    Arena::Scope scope(arena);
    arena.take<char>(1000);
  }
  EXPECT_EQ(arena.used(), 64u);
  EXPECT_EQ(arena.peak(), 64u + 1024u);
  EXPECT_DEATH(arena.take<char>(5000), "check failed");
}

TEST(File, MissingAndTooLarge) {
  EXPECT_EQ(read_file("/nonexistent/x", 10).status().code(), StatusCode::kNotFound);
  const Path path = Path(testing::TempDir()) / "sluice_file_test";
  ASSERT_TRUE(write_file_atomic(path, "hello").ok());
  EXPECT_EQ(*read_file(path, 5), "hello");
  EXPECT_EQ(read_file(path, 4).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(MappedFile::open(path)->bytes().size(), 5u);
}

}  // namespace
}  // namespace sluice
