// fuzz_corpus: runs the fuzz targets without libFuzzer.
//
//   fuzz_corpus                          every file of every corpus, and the seeds
//   fuzz_corpus TARGET FILE...           these files
//   fuzz_corpus --mutate SECONDS TARGET  random changes of them; an input that crashes, hangs or
//                                        throws something else remains in ./crash-TARGET
//   fuzz_corpus --write FOLDER           writes the corpora as folders, for libFuzzer
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "longhand/core/error.h"
#include "tests/reliability/fuzz/fuzz.h"

namespace longhand::fuzz {
namespace {

namespace fs = std::filesystem;

#define ENTRY(name, seeds) {#name, fuzz_##name, seeds},
const Entry entries[] = {LONGHAND_FUZZ_TARGETS(ENTRY)};
#undef ENTRY

constexpr size_t most_bytes = size_t{1} << 16;

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  check<DataError>(in.good(), "cannot read ", path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

const Entry& entry(const std::string& name) {
  for (const Entry& e : entries)
    if (name == e.name) return e;
  throw Error("no fuzz target " + name);
}

std::vector<std::string> corpus(const Entry& e) {
  std::vector<std::string> out;
  std::vector<fs::path> files;
  const fs::path folder = fs::path(LONGHAND_FUZZ_CORPUS) / e.name;
  if (fs::is_directory(folder))
    for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) out.push_back(contents(file));
  if (e.seeds)
    for (const std::string& seed : e.seeds()) out.push_back(seed);
  return out;
}

/// Whether the input was accepted. Other exceptions than those of the library end the program.
bool accepted(const Entry& e, const std::string& input) {
  try {
    e.run(bytes_of(input));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The input that runs, in a file that survives a crash.
class Current {
 public:
  explicit Current(const std::string& target) : path_("crash-" + target) {
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(file >= 0 && ftruncate(file, static_cast<off_t>(8 + most_bytes)) == 0, "cannot write ",
          path_);
    void* const memory = mmap(nullptr, 8 + most_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    check(memory != MAP_FAILED, "cannot map ", path_);
    memory_ = static_cast<char*>(memory);
  }
  ~Current() { ::unlink(path_.c_str()); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  /// The size stands in the first 8 bytes.
  void set(const std::string& input) {
    const uint64_t size = input.size();
    std::memcpy(memory_, &size, sizeof size);
    std::memcpy(memory_ + sizeof size, input.data(), input.size());
  }

 private:
  std::string path_;
  char* memory_;
};

/// Random changes of one input, and pieces of another.
std::string mutate(const std::vector<std::string>& from, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? size_t{0} : size_t(random() % n); };
  std::string out = from[below(from.size())];
  static const std::vector<std::string> words = {"\t",
                                                 "\n",
                                                 "[",
                                                 "]",
                                                 "{",
                                                 "}",
                                                 ",",
                                                 ":",
                                                 "\r\n",
                                                 "\"\"",
                                                 "\"",
                                                 "'''",
                                                 "=",
                                                 "0",
                                                 "-1",
                                                 "1e999",
                                                 "nan",
                                                 "inf",
                                                 "9223372036854775807",
                                                 "18446744073709551616",
                                                 "true",
                                                 "\xff\xfe",
                                                 "\\u0000",
                                                 "(",
                                                 ")",
                                                 std::string(8, '\xff'),
                                                 std::string(4, '\0'),
                                                 std::string("\0\0\0\x80", 4),
                                                 "..",
                                                 "/",
                                                 "#"};
  for (size_t n = 1 + below(4); n > 0; --n) {
    const size_t at = below(out.size() + 1), length = 1 + below(8);
    switch (below(8)) {
      case 0:
        if (at < out.size()) out[at] = static_cast<char>(out[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < out.size()) out[at] = static_cast<char>(below(256));
        break;
      case 2:
        out.insert(at, std::string(length, static_cast<char>(below(256))));
        break;
      case 3:
        out.erase(std::min(at, out.size()), length);
        break;
      case 4:
        out.resize(at);
        break;
      case 5:
        out.insert(at, words[below(words.size())]);
        break;
      case 6: {  // a piece of another input
        const std::string& other = from[below(from.size())];
        const size_t begin = below(other.size());
        out.insert(at, other.substr(begin, 1 + below(64)));
        break;
      }
      default:  // a word in place of bytes
        const std::string& word = words[below(words.size())];
        if (at + word.size() <= out.size()) out.replace(at, word.size(), word);
    }
    if (out.size() > most_bytes) out.resize(most_bytes);
  }
  return out;
}

int mutate_for(double seconds, const Entry& e, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> from = corpus(e);
  const size_t given = from.size();
  Current current(e.name);
  int64_t tried = 0, taken = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (; elapsed() < seconds; ++tried) {
    const std::string input = mutate(from, random);
    current.set(input);
    alarm(20);  // a hang ends the program
    if (!accepted(e, input)) continue;
    ++taken;
    // Accepted inputs are further starting points.
    if (from.size() < given + 256)
      from.push_back(input);
    else
      from[given + random() % 256] = input;
  }
  alarm(0);
  std::printf("%s: %lld inputs in %.0f s, %lld accepted, the others refused with a message\n",
              e.name, static_cast<long long>(tried), elapsed(), static_cast<long long>(taken));
  return 0;
}

int run_all() {
  for (const Entry& e : entries) {
    int64_t taken = 0;
    const std::vector<std::string> inputs = corpus(e);
    for (const std::string& input : inputs) taken += accepted(e, input);
    std::printf("%s: %zu inputs, %lld accepted\n", e.name, inputs.size(),
                static_cast<long long>(taken));
    // A target that refuses everything tests nothing.
    check(taken > 0, e.name, ": no input of the corpus was accepted");
  }
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return run_all();
  if (arguments[0] == "--mutate") {
    check(arguments.size() >= 3, "expected --mutate SECONDS TARGET [SEED]");
    return mutate_for(std::stod(arguments[1]), entry(arguments[2]),
                      arguments.size() > 3 ? std::stoull(arguments[3]) : 1);
  }
  if (arguments[0] == "--write") {
    check(arguments.size() == 2, "expected --write FOLDER");
    for (const Entry& e : entries) {
      const fs::path folder = fs::path(arguments[1]) / e.name;
      fs::create_directories(folder);
      int64_t number = 0;
      for (const std::string& input : corpus(e))
        std::ofstream(folder / std::to_string(number++), std::ios::binary) << input;
    }
    return 0;
  }
  const Entry& e = entry(arguments[0]);
  for (size_t i = 1; i < arguments.size(); ++i) {
    std::string input = contents(arguments[i]);
    if (fs::path(arguments[i]).filename() == std::string("crash-") + e.name) {
      uint64_t size = 0;
      check(input.size() >= sizeof size, arguments[i], " is cut off");
      std::memcpy(&size, input.data(), sizeof size);
      input = input.substr(sizeof size, size);
    }
    std::printf("%s: %s\n", arguments[i].c_str(), accepted(e, input) ? "accepted" : "refused");
  }
  return 0;
}

}  // namespace
}  // namespace longhand::fuzz

int main(int argc, char** argv) {
  try {
    return longhand::fuzz::run({argv + 1, argv + argc});
  } catch (const longhand::Error& error) {
    std::fprintf(stderr, "fuzz_corpus: %s\n", error.what());
    return 1;
  }
}
