// Power cuts: the system calls of saves are recorded, and every prefix of them is replayed on a model of
// a file system that loses, cuts off and zeroes what was not synced.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhand/data/file.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

namespace {

using Contents = std::string;

struct Call {
  enum Kind { create, open_folder, write, sync, rename, unlink } kind;
  std::string name, to;  // file names without the folder
  Contents bytes;
  int file = -1;  // descriptor
};

std::vector<Call>* recording = nullptr;
std::string recorded_folder;

/// The name of a file in the recorded folder; nothing for other paths.
std::optional<std::string> name_in_folder(const char* path) {
  if (!recording) return std::nullopt;
  const std::filesystem::path p(path);
  if (p == recorded_folder) return "";
  if (p.parent_path() != recorded_folder) return std::nullopt;
  return p.filename().string();
}

}  // namespace

// These take the place of the C library's functions in this program.
extern "C" {
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = flags & O_CREAT ? va_arg(arguments, unsigned) : 0;
  va_end(arguments);
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (const auto name = name_in_folder(path); name && file >= 0) {
    if (name->empty()) recording->push_back({Call::open_folder, "", "", "", file});
    if (flags & O_CREAT) recording->push_back({Call::create, *name, "", "", file});
  }
  return file;
}
ssize_t write(int file, const void* bytes, size_t size) {
  const ssize_t written = syscall(SYS_write, file, bytes, size);
  if (recording && written > 0)
    recording->push_back({Call::write, "", "",
                          Contents(static_cast<const char*>(bytes), static_cast<size_t>(written)),
                          file});
  return written;
}
int fsync(int file) {
  const int result = static_cast<int>(syscall(SYS_fsync, file));
  if (recording && result == 0) recording->push_back({Call::sync, "", "", "", file});
  return result;
}
int rename(const char* from, const char* to) noexcept {
  const int result = static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
  const auto name = name_in_folder(from), other = name_in_folder(to);
  if (name && other && result == 0) recording->push_back({Call::rename, *name, *other, "", -1});
  return result;
}
int unlink(const char* path) noexcept {
  const int result = static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
  if (const auto name = name_in_folder(path); name && result == 0)
    recording->push_back({Call::unlink, *name, "", "", -1});
  return result;
}
}

namespace longhand::train {
namespace {

using longhand::test::TemporaryDirectory;

/// What a file system may keep of a file that was not synced: `now` with `synced` on the disk.
std::vector<Contents> kept_of(const Contents& synced, const Contents& now) {
  if (synced == now) return {now};
  Contents zeros(now.size(), '\0'), hole = now, half = now.substr(0, now.size() / 2);
  for (size_t i = now.size() / 2; i < std::min(now.size(), now.size() / 2 + 512); ++i) hole[i] = 0;
  return {synced, now, zeros, hole, half};
}

/// A file system that keeps what was synced, and anything else at its pleasure.
class Disk {
 public:
  void apply(const Call& call) {
    switch (call.kind) {
      case Call::create:
        files_.emplace_back();
        pending_.push_back({call.name, static_cast<int>(files_.size()) - 1, ""});
        descriptors_[call.file] = static_cast<int>(files_.size()) - 1;
        break;
      case Call::open_folder:
        descriptors_[call.file] = folder;
        break;
      case Call::write:
        if (const auto it = descriptors_.find(call.file); it != descriptors_.end())
          files_[it->second].now += call.bytes;
        break;
      case Call::sync:
        if (const auto it = descriptors_.find(call.file); it == descriptors_.end()) {
        } else if (it->second == folder) {
          entries_ = with(~0U);
          pending_.clear();
        } else {
          files_[it->second].synced = files_[it->second].now;
        }
        break;
      case Call::rename:
        pending_.push_back({call.to, entry(call.name), call.name});
        break;
      case Call::unlink:
        pending_.push_back({call.name, none, ""});
        break;
    }
  }

  /// The contents that a file may have after a power cut; nothing: it does not exist.
  std::vector<std::optional<Contents>> possible(const std::string& name) const {
    std::vector<std::optional<Contents>> out;
    // Every subset of the changes of the folder that were not synced.
    for (unsigned chosen = 0; chosen < 1U << pending_.size(); ++chosen) {
      const auto entries = with(chosen);
      const auto it = entries.find(name);
      if (it == entries.end()) {
        out.push_back(std::nullopt);
        continue;
      }
      const File& file = files_[it->second];
      for (const Contents& each : kept_of(file.synced, file.now)) out.push_back(each);
    }
    return out;
  }

 private:
  static constexpr int none = -1, folder = -2;
  struct File {
    Contents now, synced;
  };
  struct Change {  // of an entry of the folder
    std::string name;
    int file;
    std::string removed;  // the name before a rename
  };

  std::map<std::string, int> with(unsigned chosen) const {
    auto entries = entries_;
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (!(chosen >> i & 1)) continue;
      const Change& change = pending_[i];
      if (!change.removed.empty()) entries.erase(change.removed);
      if (change.file == none)
        entries.erase(change.name);
      else
        entries[change.name] = change.file;
    }
    return entries;
  }
  int entry(const std::string& name) const {
    const auto entries = with(~0U);
    const auto it = entries.find(name);
    return it == entries.end() ? none : it->second;
  }

  std::vector<File> files_;
  std::map<std::string, int> entries_;  // synced
  std::vector<Change> pending_;
  std::map<int, int> descriptors_;
};

Checkpoint numbered(int64_t step, int64_t size) {
  Checkpoint out;
  out.model["weight"] = Tensor::full({size}, static_cast<double>(step));
  out.training.step = step;
  return out;
}

Contents contents(const Checkpoint& checkpoint) {
  const auto bytes = to_bytes(checkpoint);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Trace {
  std::vector<Call> calls;
  std::vector<size_t> saved;  // the number of calls when save i had returned
};

Trace record_saves(int64_t saves, int64_t size) {
  const TemporaryDirectory folder;
  Trace trace;
  recorded_folder = folder.path().string();
  for (int64_t step = 0; step < saves; ++step) {
    const Checkpoint checkpoint = numbered(step, size);
    recording = &trace.calls;
    save(folder / "last.h5", checkpoint);
    recording = nullptr;
    trace.saved.push_back(trace.calls.size());
  }
  return trace;
}

struct Outcome {
  int64_t prefixes = 0, states = 0, lost = 0;
};

/// Every prefix of the calls, with everything that a power cut may leave: after save i returned that
/// must be checkpoint i, or i + 1 while that is saved.
Outcome cut_everywhere(const Trace& trace, int64_t size) {
  Outcome out;
  Disk disk;
  std::vector<Contents> written;
  for (size_t i = 0; i < trace.saved.size(); ++i)
    written.push_back(contents(numbered(static_cast<int64_t>(i), size)));
  for (size_t done = 0; done <= trace.calls.size(); ++done) {
    if (done > 0) disk.apply(trace.calls[done - 1]);
    size_t saves = 0;
    while (saves < trace.saved.size() && trace.saved[saves] <= done) ++saves;
    ++out.prefixes;
    for (const auto& state : disk.possible("last.h5")) {
      ++out.states;
      const bool old = saves == 0 ? !state : state == written[saves - 1];
      const bool next = saves < written.size() && state == written[saves];
      out.lost += !old && !next;
    }
  }
  return out;
}

Trace without(const Trace& trace, bool folders) {
  std::map<int, bool> is_folder;
  Trace out;
  size_t save = 0;
  for (size_t i = 0; i <= trace.calls.size(); ++i) {
    while (save < trace.saved.size() && trace.saved[save] == i) {
      out.saved.push_back(out.calls.size());
      ++save;
    }
    if (i == trace.calls.size()) break;
    const Call& call = trace.calls[i];
    if (call.kind == Call::create) is_folder[call.file] = false;
    if (call.kind == Call::open_folder) is_folder[call.file] = true;
    if (call.kind == Call::sync && is_folder[call.file] == folders) continue;
    out.calls.push_back(call);
  }
  return out;
}

}  // namespace

TEST_CASE("a power cut at any moment leaves the old or the new checkpoint") {
  const int64_t size = 500;
  const Trace trace = record_saves(3, size);
  REQUIRE(trace.calls.size() >= 3 * 5);  // create, write, sync, rename, sync of the folder
  const Outcome outcome = cut_everywhere(trace, size);
  CHECK(outcome.states > outcome.prefixes);
  CHECK(outcome.lost == 0);
  // The model sees what a missing fsync does.
  CHECK(cut_everywhere(without(trace, false), size).lost > 0);
  CHECK(cut_everywhere(without(trace, true), size).lost > 0);
}

// Hidden: run by tests/reliability/figures.sh.
TEST_CASE("power cuts during many saves", "[.long]") {
  int64_t prefixes = 0, states = 0, lost = 0;
  for (const int64_t size : {0, 1, 1000, 300000}) {
    const Outcome outcome = cut_everywhere(record_saves(20, size), size);
    prefixes += outcome.prefixes;
    states += outcome.states;
    lost += outcome.lost;
  }
  std::printf(
      "%lld prefixes of the system calls of 80 saves, %lld states after a power cut: %lld lost\n",
      static_cast<long long>(prefixes), static_cast<long long>(states),
      static_cast<long long>(lost));
  CHECK(lost == 0);
}

}  // namespace longhand::train
