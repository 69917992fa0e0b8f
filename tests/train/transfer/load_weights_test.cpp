// Weights of other runs: those that fit, runs that begin with them and learn from them, resuming.
#include "longhand/train/transfer/load_weights.h"

#include <sys/fsuid.h>
#include <unistd.h>

#include <filesystem>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/run/run.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

Config tiny(const std::vector<std::string>& assignments = {}) {
  Config config = tiny_run("checkpoint_every = 2\n[optimizer]\nlr = 0.01\n");
  for (const char* const setting : {"model.layers=2", "train.eval_every=3", "train.log_every=4"})
    config.assign(setting);
  for (const std::string& assignment : assignments) config.assign(assignment);
  return config;
}

/// A folder with the run `teacher`, of softmax attention with averaged weights.
class Runs : public TemporaryDirectory {
 public:
  Runs() { Run::create(tiny({"train.ema_decay=0.5", "train.seed=3"}), *this / "teacher")->train(); }
  std::string from(const std::string& option, const std::string& file = "teacher") const {
    return "train." + option + "=" + (*this / file).string();
  }
};

}  // namespace

TEST_CASE("names of tensors are listed briefly and completely") {
  CHECK(short_list({}) == "");
  CHECK(short_list({"head.weight"}) == "head.weight");
  CHECK(short_list({"a.bias", "a.weight", "b"}) == "a.{bias,weight}, b");
  std::vector<std::string> names;
  for (int layer = 0; layer < 12; ++layer)
    if (layer != 1)
      for (const char* const part : {"key.bias", "key.weight", "query.bias", "query.weight"})
        names.push_back("blocks." + std::to_string(layer) + ".attention." + part);
  CHECK(short_list(names) == "blocks.{0,2-11}.attention.{key,query}.{bias,weight}");
}

TEST_CASE("a folder that may not be read is one of the checkpoints to verify, and invalid") {
  const TemporaryDirectory dir;
  fs::create_directories(dir / "a/checkpoints");
  fs::permissions(dir.path(), fs::perms(0755));
  fs::permissions(dir / "a/checkpoints", fs::perms::none);
  setfsuid(65534);  // the superuser may read it
  const std::vector<std::string> files = checkpoints_below(dir.path());
  CHECK(files == std::vector<std::string>{dir / "a/checkpoints"});
  CHECK_THROWS_AS(load(fs::path(files.at(0))), DataError);
  setfsuid(geteuid());
  fs::permissions(dir / "a/checkpoints", fs::perms::owner_all);
}

TEST_CASE("a model starts from the averaged weights that fit") {
  const Runs runs;
  Experiment e(tiny({"attention.type=linformer", "attention.k=4", "model.head_hidden=5"}));
  const nn::StateDict before = [&] {
    nn::StateDict copy;
    for (const auto& [name, tensor] : e.model.state_dict()) copy[name] = tensor.clone();
    return copy;
  }();
  const Initialisation init =
      initialise(e.model, {.from = (runs / "teacher").string(), .checkpoint = "last"});
  const nn::StateDict weights = load(runs / "teacher/checkpoints/last.h5").weights();
  CHECK(init.source.digest == stored_digest(runs / "teacher/checkpoints/last.h5"));
  CHECK(init.source.step == 6);
  CHECK(short_list(init.tensors.initialised) ==
        "blocks.{0-1}.attention.kernel.{projection_k,projection_v}, "
        "head.{hidden.{bias,weight},weight}");
  CHECK(init.tensors.unused.empty());
  CHECK(init.tensors.taken.size() + init.tensors.initialised.size() == before.size());
  const nn::StateDict after = e.model.state_dict();
  for (const std::string& name : init.tensors.taken) {
    INFO(name);
    CHECK(identical(after.at(name), weights.at(name)));
  }
  for (const std::string& name : init.tensors.initialised) {
    INFO(name);
    CHECK(identical(after.at(name), before.at(name)));
  }
}

TEST_CASE("a source of other sizes is refused before anything is written") {
  const Runs runs;
  const std::string error = message_of<ConfigError>([&] {
    Run::create(tiny({"model.d_model=16", runs.from("init_from")}), runs / "new");
  });
  CHECK_THAT(error,
             Contains("train.init_from") && Contains("model.d_model is 8 there and 16 here"));
  CHECK_THAT(
      message_of<ConfigError>([&] {
        Run::create(tiny({runs.from("init_from"), "train.init_checkpoint=step-9"}), runs / "new");
      }),
      Contains("has no checkpoint \"step-9\""));
  CHECK_THAT(message_of<ConfigError>(
                 [&] { Run::create(tiny({runs.from("distill_from", "none")}), runs / "new"); }),
             Contains("no run directory"));
  CHECK_FALSE(fs::exists(runs / "new"));
}

TEST_CASE("what a run took from others is in its summary, also after resuming") {
  const Runs runs;
  const std::vector<std::string> options = {"attention.type=linear", runs.from("init_from"),
                                            runs.from("distill_from"), "train.distill_outputs=1"};
  int64_t step = 0;
  Run::create(tiny(options), runs / "run")->train(stop_after(5, step));
  const auto check = [&] {
    const Sources sources = read_run(runs / "run").summary->sources;
    REQUIRE(sources.init.has_value());
    REQUIRE(sources.teacher.has_value());
    CHECK(sources.init->source.checkpoint == (runs / "teacher/checkpoints/best.h5").string());
    CHECK(sources.init->source.digest == stored_digest(runs / "teacher/checkpoints/best.h5"));
    CHECK(sources.init->tensors.taken.size() > 20);
    CHECK(sources.teacher->digest == sources.init->source.digest);
  };
  check();
  Run::resume(runs / "run")->train();
  check();
  for (const Record& record : read_run(runs / "run").metrics)
    CHECK(record.terms.size() == (record.split == "train" ? 3 : 0));

  // The path in the configuration means the same in any folder.
  const Config effective = Config::load(runs / "run/config.toml");
  CHECK(effective.given().at("train.init_from") == OptionValue((runs / "teacher").string()));
}

TEST_CASE("a run that starts from another and learns from it is resumed with the same bits") {
  const Runs runs;
  const std::vector<std::string> options = {
      "attention.type=performer", "attention.features=4",      "attention.redraw_interval=2",
      "train.micro_batches=2",    "train.label_smoothing=0.1", "train.ema_decay=0.9",
      runs.from("init_from"),     runs.from("distill_from"),   "train.distill_outputs=0.5",
      "train.distill_weights=0.5"};
  {
    const WithThreads with(1);
    Run::create(tiny(options), runs / "whole")->train();
  }
  int64_t step = 0;
  Run::create(tiny(options), runs / "parts")->train(stop_after(3, step));
  Run::resume(runs / "parts")->train();
  const auto file = [&](const char* run) {
    return data::read_file(runs / run / "checkpoints/last.h5");
  };
  CHECK((file("whole") == file("parts")));
  const auto terms = [&](const char* run) {
    std::vector<std::map<std::string, double>> out;
    for (const Record& record : read_run(runs / run).metrics) out.push_back(record.terms);
    return out;
  };
  CHECK(terms("whole") == terms("parts"));

  // Killed before the first checkpoint: it begins with the source again.
  Run::create(tiny(options), runs / "killed")->train(stop_after(1, step = 0));
  fs::remove(runs / "killed/checkpoints/last.h5");
  fs::remove(runs / "killed/summary.json");
  Run::resume(runs / "killed")->train();
  CHECK((file("whole") == file("killed")));
}

TEST_CASE("a resumed run needs its teacher, but not what it started from") {
  const Runs runs;
  fs::copy(runs / "teacher", runs / "source", fs::copy_options::recursive);
  int64_t step = 0;
  Run::create(tiny({runs.from("init_from", "source"), runs.from("distill_from")}), runs / "run")
      ->train(stop_after(2, step));
  fs::remove_all(runs / "source");
  CHECK(Run::resume(runs / "run")->step() == 2);
  fs::copy_file(runs / "teacher/checkpoints/last.h5", runs / "teacher/checkpoints/best.h5",
                fs::copy_options::overwrite_existing);
  Run::resume(runs / "teacher", {"train.steps=7"})->train();
  fs::copy_file(runs / "teacher/checkpoints/last.h5", runs / "teacher/checkpoints/best.h5",
                fs::copy_options::overwrite_existing);
  CHECK_THAT(message_of<DataError>([&] { Run::resume(runs / "run"); }),
             Contains("has changed since this run began"));
}

TEST_CASE("a checkpoint that is named beside a file is refused by new runs alone") {
  const Runs runs;
  const std::string file = "teacher/checkpoints/last.h5";
  const std::vector<std::string> sources = {runs.from("init_from", file),
                                            runs.from("distill_from", file)};
  for (const std::string option : {"train.init_checkpoint", "train.distill_checkpoint"}) {
    std::vector<std::string> named = sources;
    named.push_back(option + "=last");
    CHECK_THAT(message_of<ConfigError>([&] { Run::create(tiny(named), runs / "new"); }),
               Contains("last.h5: expected the directory of a run, because " + option) &&
                   Contains("got a single checkpoint; name the directory, or leave out " + option));
  }
  CHECK_FALSE(fs::exists(runs / "new"));

  // As earlier versions accepted it.
  int64_t step = 0;
  Run::create(tiny(sources), runs / "run")->train(stop_after(1, step));
  const fs::path config = runs / "run/config.toml", last = runs / "run/checkpoints/last.h5";
  std::string text = read_text(config);
  for (const std::string option : {"init_checkpoint = ", "distill_checkpoint = "})
    text.replace(text.find(option + "\"best\""), option.size() + 6, option + "\"last\"");
  write_text(config, text);
  Checkpoint checkpoint = load(last);
  checkpoint.config = text;
  save(last, checkpoint);
  CHECK(Run::resume(runs / "run")->step() == 1);
  fs::remove(last);
  fs::remove(runs / "run/summary.json");
  CHECK(Run::resume(runs / "run")->step() == 0);
}

TEST_CASE("without weights of its terms, a teacher changes no bit") {
  const Runs runs;
  Run::create(tiny(), runs / "plain")->train();
  Run::create(tiny({runs.from("distill_from"), "train.distill_logits=0"}), runs / "taught")
      ->train();
  const nn::StateDict a = load(runs / "plain/checkpoints/last.h5").model,
                      b = load(runs / "taught/checkpoints/last.h5").model;
  for (const auto& [name, tensor] : a) CHECK(identical(tensor, b.at(name)));
}
