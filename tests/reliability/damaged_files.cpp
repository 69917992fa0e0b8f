// damaged_files FOLDER [COUNT [SEED [FILE...]]]: damages checkpoints and data files in COUNT ways each, reads every one
// in a process of its own with limits of time and memory, and prints a table of outcomes. FOLDER is
// for temporary files. FILEs are further checkpoints to start from, such as those of earlier
// versions. Exits with 1 if a process crashed or hung, or read other data than were written.
//
// "guarded" are files that crash libhdf5 or take too long, which the file guard of the program refuses:
// survey() has read them in a process of its own before. In the rows "valid digest", the digest that ends a file is computed anew after the damage, so
// that only the structure of the file can be wrong: a changed number is then a valid file with
// other contents, which is no fault.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/random.h"
#include "longhand/data/dataset.h"
#include "longhand/data/file.h"
#include "longhand/data/file_guard.h"
#include "longhand/data/hdf5.h"
#include "longhand/data/tasks/stored.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/support/damage.h"

namespace longhand {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::damage;
using test::write_digest;

enum Outcome : int { equal, different, rejected, guarded, crashed, hung };
constexpr const char* outcome_names[] = {"equal",   "other contents", "rejected",
                                         "guarded", "crashed",        "hung"};

// Shared with child processes: the digest of what they read.
data::Digest* shared_digest() {
  static auto* const memory = static_cast<data::Digest*>(mmap(
      nullptr, sizeof(data::Digest), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return memory;
}

// Runs f in a process of its own, with 10 s of time; f returns a digest of what it
// has read. All reading happens there: this process has no other threads, which fork() requires.
Outcome in_child(const std::function<data::Digest()>& f, const data::Digest* expected) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit seconds{10, 10};
    setrlimit(RLIMIT_CPU, &seconds);
    const rlimit core{0, 0};
    setrlimit(RLIMIT_CORE, &core);
    alarm(30);
    // the C library's messages about a damaged heap
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    try {
      *shared_digest() = f();
      _exit(0);
    } catch (const Error&) {
      _exit(3);
    } catch (const std::bad_alloc&) {
      _exit(3);
    } catch (...) {
      _exit(99);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return signal == SIGXCPU || signal == SIGKILL || signal == SIGALRM ? hung : crashed;
  }
  if (WEXITSTATUS(status) == 3) return rejected;
  if (WEXITSTATUS(status) != 0) return crashed;
  return expected && *shared_digest() != *expected ? different : equal;
}

train::Checkpoint checkpoint(int64_t layers) {
  train::Checkpoint c;
  for (int64_t i = 0; i < layers; ++i)
    for (const char* const name : {"weight", "bias", "norm.scale"}) {
      Tensor t = Tensor::empty({1 + i % 5, 3}, DType::f32);
      for (int64_t k = 0; k < t.numel(); ++k) t.data<float>()[k] = static_cast<float>(i + k);
      const std::string full = concat_message("blocks.", i, ".", name);
      c.model[full] = c.optimizer["m." + full] = t;
    }
  c.optimizer["step"] = Tensor::from(std::vector<int64_t>{3}, {});
  c.training.step = 3;
  c.training.interval.terms = {{"cross_entropy", 1}, {"logits", 2}};
  c.config = "[train]\nsteps = 3\n";
  return c;
}

void write_data(const fs::path& path) {
  Options options("data");
  options.set("task", "mqar");
  options.set("length", std::vector<int64_t>{16, 24});
  options.set("vocabulary", int64_t{64});
  options.set("pairs", int64_t{2});
  for (const char* const size : {"train_size", "validation_size", "test_size"})
    options.set(size, int64_t{40});
  data::write_task(data::make_task(options, 1), path, 1);
}

data::Digest read_checkpoint(const fs::path& path) {
  return data::digest(train::to_bytes(train::load(path)));
}

data::Digest read_data(const fs::path& path) {
  Options options("data");
  options.set("task", "tokens");
  options.set("path", path.string());
  const data::Task task = data::make_task(options, 0);
  std::string text;
  for (const std::string& split : task.splits())
    text += concat_message(split, data::content_hash(task.split(split)));
  const data::TaskInfo& info = task.info;
  text += concat_message(info.name, ' ', info.vocabulary, ' ', info.classes, ' ', info.per_token,
                         info.causal, info.bytes, ' ', info.max_length);
  return data::digest(std::as_bytes(std::span(text)));
}

struct Row {
  std::string name;
  bool valid_digest;
  std::vector<int64_t> counts = std::vector<int64_t>(std::size(outcome_names), 0);

  bool ok() const {
    return counts[crashed] == 0 && counts[hung] == 0 && (valid_digest || counts[different] == 0);
  }
};

// Damages a file `count` times; `read` returns a digest of what it holds. Files that were read
// wrongly, crashed or hung are kept beside `damaged`.
Row attack(const std::string& name, const fs::path& original, const fs::path& damaged,
           bool valid_digest, int64_t count, uint64_t seed,
           const std::function<data::Digest(const fs::path&)>& read) {
  Row row{name, valid_digest};
  const Bytes whole = data::read_file(original);
  if (in_child([&] { return read(original); }, nullptr) != equal)
    throw Error(name + ": the undamaged file cannot be read");
  const data::Digest expected = *shared_digest();
  for (int64_t i = 0; i < count; ++i) {
    Bytes bytes = whole;
    for (Generator random = Generator(seed).fork(i); bytes == whole; random = random.fork(i))
      damage(bytes, valid_digest ? bytes.size() - 32 : bytes.size(), random);
    if (valid_digest) write_digest(bytes);
    // As the program does: a process that may crash reads it first.
    data::write_file_durably(damaged, bytes);
    const auto survey = [&] {
      try {
        train::load(damaged);
      } catch (const DataError&) {
      }
      data::survey(data::RegularFile(damaged));
      return data::Digest{};
    };
    Outcome outcome = valid_digest ? in_child(survey, nullptr) : equal;
    outcome = outcome == crashed || outcome == hung
                  ? guarded
                  : in_child([&] { return read(damaged); }, &expected);
    ++row.counts[outcome];
    const bool fault =
        outcome == crashed || outcome == hung || (outcome == different && !valid_digest);
    if (fault)
      data::write_file_durably(
          damaged.parent_path() / concat_message(outcome_names[outcome][0], "-", name, "-", i),
          bytes);
  }
  return row;
}

int main_of(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: damaged_files FOLDER [COUNT [SEED [CHECKPOINT...]]]\n");
    return 2;
  }
  const fs::path folder = argv[1];
  const int64_t count = argc > 2 ? std::stoll(argv[2]) : 10000;
  const uint64_t seed = argc > 3 ? std::stoull(argv[3]) : 1;
  fs::create_directories(folder);
  const fs::path data_file = folder / "data.h5", damaged = folder / "damaged.h5";
  std::vector<fs::path> checkpoints = {folder / "few.h5", folder / "many.h5"};
  in_child(
      [&] {
        write_data(data_file);
        train::save(checkpoints[0], checkpoint(1));
        train::save(checkpoints[1], checkpoint(30));
        return data::Digest{};
      },
      nullptr);
  for (int i = 4; i < argc; ++i) checkpoints.emplace_back(argv[i]);

  data::set_file_guard([](const data::RegularFile&) {});  // attack() does what a guard does
  std::vector<Row> rows;
  for (const bool valid : {false, true}) {
    const char* const digest = valid ? ", valid digest" : "";
    for (const fs::path& file : checkpoints)
      rows.push_back(attack(concat_message("checkpoint ", file.stem().string(), digest), file,
                            damaged, valid, count, seed, read_checkpoint));
    rows.push_back(
        attack(concat_message("data", digest), data_file, damaged, valid, count, seed, read_data));
  }
  bool ok = true;
  std::printf("%-44s", "file");
  for (const char* const name : outcome_names) std::printf(" %14s", name);
  std::printf("\n");
  for (const Row& row : rows) {
    std::printf("%-44s", row.name.c_str());
    for (const int64_t n : row.counts) std::printf(" %14ld", static_cast<long>(n));
    std::printf("%s\n", row.ok() ? "" : "  FAILED");
    ok = ok && row.ok();
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace longhand

int main(int argc, char** argv) { return longhand::main_of(argc, argv); }
