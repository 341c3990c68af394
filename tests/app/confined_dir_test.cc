#include "apps/tools/confined_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/app/temp_tree.h"

namespace sluice {
namespace {

using testing::TempTree;
using Resolver = ConfinedDir::Resolver;

/// "ok:CONTENT", or the code of what went wrong.
std::string read_through(const ConfinedDir& dir, const std::string& path) {
  const Result<std::string> relative = dir.relative(path);
  if (!relative.ok()) return std::string(status_code_name(relative.status().code()));
  const Result<UniqueFd> fd = dir.open_file(*relative);
  if (!fd.ok()) return std::string(status_code_name(fd.status().code()));
  const Result<std::string> content = read_all(*fd, 1 << 20);
  return content.ok() ? "ok:" + *content : std::string(status_code_name(content.status().code()));
}

/// root/ inside a parent that holds what must never be seen.
class ConfinedDirTest : public ::testing::TestWithParam<Resolver> {
 protected:
  void SetUp() override {
    tree_.file("secret.txt", "secret");
    tree_.file("rootsibling/secret.txt", "secret");
    tree_.file("root/a.txt", "a");
    tree_.file("root/sub/b.txt", "b");
    tree_.file("root/..c", "dots");
    tree_.file("root/sub/\xc3\xa9 \xf0\x9f\x9a\x80.txt", "unicode");
    tree_.link("root/to_a", "a.txt");
    tree_.link("root/sub/up_to_a", "../a.txt");
    tree_.link("root/to_sub", "sub");
    tree_.link("root/chain", "to_sub/up_to_a");
    tree_.link("root/out_file", "../secret.txt");
    tree_.link("root/out_dir", "..");
    tree_.link("root/out_absolute", tree_.path("secret.txt"));
    tree_.link("root/in_absolute", tree_.path("root/a.txt"));
    tree_.link("root/etc", "/etc");
    tree_.link("root/proc_self", "/proc/self/root");
    tree_.link("root/sub/deep_out", "../../secret.txt");
    tree_.link("root/sub/touch_and_return", "../../root/a.txt");
    tree_.link("root/loop_1", "loop_2");
    tree_.link("root/loop_2", "loop_1");
    tree_.link("root/self", "self");
    tree_.link("root/dangling", "nothing");
    ::mkfifo(tree_.path("root/fifo").c_str(), 0600);
    tree_.link("root/to_fifo", "fifo");
  }

  ConfinedDir open() const {
    Result<ConfinedDir> dir = ConfinedDir::open(tree_.path("root"), GetParam());
    EXPECT_TRUE(dir.ok());
    return std::move(dir).value();
  }

  TempTree tree_;
};

TEST_P(ConfinedDirTest, EveryPathIsInsideOrRefused) {
  const ConfinedDir dir = open();
  const std::string root = tree_.path("root").string();
  const std::string leaves = std::string(status_code_name(StatusCode::kInvalidArgument));
  const std::string absent = std::string(status_code_name(StatusCode::kNotFound));
  const std::string wrong_kind = std::string(status_code_name(StatusCode::kUnsupported));
  const struct {
    std::string path;
    std::string expected;
  } cases[] = {
      {"a.txt", "ok:a"},
      {"./a.txt", "ok:a"},
      {"sub//b.txt", "ok:b"},
      {"a.txt/", "ok:a"},
      {"sub/../a.txt", "ok:a"},
      {"nothing/../a.txt", "ok:a"},  // ".." is lexical
      {"..c", "ok:dots"},
      {"sub/\xc3\xa9 \xf0\x9f\x9a\x80.txt", "ok:unicode"},
      {root + "/a.txt", "ok:a"},
      {root + "//sub/b.txt", "ok:b"},
      {"to_a", "ok:a"},
      {"sub/up_to_a", "ok:a"},
      {"to_sub/b.txt", "ok:b"},
      {"chain", "ok:a"},
      {"..", leaves},
      {"../secret.txt", leaves},
      {"sub/../../secret.txt", leaves},
      {"sub/../../root/a.txt", leaves},
      {"/etc/passwd", leaves},
      {"/", leaves},
      {root + "sibling/secret.txt", leaves},  // a prefix of the name is no prefix of the path
      {root + "/../secret.txt", leaves},
      {"out_file", leaves},
      {"out_dir/secret.txt", leaves},
      {"out_dir/root/a.txt", leaves},
      {"out_absolute", leaves},
      {"in_absolute", leaves},
      {"etc/passwd", leaves},
      {"proc_self/etc/passwd", leaves},
      {"sub/deep_out", leaves},
      {"sub/touch_and_return", leaves},
      {"loop_1", absent},
      {"self/x", absent},
      {"dangling", absent},
      {"nothing.txt", absent},
      {"a.txt/x", absent},
      {std::string(300, 'n'), absent},
      {std::string(5000, 'p'), absent},
      {std::string("a.txt\0.png", 10), absent},
      {"", wrong_kind},
      {".", wrong_kind},
      {"sub", wrong_kind},
      {"fifo", wrong_kind},
      {"to_fifo", wrong_kind},
  };
  for (const auto& c : cases) EXPECT_EQ(read_through(dir, c.path), c.expected) << c.path;
}

TEST_P(ConfinedDirTest, ARootWithLinksIsKnownByBothNames) {
  tree_.link("alias", "root");
  const Result<ConfinedDir> dir = ConfinedDir::open(tree_.path("alias"), GetParam());
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(read_through(*dir, tree_.path("root/a.txt").string()), "ok:a");
  EXPECT_EQ(read_through(*dir, tree_.path("alias/a.txt").string()), "ok:a");
}

/// One thread swaps a directory for a link to the outside and back; no read may see the secret.
TEST_P(ConfinedDirTest, ASwappedDirectoryNeverLeadsOutside) {
  tree_.file("outside/b.txt", "secret");
  tree_.file("root/flip/b.txt", "b");
  tree_.link("root/flip_link", "../outside");
  const ConfinedDir dir = open();
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    while (!stop.load()) {  // atomically exchanged: flip is the directory or the link, always there
      ::syscall(SYS_renameat2, AT_FDCWD, tree_.path("root/flip").c_str(), AT_FDCWD,
                tree_.path("root/flip_link").c_str(), RENAME_EXCHANGE);
    }
  });
  int num_read = 0, num_refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string got = read_through(dir, "flip/b.txt");
    ASSERT_NE(got, "ok:secret");
    (got == "ok:b" ? num_read : num_refused) += 1;
  }
  stop.store(true);
  swapper.join();
  EXPECT_GT(num_read + num_refused, 0);
}

TEST_P(ConfinedDirTest, WritesAreWholeAndStayInside) {
  const ConfinedDir dir = open();
  EXPECT_TRUE(dir.write_file("new.txt", "new").ok());
  EXPECT_EQ(tree_.content("root/new.txt"), "new");
  EXPECT_TRUE(dir.write_file("sub/b.txt", "changed").ok());
  EXPECT_EQ(tree_.content("root/sub/b.txt"), "changed");
  // A link in the place of the file is replaced; what it led to is as it was.
  EXPECT_TRUE(dir.write_file("out_file", "mine").ok());
  EXPECT_EQ(tree_.content("secret.txt"), "secret");
  EXPECT_EQ(tree_.content("root/out_file"), "mine");
  EXPECT_EQ(dir.write_file("out_dir/x.txt", "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(dir.write_file("etc/x.txt", "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(dir.write_file("nothing/x.txt", "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(dir.write_file("a.txt/x.txt", "x").code(), StatusCode::kUnsupported);
  EXPECT_FALSE(dir.write_file("sub", "x").ok());
  EXPECT_FALSE(std::filesystem::exists(tree_.path("x.txt")));
  for (const auto& entry : std::filesystem::directory_iterator(tree_.path("root"))) {
    EXPECT_FALSE(entry.path().string().ends_with(".part")) << entry.path();
  }
}

TEST_P(ConfinedDirTest, AReplacedFileKeepsItsPermissions) {
  ::chmod(tree_.path("root/a.txt").c_str(), 0751);
  EXPECT_TRUE(open().write_file("a.txt", "x").ok());
  struct stat info {};
  ASSERT_EQ(::stat(tree_.path("root/a.txt").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0751u);
}

INSTANTIATE_TEST_SUITE_P(Resolvers, ConfinedDirTest,
                         ::testing::Values(Resolver::kAuto, Resolver::kWalk),
                         [](const auto& resolver) {
                           return resolver.param == Resolver::kAuto ? "Kernel" : "Walk";
                         });

TEST(ConfinedDir, ARootThatIsNoneIsRefused) {
  TempTree tree;
  tree.file("file", "x");
  EXPECT_FALSE(ConfinedDir::open(tree.path("nothing")).ok());
  EXPECT_FALSE(ConfinedDir::open(tree.path("file")).ok());
}

}  // namespace
}  // namespace sluice
