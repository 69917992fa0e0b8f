#include "longhand/data/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <utility>

#include "longhand/data/bytes.h"

namespace longhand::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_prefix = ".tmp-";

constexpr std::pair<int, const char*> remedies[] = {
    {ENOSPC, "free some space there, or choose another disk"},
    {EDQUOT, "remove some of your files there, or choose another disk"},
    {EIO, "the disk or its connection is failing; see the kernel log (dmesg)"},
    {ENAMETOOLONG, "choose a shorter path"},
    {ELOOP, "the links form a loop, expected a file or folder: remove one of them"},
    {EROFS, "choose a folder that can be written to"},
    {EMFILE, "raise the limit, ulimit -n"},
    {EACCES, "check the owner and the mode of the file and its folder with ls -ld"}};

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  throw DataError(concat_message(path.string(), ": ", what, ": ", system_reason(error)));
}

// An open file, closed by the destructor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  // Returns 0 or the error: close() may be the first to report that a write failed. The descriptor
  // is closed in any case, even after EINTR.
  int close() {
    if (fd_ < 0) return 0;
    const int result = ::close(fd_);
    fd_ = -1;
    return result == 0 || errno == EINTR ? 0 : errno;
  }

 private:
  int fd_;
};

// Returns the result of a system call, retried while signals interrupt it.
template <class F>
auto retrying(F call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int open_retrying(const fs::path& path, int flags, mode_t mode = 0) {
  return retrying([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
}

int fsync_retrying(int fd) {
  return retrying([=] { return ::fsync(fd); });
}

// EINVAL: the file system does not support syncing this kind of file, and need not.
bool is_synced(int fd) { return fsync_retrying(fd) == 0 || errno == EINVAL; }

// Makes new and changed entries of the directory durable.
void sync_directory(const fs::path& directory) {
  const Descriptor fd(open_retrying(directory, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) fail(directory, "cannot open the directory", errno);
  if (!is_synced(fd.get())) fail(directory, "cannot sync the directory", errno);
}

// Reads bytes from `begin` on, at least one except at the end; throws DataError that names `path`.
size_t read_some(int fd, const fs::path& path, uint64_t begin, std::span<std::byte> to) {
  const ssize_t count =
      retrying([&] { return ::pread(fd, to.data(), to.size(), static_cast<off_t>(begin)); });
  if (count < 0) fail(path, "cannot read the file", errno);
  return static_cast<size_t>(count);
}

// Writes all bytes; throws DataError that names `path`.
void write_all(int fd, const fs::path& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = retrying([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (count < 0) fail(path, "cannot write the file", errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

// Gives the file `path`, if it exists, the additional name `other`, or moves it there if the file
// system has no hard links.
void keep_as(const fs::path& path, const fs::path& other) {
  ::unlink(other.c_str());
  if (::link(path.c_str(), other.c_str()) == 0 || errno == ENOENT) return;
  if (::rename(path.c_str(), other.c_str()) != 0) fail(other, "cannot keep the old file", errno);
}

fs::path directory_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

std::string system_reason(int error) {
  std::string text = std::strerror(error);
  for (const auto& [of, remedy] : remedies)
    if (of == error) text += std::string("; ") + remedy;
  return text;
}

// O_NONBLOCK: opening a pipe would wait for a writer
RegularFile::RegularFile(const fs::path& path)
    : RegularFile(open_retrying(path, O_RDONLY | O_NONBLOCK), path) {}

RegularFile::RegularFile(int descriptor, const fs::path& path) : path_(path), fd_(descriptor) {
  if (fd_ < 0) fail(path, "cannot open the file", errno);
  struct stat status;
  const int error = ::fstat(fd_, &status) != 0 ? errno : 0;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    if (error != 0) fail(path, "cannot read the file", error);
    throw DataError(path.string() + ": not a regular file");
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

RegularFile RegularFile::sealed(RegularFile file) {
  const int copy = ::memfd_create("longhand", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (copy < 0) return file;
  RegularFile out(copy, file.path_);
  std::vector<std::byte> block(std::min<uint64_t>(file.size_, 1 << 20));
  for (out.size_ = 0; out.size_ < file.size_; out.size_ += block.size()) {
    block.resize(std::min<uint64_t>(block.size(), file.size_ - out.size_));
    file.read(out.size_, block);
    try {
      write_all(copy, file.path_, block);
    } catch (const DataError&) {
      return file;
    }
  }
  const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (::fcntl(copy, F_ADD_SEALS, seals) != 0) return file;
  return out;
}

RegularFile::~RegularFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RegularFile::read(uint64_t begin, std::span<std::byte> to) const {
  while (!to.empty()) {
    const size_t got = read_some(fd_, path_, begin, to);
    check<DataError>(got > 0, path_.string(), ": the file became shorter while it was read");
    to = to.subspan(got);
    begin += got;
  }
}

std::vector<std::byte> RegularFile::read_all() const {
  // One byte more than the reported size, so that the end is found without growing the buffer. Some
  // system files report no size.
  std::vector<std::byte> bytes(static_cast<size_t>(size_) + 1);
  size_t size = 0;
  for (;;) {
    if (size == bytes.size()) bytes.resize(2 * size + 4096);
    const size_t got = read_some(fd_, path_, size, std::span(bytes).subspan(size));
    if (got == 0) break;
    size += got;
  }
  bytes.resize(size);
  return bytes;
}

std::vector<std::byte> read_file(const fs::path& path) { return RegularFile(path).read_all(); }

std::string read_text_file(const fs::path& path) { return std::string(text_of(read_file(path))); }

void write_file_durably(const fs::path& path, std::string_view text) {
  write_file_durably(path, bytes_of(text));
}

void write_file_durably(const fs::path& path, std::span<const std::byte> bytes,
                        const fs::path& keep_old_as) {
  static std::atomic<uint64_t> count = 0;
  const fs::path directory = directory_of(path);
  const fs::path temporary = directory / concat_message(temporary_prefix, ::getpid(), '-', count++,
                                                        '-', path.filename().string());

  // A file of this name can only be left over from an earlier process with the same id.
  ::unlink(temporary.c_str());
  auto remove = [](const fs::path* file) { ::unlink(file->c_str()); };
  std::unique_ptr<const fs::path, decltype(remove)> guard(&temporary, remove);
  Descriptor fd(open_retrying(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666));
  if (fd.get() < 0) fail(path, "cannot create the file", errno);

  write_all(fd.get(), path, bytes);
  if (fsync_retrying(fd.get()) != 0) fail(path, "cannot sync the file", errno);
  if (const int error = fd.close()) fail(path, "cannot close the file", error);
  if (!keep_old_as.empty()) keep_as(path, keep_old_as);
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "cannot replace the file", errno);
  guard.release();  // it has its final name
  sync_directory(directory);
}

void append_to_file(const fs::path& path, std::string_view text) {
  Descriptor fd(open_retrying(path, O_WRONLY | O_CREAT | O_APPEND, 0666));
  if (fd.get() < 0) fail(path, "cannot open the file", errno);
  const off_t size = ::lseek(fd.get(), 0, SEEK_END);
  try {
    write_all(fd.get(), path, bytes_of(text));
  } catch (const DataError&) {
    // Text appended later must not follow a part of this text.
    if (size >= 0) [[maybe_unused]]
      const int ignored = ::ftruncate(fd.get(), size);
    throw;
  }
  if (const int error = fd.close()) fail(path, "cannot close the file", error);
}

void sync_file(const fs::path& path) {
  const Descriptor fd(open_retrying(path, O_RDONLY));
  if (fd.get() < 0) fail(path, "cannot open the file", errno);
  if (!is_synced(fd.get())) fail(path, "cannot sync the file", errno);
  sync_directory(directory_of(path));
}

void create_directories_durably(const fs::path& path) {
  std::vector<fs::path> missing;
  for (fs::path folder = fs::absolute(path); !fs::exists(folder); folder = folder.parent_path())
    missing.push_back(folder);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail(path, "cannot create the directory", error.value());
  for (const fs::path& folder : missing) sync_directory(folder.parent_path());
}

void remove_stale_temporaries(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(temporary_prefix)) continue;
    pid_t pid = 0;
    const char* const first = name.data() + temporary_prefix.size();
    const char* const last = name.data() + name.size();
    const auto [stop, problem] = std::from_chars(first, last, pid);
    if (problem != std::errc() || pid <= 0 || stop == last || *stop != '-') continue;
    const bool running = pid != ::getpid() && (::kill(pid, 0) == 0 || errno == EPERM);
    std::error_code ignored;
    if (!running) fs::remove_all(entry->path(), ignored);
  }
  if (error) fail(directory, "cannot list the directory", error.value());
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte b : digest)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> shift & 15];
  return text;
}

std::string text_digest(std::string_view text) { return hex(digest(bytes_of(text))); }

struct Digester::State {
  // aligned as XXH3 requires
  XXH3_state_t xxh;
};

Digester::Digester() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest Digester::digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
  Digest digest;
  std::memcpy(digest.data(), canonical.digest, digest.size());
  return digest;
}

Digest digest(std::span<const std::byte> bytes) {
  Digester digester;
  digester.update(bytes);
  return digester.digest();
}

double bytes_of_files(const fs::path& path) {
  std::error_code error;
  double bytes = 0;
  const auto add = [&](const fs::path& file) {
    const auto size = fs::file_size(file, error);
    if (!error) bytes += static_cast<double>(size);
  };
  if (fs::is_regular_file(path, error)) add(path);
  if (fs::is_directory(path, error))
    for (const auto& entry : fs::directory_iterator(path, error))
      if (entry.is_regular_file(error)) add(entry.path());
  return bytes;
}

}  // namespace longhand::data
