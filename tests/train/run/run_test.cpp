#include "longhand/train/run/run.h"

#include <signal.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

#include "longhand/data/file.h"
#include "longhand/train/lab/report/reader.h"
#include "longhand/train/run/process.h"
#include "longhand/train/transfer/saved_model.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace fs = std::filesystem;

TEST_CASE("a run leaves its record, which can be read") {
  const TemporaryDirectory dir;
  int64_t records = 0, batches = 0, saved = 0, updates = 0;
  {
    Config config = tiny_run();
    config.assign("model.causal=true");
    const auto run = Run::create(std::move(config), dir / "a" / "run");
    CHECK_FALSE(run->resumed());
    CHECK(run->summary().parameters == run->experiment().model.parameter_count());
    Observer observer;
    observer.on_record = [&](const Record&) { ++records; };
    observer.on_evaluation = [&](const EvaluationProgress& p) {
      CHECK(p.all_batches == 2);
      batches += p.batches == p.all_batches;
    };
    observer.on_saved = [&](const fs::path&) { ++saved; };
    observer.on_phase = [&](const char* phase) { updates += std::string_view(phase) == "update"; };
    CHECK(run->train(observer) == Stopped::finished);
    CHECK(run->step() == 6);
    CHECK(run->summary().status == "finished");
  }
  CHECK(records == 9);  // 6 of training, 3 evaluations
  CHECK(batches == 3);
  CHECK(saved >= 3);
  CHECK(updates == 6);
  const RecordedRun read = read_run(dir / "a" / "run");
  CHECK(std::ssize(read.metrics) == records);
  REQUIRE(read.summary.has_value());
  CHECK(read.summary->status == "finished");
  CHECK(read.summary->step == 6);
  CHECK(read.summary->task == "copy");
  CHECK(read.summary->attention == "softmax");
  CHECK(read.summary->version == version());
  CHECK(read.summary->machine == machine_description());
  CHECK(read.summary->state_bytes == 2 * 16 * 8 * 4);  // keys and values of 16 tokens, in f32
  CHECK(read.summary->data.size() == 3);
  CHECK(read.summary->data.at("train").size() == 32);
  CHECK(read.summary->data.at("train") != read.summary->data.at("test"));
  CHECK(stored_digest(dir / "a" / "run/checkpoints/last.h5").size() == 32);
  CHECK_THROWS_AS(stored_digest(dir / "a" / "run/config.toml"), DataError);
  REQUIRE(read.summary->best.has_value());
  REQUIRE(read.summary->validation.has_value());
  CHECK(read.summary->validation->loss == read.metrics.back().loss);
  CHECK(read.metrics.back().split == "validation");
  const Config again = Config::parse(read.config, "read");
  const auto task = read_task_info(again);
  REQUIRE(task.has_value());
  CHECK(effective_config(again, &*task) == read.config);
  CHECK(load_model(dir / "a" / "run").checkpoint.training.step == read.summary->best_step);
}

TEST_CASE("a run that was never trained leaves nothing, one that cannot be made neither") {
  const TemporaryDirectory dir;
  { const auto run = Run::create(tiny_run(), dir / "a" / "run"); }
  CHECK_THROWS_AS(Run::create(tiny_run("stesp = 3\n"), dir / "a" / "run"), ConfigError);
  CHECK_FALSE(fs::exists(dir / "a"));
  CHECK_THROWS_AS(Run::resume(dir / "a"), ConfigError);
}

TEST_CASE("a run that was stopped and resumed in one process gives the same file") {
  const TemporaryDirectory dir;
  Run::create(tiny_run("ema_decay = 0.9\n"), dir / "whole")->train();
  int64_t step = 0;
  CHECK(Run::create(tiny_run("ema_decay = 0.9\n"), dir / "parts")->train(stop_after(3, step)) ==
        Stopped::signal);
  CHECK(read_run(dir / "parts").summary->status == "stopped");
  {
    const auto run = Run::resume(dir / "parts", {"train.log_every=1"});
    CHECK(run->resumed());
    CHECK(run->step() == 3);
    CHECK(run->warnings().empty());
    CHECK_THROWS_WITH(Run::resume(dir / "parts"), Contains("in use by another process"));
    CHECK(run->train() == Stopped::finished);
  }
  CHECK(data::read_file(dir / "whole/checkpoints/last.h5") ==
        data::read_file(dir / "parts/checkpoints/last.h5"));
  CHECK(read_run(dir / "parts").metrics.size() == read_run(dir / "whole").metrics.size());
  double seconds = 0;  // goes on where the first process ended
  for (const Record& record : read_run(dir / "parts").metrics) {
    REQUIRE(record.seconds.has_value());
    CHECK(*record.seconds >= seconds);
    seconds = *record.seconds;
  }
  CHECK(seconds > 0);
}

TEST_CASE("resuming a finished run changes nothing") {
  const TemporaryDirectory dir;
  const std::string early = GENERATE("", "target_accuracy = 1e-9\n");
  const Stopped expected = early.empty() ? Stopped::finished : Stopped::early;
  CHECK(Run::create(tiny_run(early), dir / "run")->train() == expected);
  const auto before = contents_of(dir.path());
  {
    const auto run = Run::resume(dir / "run", {"train.log_every=3"});
    CHECK(run->is_finished());
    CHECK(to_json(run->summary()) == before.at("run/summary.json"));
    CHECK(run->train() == expected);
  }
  CHECK(contents_of(dir.path()) == before);
  // Without the summary there is still something to do, but nothing is trained again.
  fs::remove(dir / "run/summary.json");
  Observer observer;
  observer.on_progress = [](const Progress&) { FAIL("a step"); };
  CHECK(Run::resume(dir / "run")->train(observer) == expected);
  const Summary summary = *read_run(dir / "run").summary;
  CHECK(summary.status == (early.empty() ? "finished" : "early"));
  CHECK(summary.validation.has_value());
  CHECK(contents_of(dir.path()).at("run/metrics.jsonl") == before.at("run/metrics.jsonl"));
}

TEST_CASE("the summary adds up the processes of a run") {
  const TemporaryDirectory dir;
  int64_t step = 0;
  Run::create(tiny_run("seed = 5\n"), dir / "run")->train(stop_after(3, step));
  Run::resume(dir / "run")->train();
  const Summary summary = *read_run(dir / "run").summary;
  REQUIRE(summary.processes.size() == 2);
  const auto& [first, second] = std::tie(summary.processes[0], summary.processes[1]);
  CHECK(first.step == 3);
  CHECK(second.begin == 3);
  CHECK(first.trained + second.trained == 6);
  CHECK(first.tokens == second.tokens);  // three batches each
  CHECK(first.tokens == 3 * 4 * 16);
  CHECK(summary.seconds == Approx(first.seconds + second.seconds));
  CHECK(first.peak_memory > 1 << 20);
  CHECK(second.peak_memory >= first.peak_memory);  // of one process, which has not shrunk
  CHECK(summary.peak_memory == second.peak_memory);
  CHECK(summary.task == "copy");
  CHECK(summary.length == 16);
  CHECK(summary.seed == 5);
  CHECK_FALSE(summary.host.empty());
  CHECK(summary.step_seconds.has_value());
  CHECK(summary.tokens_per_second.has_value());
  CHECK(summary.training->step == 6);

  Summary made;
  made.processes = {
      {.trained = 10, .tokens = 300, .training_seconds = 10, .step_seconds = 1, .peak_memory = 9},
      {},
      {.threads = 2,
       .trained = 20,
       .tokens = 300,
       .training_seconds = 10,
       .step_seconds = 0.5,
       .seconds = 12,
       .peak_memory = 7}};
  made.add_up();
  CHECK(made.step_seconds == 0.5);
  CHECK(made.tokens_per_second == 30);
  CHECK(made.threads == 2);
  CHECK(made.peak_memory == 9);
  made.processes[0].trained = 40;
  made.processes[2].threads = 0;  // unknown
  made.add_up();
  CHECK(made.step_seconds == 1);
  CHECK(made.threads == 1);
}

TEST_CASE("a run can be replaced, but not by one that does not begin") {
  const TemporaryDirectory dir;
  Run::create(tiny_run("keep_every = 2\ntensorboard = true\n"), dir / "run")->train();
  write_text(dir / "run/notes.txt", "mine");
  const auto before = contents_of(dir.path());
  CHECK_THROWS_AS(Run::create(tiny_run("stesp = 3\n"), dir / "run", "run", Existing::overwrite),
                  ConfigError);
  Run::create(tiny_run(), dir / "run", "run", Existing::overwrite);
  CHECK(contents_of(dir.path()) == before);
  CHECK_THROWS_WITH(Run::create(tiny_run("init_from = '" + (dir / "run").string() + "'\n"),
                                dir / "run", "run", Existing::overwrite),
                    Contains("train.init_from") && Contains("directory of this run"));

  Config config = tiny_run();
  config.assign("train.seed=7");
  Run::create(config, dir / "run", "run", Existing::overwrite)->train();
  Run::create(config, dir / "new")->train();
  const auto after = contents_of(dir.path());
  CHECK(after.at("run/notes.txt") == "mine");
  CHECK((after.at("run/checkpoints/last.h5") == after.at("new/checkpoints/last.h5")));
  CHECK_FALSE(after.contains("run/checkpoints/step-00000002.h5"));
  CHECK_FALSE(fs::exists(dir / "run/tensorboard"));

  // A configuration that is not of a run is not overwritten.
  fs::create_directory(dir / "mine");
  write_text(dir / "mine/config.toml", "");
  CHECK_THROWS_WITH(Run::create(config, dir / "mine", "run", Existing::overwrite),
                    Contains("not the directory of a run"));
}

TEST_CASE("replacing a run leaves files that a run does not write") {
  const TemporaryDirectory dir;
  Run::create(tiny_run("keep_every = 2\ntensorboard = true\n"), dir / "run")->train();
  const std::vector<std::string> foreign = {"checkpoints/mine.h5",
                                            "checkpoints/step-2-copy.h5",
                                            "checkpoints/step-.h5",
                                            "checkpoints/notes/last.h5",
                                            "notes/metrics.jsonl",
                                            "best.h5",
                                            "tensorboard/events.out.tfevents.1.other",
                                            "tensorboard/notes.txt"};
  for (const std::string& name : foreign) {
    fs::create_directories((dir / ("run/" + name)).parent_path());
    write_text(dir / ("run/" + name), name);
  }
  fs::create_directory(dir / "elsewhere");
  write_text(dir / "elsewhere/events.out.tfevents.1.longhand", "mine");
  Run::create(tiny_run(), dir / "run", "run", Existing::overwrite)->train();
  const auto after = contents_of(dir.path());
  for (const std::string& name : foreign) {
    INFO(name);
    CHECK(after.at("run/" + name) == name);
  }
  CHECK_FALSE(after.contains("run/checkpoints/step-00000002.h5"));
  // A link to another folder of events.
  fs::remove_all(dir / "run/tensorboard");
  fs::create_directory_symlink(dir / "elsewhere", dir / "run/tensorboard");
  Run::create(tiny_run(), dir / "run", "run", Existing::overwrite)->train();
  CHECK(fs::exists(dir / "elsewhere/events.out.tfevents.1.longhand"));
  CHECK(fs::is_symlink(dir / "run/tensorboard"));
  const auto before = contents_of(dir.path());
  CHECK_THAT(message_of<ConfigError>([&] {
               Run::create(tiny_run("tensorboard = true\n"), dir / "run", "run",
                           Existing::overwrite);
             }),
             Contains("run/tensorboard is a link"));
  CHECK(contents_of(dir.path()) == before);
}

TEST_CASE("a new run is named after the time, and no other run") {
  const TemporaryDirectory dir;
  const auto name_at = [](std::time_t time) {
    char text[32];
    std::strftime(text, sizeof text, "a-%Y%m%d-%H%M%S", std::localtime(&time));
    return std::string(text);
  };
  const std::time_t before = std::time(nullptr);
  const fs::path path = RunRecord::fresh_path(dir.path(), "a");
  bool found = false;
  for (std::time_t at = before; at <= std::time(nullptr); ++at)
    found = found || path.filename() == name_at(at);
  CHECK(found);
}

TEST_CASE("resuming uses only checkpoints that the run has written") {
  const TemporaryDirectory dir;
  int64_t step = 0;
  Run::create(tiny_run(), dir / "run")->train(stop_after(3, step));
  fs::remove(dir / "run/checkpoints/best.h5");
  fs::remove(dir / "run/checkpoints/previous.h5");
  fs::copy_file(dir / "run/checkpoints/last.h5", dir / "run/checkpoints/mine.h5");
  write_text(dir / "run/checkpoints/last.h5", "damaged");
  // The copy may be of another run.
  CHECK_THROWS_WITH(RunRecord::open(dir / "run").resume_point(), !Contains("mine.h5"));
  fs::copy_file(dir / "run/checkpoints/mine.h5", dir / "run/checkpoints/step-00000004.h5");
  fs::rename(dir / "run/checkpoints/mine.h5", dir / "run/checkpoints/step-00000003.h5");
  // The first of equal ones.
  CHECK(RunRecord::open(dir / "run").resume_point()->file.filename() == "step-00000003.h5");
}

TEST_CASE("resuming keeps metrics with damaged lines aside, and says so") {
  const TemporaryDirectory dir;
  int64_t step = 0;
  Run::create(tiny_run(), dir / "run")->train(stop_after(3, step));
  const std::string before = read_text(dir / "run/metrics.jsonl");
  std::string damaged = before;
  damaged[damaged.find('\n') + 1] = '#';  // the second line
  write_text(dir / "run/metrics.jsonl", damaged);
  Run::resume(dir / "run")->train();
  CHECK(read_text(dir / "run/metrics.damaged.jsonl") == damaged);
  const auto warnings = read_run(dir / "run").summary->warnings;
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("damaged lines: 2; metrics.damaged.jsonl"));
  // The line of a process that was killed while it wrote is none of these.
  Run::create(tiny_run(), dir / "cut")->train(stop_after(3, step = 0));
  std::ofstream(dir / "cut/metrics.jsonl", std::ios::app) << "{\"step\":";
  Run::resume(dir / "cut")->train();
  CHECK_FALSE(fs::exists(dir / "cut/metrics.damaged.jsonl"));
  CHECK(read_run(dir / "cut").summary->warnings.empty());
  // But that of a step which the checkpoint has is.
  Run::create(tiny_run("hash_every = 1\n"), dir / "hash")->train(stop_after(3, step = 0));
  const std::string whole = read_text(dir / "hash/metrics.jsonl");
  write_text(dir / "hash/metrics.jsonl", whole.substr(0, whole.size() - 4));
  Run::resume(dir / "hash")->train();
  CHECK_THAT(read_run(dir / "hash").summary->warnings.at(0),
             Contains("the last line is incomplete, of step 3"));
}

TEST_CASE("every kind of damaged metrics is named, also by a run that has finished") {
  const TemporaryDirectory dir;
  int64_t step = 0;
  Run::create(tiny_run(), dir / "part")->train(stop_after(3, step));
  Run::create(tiny_run(), dir / "whole")->train();
  CHECK(Run::resume(dir / "whole")->warnings().empty());
  const auto cut_at = [](const std::string& text, int64_t lines) {
    size_t end = 0;
    for (int64_t i = 0; i < lines; ++i) end = text.find('\n', end) + 1;
    return text.substr(0, end);
  };
  for (const std::string name : {"part", "whole"})
    for (const std::string kind : {"step", "text", "order", "short", "missing"}) {
      CAPTURE(name, kind);
      const fs::path run = dir / "run", metrics = run / "metrics.jsonl";
      fs::remove_all(run);
      fs::copy(dir / name, run, fs::copy_options::recursive);
      const std::string before = read_text(metrics), first = cut_at(before, 1);
      std::string damaged = before, expected = "damaged lines: 2";
      if (kind == "step") damaged.insert(first.size(), "{\"split\": \"train\"}\n");
      if (kind == "text") damaged.insert(first.size(), "{\"step\": \"1\"}\n");
      if (kind == "order") damaged.insert(first.size(), first);
      if (kind == "short") {
        damaged = first;
        expected = "lines are missing, up to step " + std::string(name == "part" ? "3" : "6");
      }
      if (kind == "missing") {
        fs::remove(metrics);
        expected = "lines are missing, up to step " + std::string(name == "part" ? "3" : "6");
      } else {
        write_text(metrics, damaged);
      }
      const auto resumed = Run::resume(run);
      if (name == "whole") {
        CHECK(resumed->is_finished());
        REQUIRE(resumed->warnings().size() == 1);
        CHECK_THAT(resumed->warnings()[0], Contains("metrics.jsonl: " + expected));
        continue;
      }
      resumed->train();
      const auto warnings = read_run(run).summary->warnings;
      REQUIRE(warnings.size() == 1);
      CHECK_THAT(warnings[0], Contains("metrics.jsonl: " + expected));
      if (kind == "missing")
        CHECK_FALSE(fs::exists(run / damaged_metrics));
      else
        CHECK(read_text(run / damaged_metrics) == damaged);
    }
}

TEST_CASE("checkpoints that are a link to those of another run are not overwritten") {
  const TemporaryDirectory dir;
  for (const char* const name : {"other", "run"}) Run::create(tiny_run(), dir / name)->train();
  fs::remove_all(dir / "run/checkpoints");
  fs::create_directory_symlink(dir / "other/checkpoints", dir / "run/checkpoints");
  const auto before = contents_of(dir / "other"), run = contents_of(dir / "run");
  CHECK(message_of<ConfigError>([&] {
          Run::create(tiny_run(), dir / "run", "run", Existing::overwrite);
        }).find("/run/checkpoints is a link") != std::string::npos);
  CHECK(contents_of(dir / "other") == before);
  CHECK(contents_of(dir / "run") == run);
}

TEST_CASE("the same call starts, continues, extends and leaves a run") {
  const TemporaryDirectory dir;
  Run::create(tiny_run(), dir / "whole")->train();
  int64_t step = 0;
  Run::resume_or_create(tiny_run(), dir / "run")->train(stop_after(3, step));
  {
    const auto run = Run::resume_or_create(tiny_run(), dir / "run");
    CHECK(run->step() == 3);
    run->train();
  }
  const auto done = contents_of(dir.path());
  CHECK((done.at("run/checkpoints/last.h5") == done.at("whole/checkpoints/last.h5")));
  CHECK(Run::resume_or_create(tiny_run(), dir / "run")->is_finished());
  CHECK_THROWS_WITH(
      Run::resume_or_create(tiny_run("[optimizer]\nlr = 0.5\n"), dir / "run"),
      Contains("optimizer.lr = 0.5") && Contains("has 0.001") && Contains("--overwrite"));
  Config longer = tiny_run();
  longer.assign("train.steps=8");
  Run::resume_or_create(longer, dir / "run")->train();
  CHECK(read_run(dir / "run").summary->step == 8);
  // It has done more than this asks for.
  CHECK(Run::resume_or_create(tiny_run(), dir / "run")->is_finished());
}

TEST_CASE("options that have no use are a warning, with what to do instead") {
  const TemporaryDirectory dir;
  const auto warnings = [&](const std::vector<std::string>& assignments) {
    Config config = tiny_run();
    for (const std::string& assignment : assignments) config.assign(assignment);
    return Run::create(config, dir / "run")->warnings();
  };
  CHECK(warnings({"optimizer.warmup_steps=6"}).empty());
  const auto warmup = warnings({"optimizer.warmup_steps=12", "optimizer.lr=0.5"});
  REQUIRE(warmup.size() == 1);
  CHECK_THAT(warmup[0], Contains("warmup_steps = 12") && Contains("train.steps = 6") &&
                            Contains("ends at 0.25") && Contains("train longer"));
  CHECK(warnings({"attention.type=linformer", "attention.k=15"}).empty());
  const auto k = warnings({"attention.type=linformer", "attention.k=16", "model.layers=2"});
  REQUIRE(k.size() == 1);
  CHECK_THAT(k[0], Contains("attention.k = 16") && Contains("softmax"));
}

TEST_CASE("metrics that could not be written are written once") {
  const TemporaryDirectory dir;
  Record record;
  record.split = "train";
  const auto line = [&](int64_t step) {
    record.step = step;
    return to_json(record) + "\n";
  };
  RunRecord run = RunRecord::create(dir / "run");
  const fs::path metrics = dir / "run/metrics.jsonl";
  fs::create_directory(metrics);
  const std::string one = line(1);
  CHECK_THROWS_AS(run.append(record), DataError);
  CHECK_THROWS_AS(run.sync_metrics(), DataError);
  fs::remove(metrics);
  run.sync_metrics();
  CHECK(read_text(metrics) == one);
  const std::string two = line(2);
  run.append(record);
  CHECK(read_text(metrics) == one + two);
}

TEST_CASE("checkpoints are found by their number, and listed if there is none") {
  const TemporaryDirectory dir;
  Run::create(tiny_run("keep_every = 4\n"), dir / "run")->train();
  const fs::path file = dir / "run/checkpoints/step-00000004.h5";
  for (const char* const name : {"step-4", "step-04.h5", "step-00000004", "step-00000004.h5"})
    CHECK(find_checkpoint(dir / "run", name) == file);
  CHECK_THROWS_WITH(find_checkpoint(dir / "run", "step-5"),
                    Contains("step-5") && Contains("best, last, previous, step-00000004"));
  CHECK_THROWS_AS(find_checkpoint(dir / "run", "4"), ConfigError);
  fs::copy_file(file, dir / "run/checkpoints/4.h5");
  CHECK(find_checkpoint(dir / "run", "4") == dir / "run/checkpoints/4.h5");
  CHECK_THROWS_AS(find_checkpoint(dir / "run", "04"), ConfigError);
}

TEST_CASE("a resumed run may change what it reports, and nothing that decides its bits") {
  const TemporaryDirectory dir;
  Run::create(tiny_run(), dir / "run")->train();
  for (const std::string& name : resumable_options()) {
    INFO(name);
    CHECK(name.find('.') != std::string::npos);
  }
  CHECK_THROWS_WITH(
      Run::resume(dir / "run", {"train.batch_size=8"}),
      Contains("train.batch_size") && Contains("train.steps") && Contains("data.path"));
  CHECK_THROWS_WITH(Run::resume(dir / "run", {"train.steps=5"}),
                    Contains("train.steps = 5") && Contains("6 steps already"));
  const auto run = Run::resume(dir / "run", {"train.steps=8"});
  CHECK(run->train() == Stopped::finished);
  CHECK(run->step() == 8);
}

TEST_CASE("a run is resumed and evaluated on its own data, unless others are accepted") {
  const TemporaryDirectory dir;
  const auto write = [&](const char* name, const char* label) {
    std::string text;
    for (int i = 0; i < 20; ++i)
      text += std::to_string(i % 2) + "\ttext number " + std::to_string(i) + "\n";
    write_text(dir / name, text + label + "\tthe last\n");
  };
  write("a.tsv", "0");
  const std::string path = (dir / "a.tsv").string();
  Config config = tiny_run();
  for (const char* key : {"length", "count", "train_size", "validation_size", "test_size"})
    config.erase("data", key);
  config.assign("data.task=text_classification");
  config.assign("data.max_length=16");
  config.assign("data", "path", path, "test");
  Run::create(config, dir / "run")->train();
  const SavedModel saved = load_model(dir / "run", "last");
  const auto summary = *read_run(dir / "run").summary;
  CHECK(saved.checkpoint.data.size() == 3);
  CHECK_FALSE(summary.training->bits_per_byte.has_value());  // a label is no byte
  CHECK_FALSE(summary.validation->bits_per_byte.has_value());
  CHECK(saved.checkpoint.data == summary.data);
  CHECK(summary.data.at("test") == data::content_hash(*read_task(saved.config).test));

  // The same data elsewhere.
  std::filesystem::copy(path, dir / "b.tsv");
  CHECK_NOTHROW(Run::resume(dir / "run", {"data.path=" + (dir / "b.tsv").string()}));

  write("a.tsv", "1");
  const auto check_refused = [](const std::string& message) {
    CHECK_THAT(message, Contains("last.h5 is from a run on other data") &&
                            Contains("a.tsv have the hash ") && Contains(", expected ") &&
                            Contains("--set data.path=PATH") && Contains("--accept-data"));
  };
  check_refused(message_of<DataError>([&] { Run::resume(dir / "run"); }));
  const data::Task now = read_task(saved.config);
  check_refused(message_of<DataError>([&] { saved.check_data(now, saved.config); }));
  // Other options of the data are meant to change them.
  Config other = saved.config;
  other.assign("data.seed=1");
  CHECK_NOTHROW(saved.check_data(now, other));

  Config longer = config;
  longer.assign("train.steps=8");
  check_refused(message_of<DataError>([&] { Run::resume_or_create(longer, dir / "run"); }));
  const auto run = Run::resume_or_create(longer, dir / "run", true);
  REQUIRE(run->warnings().size() == 1);
  CHECK_THAT(run->warnings()[0], Contains("other data"));
  run->train();
  CHECK(load_model(dir / "run", "last").checkpoint.data != saved.checkpoint.data);
}

TEST_CASE("the summary of a diverged run reports it, also before its first record") {
  const TemporaryDirectory dir;
  Config config = tiny_run("[optimizer]\nlr = 1e30\n");
  config.assign("train.log_every=6");
  const auto run = Run::create(config, dir / "run");
  CHECK_THROWS_AS(run->train(), DivergedError);
  CHECK(read_run(dir / "run").summary->status == "diverged");
  CHECK_FALSE(fs::exists(dir / "run/metrics.jsonl"));
  const ReportInputs inputs = read_inputs({dir.path()});
  REQUIRE(inputs.runs.size() == 1);
  CHECK(inputs.runs[0].status == "diverged");
}

TEST_CASE("numbers that are not finite are recorded and read") {
  const TemporaryDirectory dir;
  RunRecord run = RunRecord::create(dir / "run");
  run.keep();
  Record record;
  record.step = 1;
  record.split = "train";
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.accuracy = -std::numeric_limits<double>::infinity();
  record.gradient_norm = std::numeric_limits<double>::infinity();
  record.model["performer.clipped"] = 3;
  run.append(record);
  const RecordedRun read = read_run(dir / "run");
  REQUIRE(read.metrics.size() == 1);
  CHECK(std::isnan(read.metrics[0].loss));
  CHECK(read.metrics[0].accuracy == record.accuracy);
  CHECK(read.metrics[0].gradient_norm == record.gradient_norm);
  CHECK(read.metrics[0].model == record.model);
  CHECK_FALSE(read.metrics[0].learning_rate.has_value());
  CHECK_FALSE(read.summary.has_value());
}

TEST_CASE("signals are requests during the lifetime of SignalRequests only") {
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  {
    SignalRequests signals;
    CHECK_FALSE(signals.stop());
    CHECK_FALSE(signals.take_save());
    raise(SIGUSR1);
    CHECK(signals.take_save());
    CHECK_FALSE(signals.take_save());
    raise(SIGTERM);
    CHECK(signals.stop());
    { CHECK(SignalRequests().stop()); }  // a nested one shares them
    CHECK(signals.stop());
  }
  sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == before.sa_handler);
  const SignalRequests again;
  CHECK_FALSE(again.stop());
}

TEST_CASE("signals that have arrived can be left to the handlers before") {
  static volatile sig_atomic_t handled = 0;
  const auto before = signal(SIGUSR1, [](int) { handled = 1; });
  {
    const SignalRequests signals;
    raise(SIGUSR1);
    CHECK(handled == 0);
    SignalRequests::decline();
    CHECK(handled == 1);
  }
  signal(SIGUSR1, before);
}
