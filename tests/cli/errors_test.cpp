// Each error is one line on stderr with its exit code, and leaves nothing behind.
#include <algorithm>
#include <filesystem>

#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> tree(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Runs the program, which must fail with `code` and one line, and returns the line.
std::string failure(const std::vector<std::string>& arguments, const TemporaryDirectory& folder,
                    int code) {
  const auto before = tree(folder.path());
  const Outcome outcome = run(arguments, folder.path());
  INFO(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out == "");
  CHECK(outcome.err.starts_with("longhand: "));
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK(outcome.err.ends_with("\n"));
  CHECK(tree(folder.path()) == before);
  return outcome.err;
}

std::vector<std::string> train_with(const std::string& assignment) {
  return {"train", "config.toml", "--quiet", "--out", "new/run", "--set", assignment};
}

/// An HDF5 file of the form that task "tokens" reads.
void write_tokens(const fs::path& path, int64_t length, int32_t target) {
  data::Hdf5Writer writer;
  for (const char* split : {"train", "validation", "test"}) {
    writer.put(std::string(split) + "/tokens", Tensor::full({8, length}, 1, DType::i32));
    writer.put(std::string(split) + "/targets", Tensor::full({8}, target, DType::i32));
  }
  writer.attribute("/", "classes", int64_t{3});
  data::write_file_durably(path, writer.image());
}

}  // namespace

TEST_CASE("errors of the command line") {
  const TinyFolder folder;
  CHECK_THAT(failure({}, folder, 2), Contains("longhand --help"));
  CHECK_THAT(failure({"trian"}, folder, 2), Contains("\"trian\"; did you mean train?"));
  CHECK_THAT(failure({"version"}, folder, 2), Contains("did you mean --version?"));
  CHECK_THAT(failure({"bench", "stpe"}, folder, 2), Contains("did you mean step?"));
  CHECK_THAT(failure({"inspect", "a.h5"}, folder, 2),
             Contains("mean longhand checkpoint inspect?"));
  CHECK_THAT(failure({"bench"}, folder, 2),
             Contains("expected a command: step, attention, decode, ranks, sequence or comm"));
  CHECK_THAT(failure({"train"}, folder, 2), Contains("CONFIG.toml"));
  CHECK_THAT(failure({"train", "config.toml", "--wrong"}, folder, 2), Contains("--wrong"));
  CHECK_THAT(failure({"train", "config.toml", "--threads", "0"}, folder, 2), Contains("threads"));
  CHECK_THAT(failure({"train", "config.toml", "--threads", "x"}, folder, 2), Contains("threads"));
  CHECK_THAT(failure({"train", "config.toml", "--seed", "-1"}, folder, 2), Contains("seed"));
  CHECK_THAT(failure({"train", "config.toml", "--seed", "9223372036854775808"}, folder, 2),
             Contains("--seed: expected an integer from 0 to 2^63-1, got 9223372036854775808"));
  CHECK_THAT(failure({"train", "config.toml", "more"}, folder, 2),
             Contains("unexpected word \"more\" (see"));
  CHECK_THAT(failure({"train", "config.toml", "--set", "train.steps=1", "-q", "more"}, folder, 2),
             Contains("\"more\"; expected section.key=value after --set"));
  CHECK_THAT(failure({"train", "config.toml", "--resume", "x"}, folder, 2),
             Contains("CONFIG.toml and --resume exclude each other"));
  CHECK_THAT(failure({"train", "config.toml", "--out", "-q"}, folder, 2),
             Contains("--out: expected DIR, got the flag -q; write --out=./-q"));
  CHECK_THAT(failure({"train", "config.toml", "--out"}, folder, 2),
             Contains("--out: expected DIR ("));
  CHECK_THAT(failure({"evaluate"}, folder, 2), Contains("DIR is required"));
  CHECK_THAT(failure({"evaluate", ""}, folder, 2),
             Contains("DIR: expected DIR, got an empty text"));
  CHECK_THAT(failure({"predict", "x", "--data", ""}, folder, 2),
             Contains("--data: expected FILE, got an empty text (is a shell variable unset?)"));
  CHECK_THAT(failure({"variants", "--plugin", ""}, folder, 2), Contains("expected FILE.so, got"));
  CHECK_THAT(failure({"generate", "x", "--temperature", "1e400"}, folder, 2),
             Contains("expected a number from 0 to 1e18, got 1e400"));
  CHECK_THAT(failure({"generate", "x", "--tokens", "-3"}, folder, 2), Contains("-3"));
  CHECK_THAT(failure({"data", "make", "copy"}, folder, 2), Contains("--out"));
  CHECK_THAT(failure({"data", "show", "cpoy"}, folder, 2), Contains("copy"));
  CHECK_THAT(failure({"config"}, folder, 2), Contains("config"));
  CHECK_THAT(failure({"check", "attention", "--check", "nosuch"}, folder, 2),
             Contains("unknown check \"nosuch\"; longhand check attention --list lists them"));
}

TEST_CASE("unknown flags name the remedy") {
  const TinyFolder folder;
  const auto train = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"train", "config.toml"});
    return failure(words, folder, 2);
  };
  CHECK_THAT(train({"--lr", "1e-3"}), Contains("--lr") && Contains("--set optimizer.lr=1e-3?"));
  CHECK_THAT(train({"--lr=1e-3"}), Contains("--set optimizer.lr=1e-3?"));
  CHECK_THAT(train({"--lr"}), Contains("--set optimizer.lr=VALUE?"));
  CHECK_THAT(train({"--lr", "--quiet"}), Contains("--set optimizer.lr=VALUE?"));
  CHECK_THAT(train({"--lr", "-"}), Contains("--set optimizer.lr=-?"));
  CHECK_THAT(train({"--batch-size", "8"}), Contains("--set train.batch_size=8?"));
  CHECK_THAT(train({"--batchsize", "8"}), Contains("--set train.batch_size=8?"));
  CHECK_THAT(train({"--attention", "linear"}), Contains("--set attention.type=linear?"));
  CHECK_THAT(train({"--optimizer.lr", "1"}), Contains("--set optimizer.lr=1?"));
  CHECK_THAT(train({"--dropout", "0.1"}),
             Contains("--set model.dropout=0.1 or --set attention.dropout=0.1?"));
  CHECK_THAT(train({"--ouput", "a"}), Contains("did you mean --out?"));
  CHECK_THAT(train({"--limit", "4"}), Contains("--limit") && Contains("longhand evaluate"));
  CHECK_THAT(failure({"data", "show", "mqar", "--pairs", "2"}, folder, 2),
             Contains("--set data.pairs=2?"));
  // Commands of data take no other options.
  CHECK_THAT(failure({"data", "show", "mqar", "--lr", "2"}, folder, 2), !Contains("optimizer.lr"));
  CHECK_THAT(failure({"variants", "--lr", "1"}, folder, 2), !Contains("--set"));
}

TEST_CASE("errors of the environment name the variable") {
  const TinyFolder folder;
  for (const auto& [name, value, expected] :
       {std::tuple{"LONGHAND_SEED", "x", "expected an integer of at least 0"},
        {"LONGHAND_SEED", "-1", "expected an integer of at least 0"},
        {"LONGHAND_THREADS", "x", "expected an integer"},
        {"LONGHAND_THREADS", "0", "expected an integer from 1"},
        {"LONGHAND_ISA", "sse9", "expected baseline"}}) {
    INFO(name << "=" << value);
    const Outcome outcome =
        run({"train", "config.toml", "--out", "run"}, folder.path(), {{name, value}});
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err,
               Catch::StartsWith(std::string("longhand: ") + name + ":") && Contains(expected));
    CHECK_FALSE(fs::exists(folder / "run"));
  }
}

TEST_CASE("errors of a configuration") {
  const TinyFolder folder;
  const auto train = [&](const std::string& assignment) {
    return failure(train_with(assignment), folder, 2);
  };
  CHECK_THAT(failure({"train", "none.toml"}, folder, 2), Contains("none.toml"));
  write_text(folder / "broken.toml", "[model]\nd_model = [1,\n");
  CHECK_THAT(failure({"train", "broken.toml"}, folder, 2), Contains("broken.toml:2:"));
  write_text(folder / "unknown.toml", std::string(tiny_config) + "lrr = 1\n");
  CHECK_THAT(failure({"train", "unknown.toml", "--quiet"}, folder, 2),
             Contains("unknown.toml:23:1: optimizer.lrr") && Contains("did you mean lr?"));
  write_text(folder / "section.toml", "[models]\n");
  CHECK_THAT(failure({"train", "section.toml"}, folder, 2), Contains("section.toml:1:2"));
  write_text(folder / "type.toml", "[data]\ntask = 3\n");
  CHECK_THAT(failure({"train", "type.toml", "--quiet"}, folder, 2), Contains("type.toml:2:1"));

  CHECK_THAT(train("model.d_model=wide"), Contains("model.d_model") && Contains("integer"));
  CHECK_THAT(train("model.d_model=1e9"),
             Contains("model.d_model = 1e+09: expected an integer from 1"));
  CHECK_THAT(
      train("attention.k=3"),
      Contains("attention.k = 3: softmax has no such option; variants that have it: linformer"));
  CHECK_THAT(train("model.layers=-1"), Contains("model.layers = -1"));
  CHECK_THAT(train("model.heads=3"), Contains("model.heads"));
  CHECK_THAT(train("train.batch_size=0"), Contains("train.batch_size"));
  CHECK_THAT(train("train.batch_size=-4"), Contains("train.batch_size"));
  CHECK_THAT(train("train.batch_size=65"), Contains("65"));
  CHECK_THAT(train("train.steps=1.5"), Contains("train.steps"));
  CHECK_THAT(train("train.stesp=3"), Contains("did you mean steps?"));
  CHECK_THAT(train("optimizer.lr=nan"), Contains("optimizer.lr"));
  CHECK_THAT(train("optimizer.type=adm"), Contains("adam"));
  CHECK_THAT(train("attention.type=sofmax"), Contains("did you mean softmax?"));
  CHECK_THAT(train("data.task=cpoy"), Contains("did you mean copy?"));
  CHECK_THAT(train("modle.layers=1"), Contains("did you mean [model]?"));
  CHECK_THAT(train("layers=1"), Contains("section.key=value"));
  CHECK_THAT(train("model.vocabulary=3"), Contains("model.vocabulary"));
}

TEST_CASE("sequences longer than the model") {
  const TinyFolder folder;
  CHECK_THAT(failure(train_with("model.max_length=15"), folder, 2),
             Contains("model.max_length = 15") && Contains("16"));
}

TEST_CASE("variants that cannot be causal say why") {
  const TinyFolder folder;
  for (const char* type : {"linformer", "nystrom"}) {
    auto arguments = train_with("model.causal=true");
    arguments.insert(arguments.end(), {"--set", std::string("attention.type=") + type});
    CHECK_THAT(failure(arguments, folder, 2), Contains(type) && Contains("causal"));
  }
}

TEST_CASE("errors of data files") {
  const TinyFolder folder;
  const auto train = [&](const std::string& file, int code) {
    auto arguments = train_with("data.task=tokens");
    arguments.insert(arguments.end(), {"--set", "data.path=" + file});
    return failure(arguments, folder, code);
  };
  CHECK_THAT(train("none.h5", 3), Contains("none.h5"));
  write_text(folder / "text.h5", "this is no HDF5 file");
  CHECK_THAT(train("text.h5", 3), Contains("text.h5: expected an HDF5 file, got one that"));
  write_tokens(folder / "label.h5", 16, 3);
  CHECK_THAT(train("label.h5", 3), Contains("target 3") && Contains("0 … 2"));
  write_tokens(folder / "good.h5", 16, 2);
  CHECK(run({"train", "config.toml", "--out", "good", "--set", "data.task=tokens",
             "data.path=good.h5", "train.steps=1"},
            folder.path())
            .code == 0);
  write_text(folder / "bad.tsv", "Source\tTarget\n[MAX 1 2 ]\t2\n[MIN 1 2 ]\t2\n");
  const Outcome outcome = run({"data", "check", "listops", "bad.tsv"}, folder.path());
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.out, Contains("1 of 2 targets agree") && Contains("line 3"));
  CHECK_THAT(outcome.err, Contains("longhand: bad.tsv"));
  CHECK_THAT(failure({"data", "check", "listops", "none.tsv"}, folder, 3), Contains("none.tsv"));
  CHECK_THAT(failure({"data", "make", "copy", "-o", "s.csv"}, folder, 2),
             Contains("--out s.csv: expected a name that ends in .h5"));
  CHECK_THAT(
      failure({"data", "check", "tokens", "config.toml", "--set", "data.path=good.h5"}, folder, 2),
      Contains("--set data.path: expected config.toml, which the command line"));
}

TEST_CASE("errors of runs and checkpoints") {
  const TinyFolder folder;
  REQUIRE(run({"train", "config.toml", "--quiet", "--out", "run"}, folder.path()).code == 0);
  CHECK_THAT(failure({"train", "config.toml", "--out", "run"}, folder, 2),
             Contains("already holds a run"));
  CHECK_THAT(failure({"train", "config.toml", "--out", "config.toml"}, folder, 2),
             Contains("not a folder"));
  CHECK_THAT(failure({"train", "--resume", "none"}, folder, 2), Contains("none"));
  CHECK_THAT(failure({"train", "--resume", "."}, folder, 2), Contains("holds no run"));
  CHECK_THAT(failure({"train", "--resume", "run", "--seed", "3"}, folder, 2), Contains("seed"));
  CHECK_THAT(failure({"train", "--resume", "run", "--set", "model.layers=2"}, folder, 2),
             Contains("model.layers"));
  CHECK_THAT(failure({"evaluate", "none"}, folder, 2), Contains("none"));
  CHECK_THAT(failure({"report", "run", "-o", "config.toml"}, folder, 2),
             Contains("config.toml") && Contains("did not write it"));
  CHECK_THAT(
      failure({"checkpoint", "verify", "run"}, folder, 2),
      Contains("got a folder; for all checkpoints in it: longhand checkpoint verify --all run"));
  CHECK_THAT(failure({"bench", "ranks", "config.toml", "--steps", "2"}, folder, 2),
             Contains("start it as mpirun -np 2 longhand-mpi bench ranks config.toml --steps 2\n"));
  CHECK_THAT(failure({"evaluate", "run", "--split", "tets"}, folder, 2), Contains("tets"));
  CHECK_THAT(failure({"evaluate", "run", "--checkpoint", "bets"}, folder, 2), Contains("bets"));
  CHECK_THAT(failure({"evaluate", "run/checkpoints/best.h5", "--checkpoint", "last"}, folder, 2),
             Contains("run/checkpoints/best.h5: expected the directory of a run, because "
                      "--checkpoint is \"last\", got a single checkpoint; name the directory"));
  CHECK_THAT(failure({"evaluate", "run", "--quiet", "--set", "data.task=mqar"}, folder, 2),
             Contains("run/checkpoints/best.h5: config:") && Contains("model.vocabulary = "));
  CHECK_THAT(failure({"generate", "run", "--prompt", "x"}, folder, 2), Contains("language model"));

  // A checkpoint of another model, in three ways.
  CHECK_THAT(failure({"evaluate", "run", "--quiet", "--set", "model.d_model=32"}, folder, 3),
             Contains("best.h5: model.d_model = 32 here, 16 in the checkpoint") &&
                 Contains("token.weight"));
  REQUIRE(run({"train", "config.toml", "--quiet", "--out", "wide", "--set", "model.d_model=32"},
              folder.path())
              .code == 0);
  fs::copy_file(folder / "run/checkpoints/last.h5", folder / "wide/checkpoints/last.h5",
                fs::copy_options::overwrite_existing);
  CHECK_THAT(failure({"train", "--resume", "wide"}, folder, 3), Contains("model.d_model = 16"));

  // Damage: truncated, modified, not a checkpoint.
  const fs::path last = folder / "run/checkpoints/last.h5";
  const auto size = fs::file_size(last);
  fs::remove(folder / "run/checkpoints/previous.h5");
  fs::rename(folder / "run/checkpoints/best.h5", folder / "best.h5");
  fs::resize_file(last, size / 2);
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"train", "--resume", "run"},
                                             {"evaluate", "run", "--checkpoint", "last"},
                                             {"checkpoint", "inspect", "run/checkpoints/last.h5"}})
    CHECK_THAT(failure(arguments, folder, 3), Contains("last.h5"));
  fs::copy_file(folder / "best.h5", last, fs::copy_options::overwrite_existing);
  {
    std::fstream file(last, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(last) / 2));
    file.put('!');
    file.put('?');
  }
  CHECK_THAT(failure({"checkpoint", "inspect", "run/checkpoints/last.h5"}, folder, 3),
             Contains("last.h5"));
  write_text(last, "");
  CHECK_THAT(failure({"train", "--resume", "run"}, folder, 3), Contains("last.h5"));
  CHECK_THAT(failure({"checkpoint", "inspect", "config.toml"}, folder, 3), Contains("config.toml"));
  fs::remove(last);
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"train", "--resume", "run"},
           {"train", "config.toml", "--out", "run", "--resume-or-start"},
           {"checkpoint", "repair", "run"}})
    CHECK_THAT(failure(arguments, folder, 3),
               Contains("run/checkpoints holds no checkpoint, but the run had done 20 steps") &&
                   Contains("longhand train run/config.toml --out run --overwrite"));
}

TEST_CASE("a loss that is not finite ends training with 4") {
  const TinyFolder folder;
  const Outcome outcome =
      run({"train", "config.toml", "--out", "run", "--quiet", "--set", "optimizer.lr=1e30"},
          folder.path());
  CHECK(outcome.code == 4);
  CHECK_THAT(outcome.err, Contains("longhand: step "));
  CHECK(fs::exists(folder / "run/summary.json"));
}
