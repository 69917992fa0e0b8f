#include "longhand/data/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "longhand/core/error.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using Catch::Contains;
using longhand::test::message_of;
using longhand::test::TemporaryDirectory;

namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

/// As on a full disk: a write beyond this size is short, and the next one fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t size) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = size;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("files are written and read back completely") {
  const TemporaryDirectory dir;
  const size_t size = GENERATE(0, 1, 4096, 1'000'003);
  const auto bytes = pattern(size);
  write_file_durably(dir / "a", bytes);
  CHECK(read_file(dir / "a") == bytes);
  write_file_durably(dir / "a", bytes_of("new"));
  CHECK(read_file(dir / "a") == bytes_of("new"));
  CHECK(dir.names() == std::vector<std::string>{"a"});
}

TEST_CASE("files are closed, whatever their descriptor") {
  const TemporaryDirectory dir;
  const int stdin_kept = dup(STDIN_FILENO);
  close(STDIN_FILENO);  // the next file that is opened takes its place
  write_file_durably(dir / "a", pattern(9));
  const bool is_open = fcntl(STDIN_FILENO, F_GETFD) >= 0;
  dup2(stdin_kept, STDIN_FILENO);
  close(stdin_kept);
  CHECK_FALSE(is_open);
}

TEST_CASE("files that report no size are read") {
  CHECK(read_file("/proc/self/status").size() > 100);
}

TEST_CASE("an error of reading names the file and the reason") {
  const TemporaryDirectory dir;
  CHECK_THAT(message_of<DataError>([&] { read_file(dir / "none"); }),
             Contains((dir / "none").string()) && Contains("No such file"));
  CHECK_THAT(message_of<DataError>([&] { read_file(dir.path()); }), Contains("not a regular file"));
}

TEST_CASE("an error of writing names the file and leaves no temporary file") {
  const TemporaryDirectory dir;
  CHECK_THAT(message_of<DataError>([&] { write_file_durably(dir / "no/a", pattern(9)); }),
             Contains((dir / "no/a").string()) && Contains("No such file"));
  std::filesystem::create_directory(dir / "taken");
  CHECK_THAT(message_of<DataError>([&] { write_file_durably(dir / "taken", pattern(9)); }),
             Contains("taken: cannot replace") && Contains("directory"));
  CHECK(dir.names() == std::vector<std::string>{"taken"});
}

TEST_CASE("a write that fails midway leaves the old file") {
  const TemporaryDirectory dir;
  write_file_durably(dir / "a", bytes_of("old"));

  const std::string message = message_of<DataError>([&] {
    const FileSizeLimit limit(10'000);
    write_file_durably(dir / "a", pattern(50'000));
  });

  CHECK_THAT(message, Contains("cannot write the file: File too large"));
  CHECK(read_file(dir / "a") == bytes_of("old"));
  CHECK(dir.names() == std::vector<std::string>{"a"});
}

TEST_CASE("the old file can be kept under another name") {
  const TemporaryDirectory dir;
  for (const char* const text : {"1", "2", "3"})
    write_file_durably(dir / "a", bytes_of(text), dir / "b");
  CHECK(read_text_file(dir / "a") == "3");
  CHECK(read_text_file(dir / "b") == "2");
}

TEST_CASE("text is appended completely or not at all") {
  const TemporaryDirectory dir;
  append_to_file(dir / "a", std::string(6000, 'x'));
  CHECK_THAT(message_of<DataError>([&] {
               const FileSizeLimit limit(10'000);
               append_to_file(dir / "a", std::string(6000, 'y'));
             }),
             Contains((dir / "a").string()) && Contains("File too large"));
  append_to_file(dir / "a", "z");
  sync_file(dir / "a");
  CHECK(read_text_file(dir / "a") == std::string(6000, 'x').append("z"));
}

TEST_CASE("stale temporaries are removed, those of running processes are kept") {
  const TemporaryDirectory dir;
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  REQUIRE(waitpid(dead, nullptr, 0) == dead);

  const std::string stale = ".tmp-" + std::to_string(dead) + "-0-last.h5";
  const std::string running = ".tmp-" + std::to_string(getppid()) + "-0-last.h5";
  for (const std::string& name : {stale, running, std::string(".tmp-x"), std::string("a")})
    test::write_text(dir / name, "x");
  remove_stale_temporaries(dir.path());
  auto names = dir.names();
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{running, ".tmp-x", "a"});
  CHECK_THROWS_AS(remove_stale_temporaries(dir / "none"), DataError);
}

TEST_CASE("digests are those of XXH3-128, however the bytes are split") {
  // known values of the algorithm with seed 0
  CHECK(hex(digest({})) == "99aa06d3014798d86001c324468d497f");
  CHECK(hex(digest(bytes_of("abc"))) == "06b05ab6733a618578af5f94892f3950");

  const auto bytes = pattern(10'000);
  Digester digester;
  for (size_t begin = 0, step = 1; begin < bytes.size(); begin += step, step = step * 2 + 1) {
    step = std::min(step, bytes.size() - begin);
    digester.update(std::span(bytes).subspan(begin, step));
  }
  CHECK(digester.digest() == digest(bytes));
  auto flipped = bytes;
  flipped[5000] ^= std::byte{1};
  CHECK(digest(flipped) != digest(bytes));
}
