// Power cuts while checkpoints are saved.
#include <sys/stat.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/support/catch.h"
#include "tests/support/power_cut.h"

namespace longhand::train {
namespace {

using test::Call;
using test::Contents;

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

/// The calls of saves one after the other. After each, a folder is made in "saved".
std::vector<Call> record_saves(int64_t saves, int64_t size) {
  const test::TemporaryDirectory folder;
  std::filesystem::create_directory(folder / "saved");
  return test::record_calls(folder.path(), [&] {
    for (int64_t step = 0; step < saves; ++step) {
      save(folder / "last.h5", numbered(step, size));
      mkdir((folder / ("saved/" + std::to_string(step))).c_str(), 0777);
    }
    return 0;
  });
}

struct Outcome {
  int64_t prefixes = 0, states = 0, lost = 0;
};

/// Every prefix of the calls, with everything that a power cut may leave: after save i returned that
/// must be checkpoint i, or i + 1 while that is saved.
Outcome cut_everywhere(const std::vector<Call>& calls, int64_t size) {
  Outcome out;
  test::Disk disk;
  std::mt19937_64 random(1);
  std::optional<Contents> old;
  Contents next = contents(numbered(0, size));
  int64_t saves = 0;
  const auto cut = [&] {
    ++out.prefixes;
    disk.for_each_cut(1000, random, [&](const test::Image& image) {
      ++out.states;
      const auto found = image.find("last.h5");
      const auto state = found == image.end() ? std::nullopt : found->second;
      out.lost += state != old && state != next;
    });
  };
  cut();
  for (const Call& call : calls) {
    if (call.kind == Call::make_folder) {
      old = next;
      next = contents(numbered(++saves, size));
      out.prefixes -= 1;  // this is not a call of a save
    } else {
      disk.apply(call);
    }
    cut();
  }
  return out;
}

/// The calls without syncing files, or folders.
std::vector<Call> without(std::vector<Call> calls, bool folders) {
  std::erase_if(calls, [&](const Call& call) {
    return call.kind == Call::sync && call.path.empty() == folders;
  });
  return calls;
}

}  // namespace

TEST_CASE("a power cut at any moment leaves the old or the new checkpoint") {
  const int64_t size = 500;
  const std::vector<Call> calls = record_saves(3, size);
  REQUIRE(calls.size() >= 3 * 6);  // create, write, sync, rename, sync of the folder, and the mark
  const Outcome outcome = cut_everywhere(calls, size);
  CHECK(outcome.states > outcome.prefixes);
  CHECK(outcome.lost == 0);
  // The model sees what a missing fsync does.
  CHECK(cut_everywhere(without(calls, false), size).lost > 0);
  CHECK(cut_everywhere(without(calls, true), size).lost > 0);
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
