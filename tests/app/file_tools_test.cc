#include "apps/tools/file_tools.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "apps/tools/builtin_tools.h"
#include "tests/app/temp_tree.h"

namespace sluice {
namespace {

using testing::TempTree;

class FileToolsTest : public ::testing::Test {
 protected:
  /// As the model calls it: `arguments` is JSON.
  std::string call(const std::string& name, const std::string& arguments, bool allow_write = true) {
    Result<ConfinedDir> dir = ConfinedDir::open(tree_.path("root"));
    EXPECT_TRUE(dir.ok());
    const ToolSet tools =
        builtin_tools(std::make_shared<const ConfinedDir>(std::move(dir).value()), allow_write);
    const ToolResult result = tools.run(name, *parse_json(arguments));
    EXPECT_EQ(result.failed, result.text.starts_with("error: ")) << result.text;
    return result.text;
  }

  void SetUp() override { tree_.dir("root"); }

  TempTree tree_;
};

std::string repeated(const std::string& text, int count, const std::string& separator) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : separator) + text;
  return out;
}

TEST_F(FileToolsTest, ListDir) {
  tree_.file("root/b.txt", "");
  tree_.file("root/a/x", "");
  tree_.file("root/a-b", "");
  tree_.file("root/B", "");
  tree_.file("root/.hidden", "");
  tree_.file("root/.git/config", "");
  tree_.file("root/new\nline\x1b[31m", "");
  tree_.dir("root/empty");
  tree_.link("root/to_dir", "a");
  tree_.link("root/to_outside", "..");
  EXPECT_EQ(call("list_dir", R"({"path": "."})"),
            ".hidden\nB\na/\na-b\nb.txt\nempty/\nnew?line?[31m\nto_dir/\nto_outside");
  EXPECT_EQ(call("list_dir", R"({"path": "empty"})"), "(empty)");
  EXPECT_EQ(call("list_dir", R"({"path": "no"})"), "error: no such directory: no");
  EXPECT_EQ(call("list_dir", R"({"path": "b.txt"})"), "error: not a directory: b.txt");
  EXPECT_EQ(call("list_dir", R"({"path": "../"})"), "error: path leaves the root: ../");
  EXPECT_EQ(call("list_dir", R"({"path": "to_outside"})"),
            "error: path leaves the root: to_outside");
}

TEST_F(FileToolsTest, ListDirShowsThirtyEntries) {
  for (int i = 0; i < 30; ++i) tree_.file(fmt::format("root/{:03}", i), "");
  const std::string thirty = call("list_dir", R"({"path": "."})");
  EXPECT_TRUE(thirty.ends_with("\n029")) << thirty;
  tree_.file("root/030", "");
  EXPECT_EQ(call("list_dir", R"({"path": "."})"), thirty + "\n... 1 more");
}

TEST_F(FileToolsTest, ReadFile) {
  tree_.file("root/two", "one\ntwo\n");
  tree_.file("root/open", "one\ntwo");
  tree_.file("root/crlf", "one\r\ntwo\r\n");
  tree_.file("root/empty", "");
  tree_.file("root/binary", std::string("a\0b", 3));
  tree_.file("root/latin1", "caf\xe9\n");
  tree_.dir("root/dir");
  ::mkfifo(tree_.path("root/fifo").c_str(), 0600);
  const struct {
    const char* arguments;
    const char* expected;
  } cases[] = {
      {R"({"path": "two"})", "one\ntwo"},
      {R"({"path": "open"})", "one\ntwo"},
      {R"({"path": "crlf"})", "one\ntwo"},
      {R"({"path": "two", "start_line": 2})", "two"},
      {R"({"path": "two", "start_line": 3})", "error: start_line 3 is past the end (2 lines)"},
      {R"({"path": "two", "start_line": 0})", "error: start_line 0 is not a line number"},
      {R"({"path": "two", "start_line": -9223372036854775808})",
       "error: start_line -9223372036854775808 is not a line number"},
      {R"({"path": "two", "start_line": "2"})", "error: parameter start_line must be an integer"},
      {R"({"path": "two", "start_line": 1.5})", "error: parameter start_line must be an integer"},
      {R"({"path": "two", "start_line": 99999999999999999999})",
       "error: parameter start_line must be an integer"},
      {R"({"path": "empty"})", "(empty)"},
      {R"({"path": "binary"})", "error: not a text file: binary"},
      {R"({"path": "latin1"})", "error: not a text file: latin1"},
      {R"({"path": "fifo"})", "error: not a text file: fifo"},
      {R"({"path": "dir"})", "error: is a directory: dir"},
      {R"({"path": "no"})", "error: no such file: no"},
      {R"({"path": "../two"})", "error: path leaves the root: ../two"},
      {R"({"path": "/etc/passwd"})", "error: path leaves the root: /etc/passwd"},
      {R"({})", "error: missing parameter: path"},
      {R"({"path": ["two"]})", "error: parameter path must be a string"},
  };
  for (const auto& c : cases) EXPECT_EQ(call("read_file", c.arguments), c.expected) << c.arguments;
}

TEST_F(FileToolsTest, ReadFileEndsAtFortyLinesOrTwoThousandBytes) {
  tree_.file("root/f40", repeated("x", 40, "\n") + "\n");
  tree_.file("root/f41", repeated("x", 41, "\n") + "\n");
  const std::string forty = repeated("x", 40, "\n");
  EXPECT_EQ(call("read_file", R"({"path": "f40"})"), forty);
  EXPECT_EQ(call("read_file", R"({"path": "f41"})"), forty + "\n... 1 more lines");
  // Two lines of 999 and 1,000 bytes make 2,000 with the newline between them.
  const std::string fits = std::string(999, 'a') + "\n" + std::string(1000, 'b');
  tree_.file("root/fits", fits + "\nc\n");
  EXPECT_EQ(call("read_file", R"({"path": "fits"})"), fits + "\n... 1 more lines");
  tree_.file("root/over", "a" + fits + "\n");
  EXPECT_EQ(call("read_file", R"({"path": "over"})"),
            std::string(1000, 'a') + "\n... 1 more lines");
  // A long line is cut on a code point: 1,999 bytes and half of a two-byte one.
  tree_.file("root/long", std::string(1999, 'a') + "\xc3\xa9 tail\nnext\n");
  EXPECT_EQ(call("read_file", R"({"path": "long"})"),
            std::string(1999, 'a') + " [cut]\n... 1 more lines");
}

TEST_F(FileToolsTest, FilesThatAreTooLargeAreRefused) {
  tree_.file("root/sparse", "");
  std::filesystem::resize_file(tree_.path("root/sparse"), uint64_t{1} << 40);
  EXPECT_EQ(call("read_file", R"({"path": "sparse"})"), "error: too large: sparse");
  EXPECT_EQ(call("search", R"({"pattern": "x", "path": "sparse"})"), "no matches");
}

TEST_F(FileToolsTest, Search) {
  tree_.file("root/a.txt", "  needle one \nhay\nNEEDLE\n");
  tree_.file("root/a/x.txt", "needle in a\n");
  tree_.file("root/a-b/y.txt", "needle in a-b\n");
  tree_.file("root/.git/config", "needle\n");
  tree_.file("root/build/out.txt", "needle\n");
  tree_.file("root/a/build/out.txt", "needle\n");
  tree_.file("root/a/.git", "needle in a file\n");
  tree_.file("root/binary", std::string("needle\0", 7));
  tree_.file("root/big", "needle" + std::string(kSearchFileBytesMax, 'x'));
  tree_.file("outside/z.txt", "needle outside\n");
  tree_.link("root/z_out", "../outside");
  tree_.link("root/z_in", "a");
  EXPECT_EQ(call("search", R"({"pattern": "needle", "path": "."})"),
            "a-b/y.txt:1: needle in a-b\na.txt:1: needle one\na/.git:1: needle in a file\n"
            "a/x.txt:1: needle in a");
  EXPECT_EQ(call("search", R"({"pattern": "needle", "path": "a.txt"})"), "a.txt:1: needle one");
  EXPECT_EQ(call("search", R"({"pattern": "needle", "path": "a/"})"),
            "a/.git:1: needle in a file\na/x.txt:1: needle in a");
  EXPECT_EQ(call("search", R"({"pattern": "needle", "path": "build"})"), "no matches");
  EXPECT_EQ(call("search", R"({"pattern": "needle", "path": "build/out.txt"})"), "no matches");
  EXPECT_EQ(call("search", R"({"pattern": "nothing", "path": "."})"), "no matches");
  EXPECT_EQ(call("search", R"({"pattern": "needle\nhay", "path": "."})"), "no matches");
  EXPECT_EQ(call("search", R"({"pattern": "x", "path": "no"})"), "error: no such path: no");
  EXPECT_EQ(call("search", R"({"pattern": "x", "path": "z_out"})"),
            "error: path leaves the root: z_out");
  EXPECT_EQ(call("search", R"({"path": "."})"), "error: missing parameter: pattern");
}

TEST_F(FileToolsTest, SearchShowsFifteenHitsOfHundredBytes) {
  tree_.file("root/f", repeated("hit", 15, "\n") + "\n");
  const std::string fifteen = call("search", R"({"pattern": "hit", "path": "f"})");
  EXPECT_TRUE(fifteen.ends_with("\nf:15: hit")) << fifteen;
  tree_.file("root/f", repeated("hit", 17, "\n") + "\n");
  EXPECT_EQ(call("search", R"({"pattern": "hit", "path": "f"})"), fifteen + "\n... 2 more matches");
  // White space is what Python strips; the cut is on a code point.
  tree_.file("root/g", "\xe3\x80\x80 hit" + std::string(96, 'x') + "\xc3\xa9\n");
  EXPECT_EQ(call("search", R"({"pattern": "hit", "path": "g"})"),
            "g:1: hit" + std::string(96, 'x'));
}

TEST_F(FileToolsTest, SearchEndsInEndlessTrees) {
  std::string deep = "root";
  for (int i = 0; i < 80; ++i) deep += "/d";
  tree_.file(deep + "/f", "hit\n");
  tree_.link("root/d/back", "..");
  EXPECT_EQ(call("search", R"({"pattern": "hit", "path": "."})"),
            "no matches\n... search stopped: too many files");
}

TEST_F(FileToolsTest, WriteFile) {
  tree_.dir("root/dir");
  ::mkfifo(tree_.path("root/fifo").c_str(), 0600);
  EXPECT_EQ(call("write_file", R"({"path": "a.txt", "content": "h\u00e9\n"})"),
            "wrote 4 bytes to a.txt");
  EXPECT_EQ(tree_.content("root/a.txt"), "h\xc3\xa9\n");
  EXPECT_EQ(call("write_file", R"({"path": "dir/b", "content": ""})"), "wrote 0 bytes to dir/b");
  EXPECT_EQ(call("write_file", R"({"path": "dir", "content": ""})"), "error: is a directory: dir");
  EXPECT_EQ(call("write_file", R"({"path": ".", "content": ""})"), "error: is a directory: .");
  EXPECT_EQ(call("write_file", R"({"path": "no/b", "content": ""})"),
            "error: no such directory: no");
  EXPECT_EQ(call("write_file", R"({"path": "../b", "content": ""})"),
            "error: path leaves the root: ../b");
  EXPECT_EQ(call("write_file", R"({"path": "fifo", "content": ""})"),
            "error: not a text file: fifo");
  const std::string large(kToolWriteBytesMax + 1, 'x');
  EXPECT_EQ(call("write_file", R"({"path": "c", "content": ")" + large + R"("})"),
            "error: too large");
  EXPECT_EQ(call("write_file", R"({"path": "d", "content": "x"})", false),
            "error: unknown tool: write_file");
  EXPECT_FALSE(std::filesystem::exists(tree_.path("root/d")));
}

TEST_F(FileToolsTest, UnknownToolsAreNamed) {
  EXPECT_EQ(call("rm", R"({"path": "."})"), "error: unknown tool: rm");
  EXPECT_EQ(call("", "{}"), "error: unknown tool: ");
}

}  // namespace
}  // namespace sluice
