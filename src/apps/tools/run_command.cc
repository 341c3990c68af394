#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "apps/tools/command_tools.h"
#include "apps/tools/text.h"
#include "base/fd.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 10;
constexpr size_t kOutputShownMax = 1000;

/// The input as a file: a pipe would need writing while reading, and could raise SIGPIPE.
Result<UniqueFd> input_file(std::string_view input) {
  UniqueFd fd(::memfd_create("tool-input", MFD_CLOEXEC));
  if (!fd.is_open()) return io_error("cannot make the tool's input: {}", std::strerror(errno));
  if (const Status status = write_all(fd.get(), input); !status.ok()) {
    return status.with_context("cannot write the tool's input");
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

/// A child that leads its own process group; the whole group ends with this object.
class ChildGroup {
 public:
  ChildGroup() = default;
  ChildGroup(const ChildGroup&) = delete;
  ChildGroup& operator=(const ChildGroup&) = delete;
  ~ChildGroup() {
    if (pid_ > 0) reap();
  }

  Status start(const std::string& command, const UniqueFd& input, const UniqueFd& output) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    std::string shell = "sh", flag = "-c", text = command;
    char* argv[] = {shell.data(), flag.data(), text.data(), nullptr};
    const int error = ::posix_spawn(&pid_, "/bin/sh", &actions, &attributes, argv, environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return Status();
    pid_ = 0;
    return io_error("cannot start the tool command: {}", std::strerror(error));
  }

  /// It has ended, though nobody has asked for its status yet: its id is still its own.
  bool has_exited() const {
    siginfo_t info{};
    const int rc = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return rc == 0 && info.si_pid == pid_;
  }

  /// Ends the group and gives the leader's wait status.
  int reap() {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_ = 0;
};

enum class ReadEnd { kOpen, kClosed };

/// Appends what is there now.
ReadEnd drain(const UniqueFd& fd, size_t num_bytes_max, std::string* out) {
  char chunk[4096];
  while (out->size() <= num_bytes_max) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ReadEnd::kOpen;  // nothing more for now
    if (n == 0) return ReadEnd::kClosed;
    out->append(chunk, static_cast<size_t>(n));
  }
  return ReadEnd::kOpen;
}

Status exit_status(int status, const std::string& output) {
  if (WIFSIGNALED(status)) {
    return invalid_argument("tool command was killed by signal {}", WTERMSIG(status));
  }
  if (WEXITSTATUS(status) == 0) return Status();
  return invalid_argument("tool command ended with exit status {}{}{}", WEXITSTATUS(status),
                          output.empty() ? "" : ": ",
                          cut_text(printable_text(output), kOutputShownMax));
}

/// Waits for the end, whichever it is.
Result<std::string> collect(ChildGroup* child, const UniqueFd& output,
                            const CommandLimits& limits) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(limits.timeout_s);
  std::string text;
  ReadEnd end = ReadEnd::kOpen;
  for (;;) {
    const bool exited = child->has_exited();  // before draining: nothing it wrote is missed
    if (end == ReadEnd::kOpen) end = drain(output, limits.output_bytes_max, &text);
    if (text.size() > limits.output_bytes_max) {
      return resource_exhausted("tool command wrote over {} bytes", limits.output_bytes_max);
    }
    if (exited) break;
    if (Clock::now() > deadline) {
      return resource_exhausted("tool command ran over {:g} s", limits.timeout_s);
    }
    if (limits.cancelled && limits.cancelled()) return cancelled("tool command was interrupted");
    pollfd waiting{output.get(), POLLIN, 0};
    ::poll(&waiting, end == ReadEnd::kOpen ? 1 : 0, kPollMs);
  }
  SLUICE_RETURN_IF_ERROR(exit_status(child->reap(), text));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

Result<std::string> run_command(const std::string& command, std::string_view input,
                                const CommandLimits& limits) {
  SLUICE_ASSIGN_OR_RETURN(const UniqueFd stdin_file, input_file(input));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return io_error("cannot make a pipe: {}", std::strerror(errno));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  ChildGroup child;
  SLUICE_RETURN_IF_ERROR(child.start(command, stdin_file, write_end));
  write_end = UniqueFd();
  return collect(&child, read_end, limits);
}

}  // namespace sluice
