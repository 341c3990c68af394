#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace sluice::testing {

/// A directory of its own for one test, gone afterwards.
class TempTree {
 public:
  TempTree() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
    root_ = std::filesystem::canonical(::mkdtemp(pattern.data()));
  }
  TempTree(const TempTree&) = delete;
  TempTree& operator=(const TempTree&) = delete;
  ~TempTree() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path path(std::string_view relative) const { return root_ / relative; }

  void dir(std::string_view relative) const { std::filesystem::create_directories(path(relative)); }
  void file(std::string_view relative, std::string_view content) const {
    std::filesystem::create_directories(path(relative).parent_path());
    std::ofstream(path(relative), std::ios::binary) << content;
  }
  void link(std::string_view relative, const std::filesystem::path& target) const {
    std::filesystem::create_directories(path(relative).parent_path());
    std::filesystem::create_symlink(target, path(relative));
  }
  std::string content(std::string_view relative) const {
    std::ifstream in(path(relative), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  std::filesystem::path root_;
};

}  // namespace sluice::testing
