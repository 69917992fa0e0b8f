// What each target reads. See fuzz.h.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/data/bytes.h"
#include "longhand/data/dataset.h"
#include "longhand/data/file.h"
#include "longhand/data/file_guard.h"
#include "longhand/data/hdf5.h"
#include "longhand/data/listops.h"
#include "longhand/data/trailer.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/config/config.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/cost/forecast.h"
#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/drop_in.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/lab/report/reader.h"
#include "longhand/train/lab/sweep.h"
#include "longhand/train/plugin/load_plugin.h"
#include "longhand/train/results/table.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"
#include "tests/reliability/fuzz/fuzz.h"

// Of the sanitizers, where they are; <sanitizer/common_interface_defs.h> is not installed with every GCC.
extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace longhand::fuzz {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;

  Folder() {
    const fs::path memory = "/dev/shm";
    path = (fs::is_directory(memory) ? memory : fs::temp_directory_path()) /
           ("longhand-fuzz-" + std::to_string(getpid()));
    fs::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

/// Makes the task of a [data] section and reads some of its examples.
void read_task(const std::string& toml) {
  const train::Config config = train::Config::parse(toml, "fuzz");
  const data::Task task = data::make_task(config.data(), 0);
  for (const std::string& split : task.splits()) {
    const data::Dataset& dataset = task.split(split);
    data::content_hash(dataset, 16);
  }
}

/// As the program does, another process reads HDF5 files first, and those that crash libhdf5 are
/// refused: what remains must not crash this process. Each input must pass, although the files may have
/// the same name, size and time.
void guard_next_file() {
  data::set_file_guard([](const data::RegularFile& file) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit seconds{10, 10}, no_core{0, 0};
      setrlimit(RLIMIT_CPU, &seconds);
      setrlimit(RLIMIT_CORE, &no_core);
      // libFuzzer's handlers would store each input that crashes libhdf5 here as a finding.
      for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU})
        std::signal(number, SIG_DFL);
      if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(nullptr);
      data::set_file_guard([](const data::RegularFile&) {});
      try {
        train::load(file.path());
      } catch (const Error&) {
      }
      try {
        data::survey(file);
      } catch (const Error&) {
      }
      _exit(0);
    }
    int status = 0;
    check(child > 0 && waitpid(child, &status, 0) == child, "fuzz: cannot fork");
    check<DataError>(status == 0, file.path().string(), ": a process that read it ended with ",
                     status);
  });
}

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

train::TensorFile some_tensors() {
  train::TensorFile out;
  out.tensors["a.weight"] = Tensor::full({3, 2}, 0.5);
  out.tensors["a.steps"] = Tensor::full({}, 7, DType::i64);
  out.tensors["b"] = Tensor::zeros({2, 0}, DType::u8);
  out.metadata["config"] = "[model]\n";
  return out;
}

/// Throws something else than an Error, which is a defect, unless both have the same tensors.
void check_same(const train::TensorFile& a, const train::TensorFile& b) {
  bool same = a.tensors.size() == b.tensors.size();
  for (const auto& [name, tensor] : b.tensors) {
    const auto found = a.tensors.find(name);
    same = same && found != a.tensors.end() && identical(found->second, tensor);
  }
  if (!same) throw std::logic_error("tensors changed when they were written and read again");
}

/// Gives each entry of an archive, as to_npz() lays them out, the CRC of its contents.
void write_crcs(std::vector<std::byte>& archive) {
  const std::string central("PK\1\2", 4);
  for (size_t at = 0; (at = as_text(archive).find(central, at)) != std::string::npos; at += 4) {
    const auto number = [&]<class T>(uint64_t place, T) {
      return data::get<T>(archive, place, "", "");
    };
    try {
      const uint64_t size = number(at + 24, uint32_t{}), local = number(at + 42, uint32_t{});
      const uint64_t begin =
          local + 30 + number(local + 26, uint16_t{}) + number(local + 28, uint16_t{});
      const auto contents = data::part(archive, begin, size, "", "");
      const auto crc = static_cast<uint32_t>(
          crc32_z(0, reinterpret_cast<const unsigned char*>(contents.data()), contents.size()));
      std::memcpy(archive.data() + at + 16, &crc, sizeof crc);
    } catch (const Error&) {  // its fields were changed
    }
  }
}

}  // namespace

const fs::path& scratch() {
  static const Folder folder;
  return folder.path;
}

fs::path scratch_file(const std::string& name, Bytes contents) {
  const fs::path path = scratch() / name;
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(contents.data()),
            static_cast<std::streamsize>(contents.size()));
  return path;
}

void fuzz_config(Bytes input) {
  const train::Config config = train::Config::parse(text_of(input), "fuzz.toml");
  train::check_config(config);
  const std::string dumped = train::effective_config(config, nullptr);
  train::Config::parse(dumped, "dumped.toml");
}

void fuzz_sweep(Bytes input) {
  const train::Sweep sweep = train::Sweep::parse(text_of(input), "fuzz.toml", scratch());
  train::Sweep::parse(sweep.to_toml(), "resolved.toml", scratch());
}

void fuzz_listops(Bytes input) { data::listops::check_tsv(scratch_file("listops.tsv", input)); }

void fuzz_labelled_text(Bytes input) {
  const fs::path path = scratch_file("text.tsv", input);
  read_task("[data]\ntask = \"text_classification\"\npath = \"" + path.string() + "\"\n");
}

namespace {

/// Reads a file of records as labelled texts and as sequences of tokens; throws if it is neither.
void read_records(const fs::path& path) {
  const auto section = [&](const char* task) {
    return std::string("[data]\ntask = \"") + task + "\"\npath = \"" + path.string() + "\"\n";
  };
  bool accepted = true;
  try {
    read_task(section("text_classification"));
  } catch (const Error&) {
    accepted = false;
  }
  try {
    read_task(section("tokens"));
  } catch (const Error&) {
    if (!accepted) throw;
  }
}

}  // namespace

void fuzz_csv(Bytes input) { read_records(scratch_file("records.csv", input)); }

void fuzz_jsonl(Bytes input) { read_records(scratch_file("records.jsonl", input)); }

// The images are the input, the labels those of a valid file.
void fuzz_idx(Bytes input) {
  const std::string images = idx_seeds()[0], labels = idx_seeds()[1];
  const auto bytes = [](const std::string& text) {
    return Bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const bool is_labels = input.size() > 3 && input[3] == 1;
  for (const char* split : {"train", "t10k"}) {
    scratch_file(std::string(split) + "-images-idx3-ubyte", is_labels ? bytes(images) : input);
    scratch_file(std::string(split) + "-labels-idx1-ubyte", is_labels ? input : bytes(labels));
  }
  read_task("[data]\ntask = \"pixels\"\nvalidation_size = 1\npath = \"" + scratch().string() +
            "\"\n");
}

std::vector<std::string> idx_seeds() {
  std::string images({0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 3});
  for (int i = 0; i < 24; ++i) images += static_cast<char>(10 * i);
  return {images, std::string({0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 2, 1})};
}

void fuzz_hdf5(Bytes input) {
  const fs::path path = scratch_file("data.h5", input);
  guard_next_file();
  read_task("[data]\ntask = \"tokens\"\npath = \"" + path.string() + "\"\n");
}

std::vector<std::string> hdf5_seeds() {
  data::Hdf5Writer out;
  for (const char* split : {"train", "validation", "test"}) {
    const std::string group = split;
    out.put(group + "/tokens", Tensor::full({4, 6}, 3, DType::i32));
    out.put(group + "/targets", Tensor::full({4}, 1, DType::i32));
    out.put(group + "/lengths", Tensor::full({4}, 5, DType::i32));
  }
  return {as_text(out.image())};
}

// The input is the HDF5 image; the trailer with a valid digest is added.
void fuzz_checkpoint(Bytes input) {
  const auto* const first = reinterpret_cast<const std::byte*>(input.data());
  std::vector<std::byte> file(first, first + input.size());
  data::append_trailer(file, {"Longhand checkpoint", "LHCK", 2});
  const fs::path path = scratch() / "last.h5";
  data::write_file_durably(path, file);
  guard_next_file();
  train::load(path);
}

std::vector<std::string> checkpoint_seeds() {
  train::Checkpoint checkpoint;
  checkpoint.model = {{"a.weight", Tensor::full({3, 2}, 0.5)},
                      {"a.steps", Tensor::zeros({}, DType::i64)}};
  checkpoint.optimizer = {{"m.a.weight", Tensor::full({3, 2}, 0.25)}};
  checkpoint.training.interval.terms["cross_entropy"] = 1;
  checkpoint.config = "[model]\nd_model = 8\n";
  const std::string file = as_text(train::to_bytes(checkpoint));
  return {file.substr(0, file.size() - 32)};
}

// What was read can be written and read again.
void fuzz_safetensors(Bytes input) {
  const train::TensorFile file = train::from_safetensors(std::as_bytes(input), "fuzz.safetensors");
  check_same(train::from_safetensors(train::to_safetensors(file), "again"), file);
}

std::vector<std::string> safetensors_seeds() {
  const auto bytes = train::to_safetensors(some_tensors());
  return {as_text(bytes), as_text(train::to_safetensors({}))};
}

// Random changes are rarely followed by their CRC: it is computed anew, as far as headers can be found.
void fuzz_npz(Bytes input) {
  const auto read = [](std::span<const std::byte> bytes) {
    const train::TensorFile file = train::from_npz(bytes, "fuzz.npz");
    check_same(train::from_npz(train::to_npz(file), "again"), file);
  };
  std::vector<std::byte> repaired;
  data::put(repaired, std::as_bytes(input));
  write_crcs(repaired);
  try {
    read(repaired);
  } catch (const Error&) {  // refused
  }
  read(std::as_bytes(input));
}

std::vector<std::string> npz_seeds() {
  return {as_text(train::to_npz(some_tensors())), as_text(train::to_npz({}))};
}

void fuzz_text(Bytes input) {
  const fs::path path = scratch_file("text.txt", input);
  read_task("[data]\ntask = \"text_lm\"\npath = \"" + path.string() + "\"\nlength = 8\n");
}

std::vector<std::string> text_seeds() {
  return {std::string(300, 'a') + "\u00e4\u20ac\n" + std::string(300, 'b')};
}

namespace {

/// A configuration that every run of these targets has.
constexpr const char* small_toml = "[data]\ntask = \"copy\"\n[model]\nd_model = 8\n";
train::Config small_config() { return train::Config::parse(small_toml, "config.toml"); }

}  // namespace

// One assignment a line, as after --set.
void fuzz_assignments(Bytes input) {
  train::Config config = small_config();
  std::istringstream lines(text_of(input));
  for (std::string line; std::getline(lines, line);) config.assign(line);
  train::check_config(config);
}

std::vector<std::string> assignment_seeds() {
  return {"model.layers=3\nattention.type=performer\nattention.features=32\ntrain.steps=7",
          "attention.type=[\"window\", \"linear\"]\nmodel.layers=2\noptimizer.lr=1e-3"};
}

// The first line is what follows --over, the others are the file.
void fuzz_drop_in_grid(Bytes input) {
  const std::string text = text_of(input);
  const size_t end = std::min(text.find('\n'), text.size());
  train::SavedModel run;
  run.checkpoint.config = small_toml;
  const fs::path file = scratch_file("grid.toml", input.subspan(end));
  std::vector<std::string> over;
  if (end > 0) over.push_back(text.substr(0, end));
  train::drop_in_grid(run, file.string(), over);
}

std::vector<std::string> grid_seeds() {
  return {"attention.features=8,16\n[[axis]]\nattention.type = [\"linear\", \"performer\"]\n",
          "attention.type=linear,window+linear\n", "\n[[axis]]\nattention.landmarks = [8, 16]\n"};
}

namespace {

/// The directory of a run with one file changed, read as reports and sweeps do.
void read_run_with(const char* name, Bytes contents) {
  const fs::path run = scratch() / "run";
  fs::remove_all(run);
  fs::create_directories(run);
  data::write_file_durably(run / "config.toml", small_toml);
  if (name != std::string("metrics.jsonl"))
    data::write_file_durably(run / "metrics.jsonl", metrics_seeds()[0]);
  scratch_file(std::string("run/") + name, contents);
  const auto read = [&](const auto& reader) {
    try {
      reader();
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  const bool any = int{read([&] { train::read_run(run); })} +
                       int{read([&] { train::read_inputs({run}); })} +
                       int{read([&] { train::read_cell(run); })} >
                   0;
  train::last_step(run);
  check(any, "refused");
}

train::Record some_record(const char* split, int64_t step) {
  train::Record record;
  record.split = split;
  record.step = step;
  record.loss = 1.5;
  record.accuracy = 0.25;
  record.terms["cross_entropy"] = 1.25;
  return record;
}

}  // namespace

void fuzz_metrics(Bytes input) { read_run_with("metrics.jsonl", input); }

std::vector<std::string> metrics_seeds() {
  return {train::to_json(some_record("train", 1)) + "\n{\"step\":1,\"parameters\":\"0af3\"}\n" +
          train::to_json(some_record("validation", 2)) + "\n"};
}

void fuzz_summary(Bytes input) { read_run_with("summary.json", input); }

std::vector<std::string> summary_seeds() {
  train::Summary summary;
  summary.status = "finished";
  summary.task = "copy";
  summary.validation = some_record("validation", 2);
  summary.processes.resize(2);
  summary.data["train"] = "0af3";
  return {train::to_json(summary)};
}

// cell.json, or, if it begins with a digit, what follows is test.json.
void fuzz_cell(Bytes input) {
  const bool is_test = !input.empty() && input[0] == '0';
  read_run_with(is_test ? "test.json" : "cell.json", is_test ? input.subspan(1) : input);
}

std::vector<std::string> cell_seeds() {
  const fs::path folder = scratch() / "cell";
  fs::create_directories(folder);
  train::CellRecord record;
  record.variant = "linear";
  record.values.push_back({"attention.type", std::string("linear"), ""});
  record.phase = "final";
  train::write_record(folder, record);
  return {data::read_text_file(folder / "cell.json"),
          "0{\"split\": \"test\", \"loss\": 1.5, \"accuracy\": 0.5, \"step\": 20}"};
}

void fuzz_results(Bytes input) {
  const train::Results results = train::results_of_json(text_of(input), "fuzz.json");
  train::results_of_json(train::to_json(results), "again.json");
}

std::vector<std::string> results_seeds() {
  train::Results results;
  results.kind = "ablate";
  train::Table table;
  table.name = "rates";
  add_row(table,
          {{"operation", "all_reduce", "operation"}, {"loss", Estimate{1, 0.5, 1.5, 3}, "loss"}});
  results.tables.push_back(table);
  return {train::to_json(results)};
}

void fuzz_bench_results(Bytes input) {
  train::compute_of_bench(text_of(input), "softmax", "fuzz.json");
}

std::vector<std::string> bench_seeds() {
  return {R"({"kind": "bench step", "cells": [{"attention": "softmax", "length": 64,
"share_of_limit": 0.9, "machine_gflops": 100, "machine_exps_per_second": 1e9,
"machine_bytes_per_second": 1e10}]})"};
}

void fuzz_plugins(Bytes input) {
  const auto records = train::plugin_records(text_of(input), "fuzz");
  train::plugin_records(train::to_text(records), "again");
}

std::vector<std::string> plugin_seeds() {
  train::PluginRecord record;
  record.name = "mine";
  record.version = "1.0";
  return {train::to_text({record, record})};
}

}  // namespace longhand::fuzz
