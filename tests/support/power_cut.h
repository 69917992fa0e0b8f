// Power cuts: the system calls that change files are recorded, and replayed on a model of a file system
// that loses, cuts off and zeroes what was not synced.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/files.h"

namespace longhand::test {

using Contents = std::string;

/// A system call that changed a folder, with paths relative to it; "" is the folder itself.
struct Call {
  enum Kind { create, make_folder, write, sync, rename, exchange, link, remove } kind;
  std::string path, to{};
  Contents contents{};  // of the file after a write
  pid_t process = 0;
};

/// Traces a process and those that it starts.
class Recorder {
 public:
  explicit Recorder(const std::filesystem::path& folder)
      : folder_(std::filesystem::canonical(folder)) {}

  /// The calls in the order in which they returned. The process has stopped itself.
  std::vector<Call> record(pid_t first) {
    resume_with_options(first);
    while (!entered_.empty()) {
      int status = 0;
      const pid_t process = waitpid(-1, &status, __WALL);
      if (process < 0 && errno == EINTR) continue;
      REQUIRE(process > 0);
      if (!WIFSTOPPED(status)) {
        entered_.erase(process);
        if (process == first) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        continue;
      }
      int signal = WSTOPSIG(status);
      if (signal == (SIGTRAP | 0x80)) {
        see(process);
        signal = 0;
      } else if (status >> 16 != 0 || entered_.try_emplace(process).second) {
        signal = 0;  // a new process or program
      }
      ptrace(PTRACE_SYSCALL, process, nullptr, signal);
    }
    return std::move(calls_);
  }
  /// The exit code of the first process.
  int code() const { return code_; }

 private:
  using Info = __ptrace_syscall_info;

  void resume_with_options(pid_t process) {
    entered_.try_emplace(process);
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    REQUIRE(ptrace(PTRACE_SETOPTIONS, process, nullptr, options) == 0);
    ptrace(PTRACE_SYSCALL, process, nullptr, nullptr);
  }

  void see(pid_t process) {
    Info info{};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, process, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
      entered_[process] = info;
    else if (info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.rval >= 0)
      returned(process, entered_[process].entry.nr, entered_[process].entry.args, info.exit.rval);
  }

  template <class Arguments>
  void returned(pid_t process, uint64_t number, const Arguments& a, int64_t result) {
    const auto add = [&](Call::Kind kind, const std::optional<std::string>& path,
                         const std::optional<std::string>& to = "") {
      if (!path) return;
      REQUIRE(to.has_value());  // nothing moves out
      calls_.push_back(
          {kind, *path, *to, kind == Call::write ? read_text(folder_ / *path) : "", process});
    };
    const auto named = [&](uint64_t path) { return path_of(process, AT_FDCWD, path); };
    const auto at = [&](uint64_t directory, uint64_t path) {
      return path_of(process, static_cast<int>(directory), path);
    };
    const auto opened = [&](uint64_t flags) {
      if (flags & O_CREAT) add(Call::create, file_of(process, result));
      if (flags & O_TRUNC) add(Call::write, file_of(process, result));
    };
    switch (number) {
      case SYS_openat:
        return opened(a[2]);
      case SYS_write:
      case SYS_writev:
      case SYS_pwrite64:
      case SYS_ftruncate:
      case SYS_sendfile:
        return add(Call::write, file_of(process, a[0]));
      case SYS_copy_file_range:
        return add(Call::write, file_of(process, a[2]));
      case SYS_fsync:
      case SYS_fdatasync:
        return add(Call::sync, file_of(process, a[0]));
      case SYS_mkdirat:
        return add(Call::make_folder, at(a[0], a[1]));
      case SYS_unlinkat:
        return add(Call::remove, at(a[0], a[1]));
      case SYS_linkat:
        return add(Call::link, at(a[0], a[1]), at(a[2], a[3]));
      case SYS_renameat:
        return add(Call::rename, at(a[0], a[1]), at(a[2], a[3]));
      case SYS_renameat2:
        return add(a[4] & RENAME_EXCHANGE ? Call::exchange : Call::rename, at(a[0], a[1]),
                   at(a[2], a[3]));
#ifdef SYS_open  // not on every machine
      case SYS_open:
        return opened(a[1]);
      case SYS_mkdir:
        return add(Call::make_folder, named(a[0]));
      case SYS_unlink:
      case SYS_rmdir:
        return add(Call::remove, named(a[0]));
      case SYS_link:
        return add(Call::link, named(a[0]), named(a[1]));
      case SYS_rename:
        return add(Call::rename, named(a[0]), named(a[1]));
#endif
      default:
        return;
    }
  }

  /// A path relative to the folder; nothing if it is elsewhere.
  std::optional<std::string> inside(const std::filesystem::path& path) const {
    const std::string relative = path.lexically_normal().lexically_relative(folder_).string();
    if (relative.empty() || relative.starts_with("..")) return std::nullopt;
    return relative == "."           ? ""
           : relative.ends_with('/') ? relative.substr(0, relative.size() - 1)
                                     : relative;
  }
  static std::filesystem::path link_of(pid_t process, const std::string& name) {
    std::error_code ignored;
    return std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/" + name, ignored);
  }
  /// The file of a descriptor; nothing if it is elsewhere or has been removed.
  std::optional<std::string> file_of(pid_t process, uint64_t descriptor) const {
    const auto path = link_of(process, "fd/" + std::to_string(static_cast<int>(descriptor)));
    if (path.string().ends_with(" (deleted)")) return std::nullopt;
    return inside(path);
  }
  std::optional<std::string> path_of(pid_t process, int directory, uint64_t address) const {
    const int memory =
        open(("/proc/" + std::to_string(process) + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
    std::string text;
    for (char c = 1; pread(memory, &c, 1, static_cast<off_t>(address + text.size())) == 1 && c;)
      text += c;
    close(memory);
    return inside((directory == AT_FDCWD ? link_of(process, "cwd")
                                         : link_of(process, "fd/" + std::to_string(directory))) /
                  text);
  }

  std::filesystem::path folder_;
  std::map<pid_t, Info> entered_;  // the last call of each process
  std::vector<Call> calls_;
  int code_ = -1;
};

/// Runs action() in a child process, and returns the calls that it and the processes that it starts make on
/// the files below a folder. It must return an exit code, which is required to be 0, and use one thread only.
template <class Action>
std::vector<Call> record_calls(const std::filesystem::path& folder, Action&& action) {
  const pid_t process = fork();
  REQUIRE(process >= 0);
  if (process == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    try {
      _exit(action());
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  waitpid(process, &status, 0);
  REQUIRE(WIFSTOPPED(status));
  Recorder recorder(folder);
  auto calls = recorder.record(process);
  REQUIRE(recorder.code() == 0);
  return calls;
}

/// Choices between several possibilities: all combinations of them, one after the other.
class Choices {
 public:
  /// One of 0 … count - 1.
  size_t operator()(size_t count) {
    if (at_ == taken_.size()) taken_.push_back({0, count});
    return taken_[at_++].first;
  }
  /// Goes on to the next combination; false if there is none.
  bool next() {
    at_ = 0;
    while (!taken_.empty() && ++taken_.back().first == taken_.back().second) taken_.pop_back();
    return !taken_.empty();
  }

 private:
  std::vector<std::pair<size_t, size_t>> taken_;
  size_t at_ = 0;
};

/// What a file system may keep of a file that was not synced: `now` with `synced` on the disk.
inline std::vector<Contents> kept_of(const Contents& synced, const Contents& now) {
  if (synced == now) return {now};
  // What was appended does not endanger what was there.
  const size_t safe = now.starts_with(synced) ? synced.size() : 0;
  const size_t middle = safe + (now.size() - safe) / 2;
  Contents zeros = now, hole = now, half = now.substr(0, middle);
  std::fill(zeros.begin() + static_cast<std::ptrdiff_t>(safe), zeros.end(), '\0');
  for (size_t i = middle; i < middle + (now.size() - middle + 1) / 2; ++i) hole[i] = 0;
  return {synced, now, zeros, hole, half};
}

/// A folder after a power cut: the contents of its files by path; nothing for a folder.
using Image = std::map<std::string, std::optional<Contents>>;

/// The files and folders below a folder.
inline Image image_of(const std::filesystem::path& folder) {
  Image out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    out[entry.path().lexically_relative(folder).string()] =
        entry.is_directory() ? std::nullopt : std::optional(read_text(entry.path()));
  return out;
}

/// Writes an image into a folder, which is emptied before.
inline void write_image(const Image& image, const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& [path, contents] : image)
    if (contents)
      write_text(folder / path, *contents);
    else
      std::filesystem::create_directory(folder / path);
}

/// A file system that keeps what was synced, and anything else at its pleasure.
class Disk {
 public:
  /// With these files, all synced.
  explicit Disk(const Image& image = {}) {
    for (const auto& [path, contents] : image) add(path, contents);
    for (Node& node : nodes_) node.synced_entries = node.entries;
    pending_.clear();
  }

  void apply(const Call& call) {
    const auto node = find(call.path), other = find(call.to);
    switch (call.kind) {
      case Call::create:
        if (!node) add(call.path, "");
        break;
      case Call::make_folder:
        add(call.path, std::nullopt);
        break;
      case Call::write:
        if (node) nodes_[*node].now = call.contents;
        break;
      case Call::sync:
        if (node) sync(*node);
        break;
      case Call::rename:
        if (node) change({{call.path, std::nullopt}, {call.to, node}});
        break;
      case Call::exchange:
        if (node && other) change({{call.path, other}, {call.to, node}});
        break;
      case Call::link:
        if (node) change({{call.to, node}});
        break;
      case Call::remove:
        if (node) change({{call.path, std::nullopt}});
        break;
    }
  }

  /// What a file holds before a power cut; empty if it does not exist.
  Contents now(const std::string& path) const {
    const auto node = find(path);
    return node ? nodes_[*node].now : "";
  }

  /// The folder after a power cut. choose(n) decides, 0 … n - 1, what became of each thing that was not
  /// synced: 0 if it is lost.
  template <class Choose>
  Image after_cut(Choose&& choose) const {
    std::vector<Entries> entries;
    for (const Node& node : nodes_) entries.push_back(node.synced_entries);
    for (const auto& edits : pending_)
      if (choose(2) == 1)
        for (const Edit& edit : edits) put(entries[edit.folder], edit);
    std::map<size_t, Contents> kept;  // a file may have several names
    Image out;
    const auto visit = [&](auto&& self, size_t folder, const std::string& prefix) -> void {
      for (const auto& [name, node] : entries[folder]) {
        if (nodes_[node].folder) {
          out[prefix + name] = std::nullopt;
          self(self, node, prefix + name + "/");
          continue;
        }
        if (!kept.contains(node)) {
          const auto all = kept_of(nodes_[node].synced, nodes_[node].now);
          kept[node] = all.size() == 1 ? all[0] : all[choose(all.size())];
        }
        out[prefix + name] = kept[node];
      }
    };
    visit(visit, 0, "");
    return out;
  }

  /// Calls f(image) for all folders that a power cut may leave; for some of them at random if there are
  /// more than `limit`.
  template <class Generator, class F>
  void for_each_cut(size_t limit, Generator& random, F&& f) const {
    Choices all;
    size_t count = 0;
    do f(after_cut(all));
    while (all.next() && ++count < limit);
    if (count < limit) return;
    for (size_t i = 0; i < limit; ++i) f(after_cut([&](size_t n) { return random() % n; }));
  }

 private:
  using Entries = std::map<std::string, size_t>;
  struct Node {
    bool folder = true;
    Contents now{}, synced{};
    Entries entries{}, synced_entries{};  // of a folder
  };
  struct Edit {  // of an entry of a folder
    size_t folder;
    std::string name;
    std::optional<size_t> node;  // nothing: it is removed
  };
  static void put(Entries& entries, const Edit& edit) {
    if (edit.node)
      entries[edit.name] = *edit.node;
    else
      entries.erase(edit.name);
  }
  std::optional<size_t> find(const std::filesystem::path& path) const {
    size_t node = 0;
    for (const auto& name : path) {
      const auto entry = nodes_[node].entries.find(name.string());
      if (entry == nodes_[node].entries.end()) return std::nullopt;
      node = entry->second;
    }
    return node;
  }
  /// Changes entries, all of them or none; parents that are not there have been left out of the record.
  void change(const std::vector<std::pair<std::string, std::optional<size_t>>>& paths) {
    std::vector<Edit> edits;
    for (const auto& [path, node] : paths) {
      const std::filesystem::path p(path);
      if (const auto folder = find(p.parent_path()))
        edits.push_back({*folder, p.filename().string(), node});
    }
    for (const Edit& edit : edits) put(nodes_[edit.folder].entries, edit);
    pending_.push_back(edits);
  }
  /// A new file that is synced, or a folder.
  void add(const std::string& path, const std::optional<Contents>& contents) {
    nodes_.push_back(
        {.folder = !contents, .now = contents.value_or(""), .synced = contents.value_or("")});
    change({{path, nodes_.size() - 1}});
  }
  void sync(size_t node) {
    if (!nodes_[node].folder) {
      nodes_[node].synced = nodes_[node].now;
      return;
    }
    std::erase_if(pending_, [&](const std::vector<Edit>& edits) {
      const bool here = std::any_of(edits.begin(), edits.end(),
                                    [&](const Edit& edit) { return edit.folder == node; });
      if (here)
        for (const Edit& edit : edits) put(nodes_[edit.folder].synced_entries, edit);
      return here;
    });
  }

  std::vector<Node> nodes_{1};                // the folder itself first
  std::vector<std::vector<Edit>> pending_{};  // changes that were not synced
};

}  // namespace longhand::test
