// longhand help, and the tables of the pages generated from it.
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>

#include "longhand/attention/registry.h"
#include "longhand/core/utf8.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/reference.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string help(const std::vector<std::string>& topic) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments = {"help"};
  arguments.insert(arguments.end(), topic.begin(), topic.end());
  const Outcome outcome = run(arguments, folder.path());
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return outcome.out;
}

}  // namespace

TEST_CASE("help prints each option with default, range and meaning") {
  CHECK_THAT(help({}), Contains("longhand help train") && Contains("attention.NAME"));
  CHECK_THAT(help({"train"}), Contains("batch_size") && Contains("at least 1; default 1000"));
  CHECK_THAT(help({"optimizer"}),
             Contains("beta1") && Contains("beta2") && !Contains("The command:"));
  // A section with the name of a command.
  CHECK_THAT(help({"train"}), Contains("The command: longhand train --help"));
  CHECK_THAT(help({"train", "--markdown"}), Contains("batch_size") && !Contains("The command:"));
  CHECK_THAT(help({"model"}), Contains("d_mlp") && Contains("default 2 d_model"));
  CHECK_THAT(help({"data"}), Contains("data.mqar") && Contains("associative recall"));
  CHECK_THAT(help({"data.mqar"}), Contains("pairs") && Contains("default 4)"));
  CHECK_THAT(help({"attention"}), Contains("attention.performer") && Contains("type"));
  CHECK_THAT(help({"attention.performer"}), Contains("features") && Contains("default 256)"));
  CHECK_THAT(help({"--markdown", "data.mqar"}), Catch::StartsWith("| option | values |"));
}

TEST_CASE("commands.txt describes only commands and arguments that exist") {
  // Words, with one space between them.
  const auto words_of = [](const std::string& text) {
    std::istringstream in(text);
    std::string out;
    for (std::string word; in >> word;) out += (out.empty() ? "" : " ") + word;
    return out;
  };
  const std::string printed = words_of(help({"commands", "--markdown"}));
  std::istringstream file(read(fs::path(LONGHAND_SOURCE) / "train/cli/help/commands.txt"));
  int sections = 0, arguments = 0;
  std::string item;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("  ") && !item.empty()) {
      item += line;
      continue;
    }
    if (!item.empty()) {
      INFO(item);
      CHECK(printed.find(words_of(item.substr(item.find(": ") + 2))) != std::string::npos);
      ++arguments;
    }
    item = line.starts_with("- ") ? line : "";
    if (!line.starts_with("# ") || !std::getline(file, line) || line.empty()) continue;
    INFO(line);
    CHECK(printed.find(words_of(line)) != std::string::npos);
    ++sections;
  }
  CHECK(sections > 40);
  CHECK(arguments > 150);
}

TEST_CASE("help on an unknown topic names the nearest one") {
  const TemporaryDirectory folder;
  for (const auto& [topic, near] : {std::pair{"attention.perfomer", "attention.performer"},
                                    {"trian", "train"},
                                    {"data.mqqar", "data.mqar"},
                                    {"optimizer.lrr", "optimizer.lr"},
                                    {"train.lr", "optimizer.lr"},
                                    {"performr", "attention.performer"},
                                    {"landmrks", "attention.landmarks"}}) {
    const Outcome outcome = run({"help", topic}, folder.path());
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err, Contains(std::string("did you mean ") + near + "?"));
  }
  for (const char* value : {"attention.relu_sq", "squared_relux"})
    CHECK_THAT(run({"help", value}, folder.path()).err,
               Contains("did you mean squared_relu, a value of attention.linear.feature_map"));
  CHECK_THAT(run({"help", "colours"}, folder.path()).err, Contains("expected one of model"));
}

TEST_CASE("help on one option, on options about something and on commands") {
  for (const char* name : {"optimizer.lr", "lr"})
    CHECK_THAT(help({name}),
               Catch::StartsWith("optimizer.lr\n  meaning   peak learning rate") &&
                   Contains("default   0.001") &&
                   Contains("--set optimizer.lr=0.001, or lr = 0.001 in [optimizer]"));
  CHECK_THAT(help({"final_lr"}), Contains("only with schedule = \"linear\" or \"cosine\""));
  CHECK_THAT(help({"attention.features"}), Contains("performer") && Contains("rff"));
  CHECK_THAT(help({"performer"}), Catch::StartsWith("attention.performer: "));
  CHECK_THAT(help({"learning", "rate"}), Contains("optimizer.lr\n") && Contains("final_lr"));
  CHECK_THAT(help({"bench", "step"}), Contains("Usage: longhand bench step [OPTIONS]"));
  CHECK_THAT(help({"train"}), Contains("longhand train --help"));
  CHECK_THAT(help({"commands"}), Contains("Usage: longhand [OPTIONS] COMMAND"));
  // A page with the help of every command, also of those in groups.
  CHECK_THAT(help({"commands", "--markdown"}),
             Catch::StartsWith("# Commands\n") && Contains("\n## longhand bench step\n") &&
                 Contains("\nUsage: longhand bench step [OPTIONS]") && Catch::EndsWith("```\n\n"));
}

TEST_CASE("every page of help fits 100 columns") {
  const TemporaryDirectory folder;
  const auto check_width = [](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(width_of(line) <= 100);
    }
  };
  const auto words_after = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"completion", "--"});
    words.emplace_back("");
    std::vector<std::string> out;
    std::istringstream lines(run(words, folder.path()).out);
    for (std::string line; std::getline(lines, line);)
      out.push_back(line.substr(0, line.find('\t')));
    return out;
  };
  check_width(help({}));
  for (const std::string& name : train::topic_names()) check_width(help({name}));
  const std::string about = help({"e"});  // nearly every option, with all that is said about it
  CHECK(about.size() > 20'000);
  check_width(about);
  for (const auto& arguments :
       {std::vector<std::string>{"--help"}, {"variants"}, {"data", "tasks"}})
    check_width(succeed(arguments, folder.path()).out);
  size_t commands = 0;
  for (const std::string& command : words_after({})) {
    check_width(succeed({command, "--help"}, folder.path()).out);
    for (const std::string& word : words_after({command})) {
      const Outcome page = run({command, word, "--help"}, folder.path());
      if (page.out.find("Usage: longhand " + command + " " + word) == std::string::npos) continue;
      check_width(page.out);
      ++commands;
    }
  }
  CHECK(commands >= 15);
}

TEST_CASE("every command has its flags") {
  const TemporaryDirectory folder;
  std::string found;
  const std::function<void(const std::vector<std::string>&)> add =
      [&](const std::vector<std::string>& command) {
        std::vector<std::string> words = command;
        words.emplace_back("--help");
        std::string name;
        for (const std::string& word : command) name += " " + word;
        std::istringstream page(run(words, folder.path()).out);
        bool is_page = command.empty();
        std::set<std::string> flags;
        for (std::string line; std::getline(page, line);) {
          is_page = is_page || line.starts_with("Usage: longhand" + name);
          if (!line.starts_with("  -")) continue;
          for (size_t at = line.find("--"); at < 28; at = line.find("--", at + 2))
            flags.insert(line.substr(at, line.find_first_of(" ,", at) - at));
        }
        if (!is_page || command.size() > 3) return;
        found += "longhand" + name + ":";
        for (const std::string& flag : flags) found += " " + flag;
        found += "\n";
        words.insert(words.begin(), {"completion", "--"});
        words.back() = "";
        std::istringstream next(run(words, folder.path()).out);
        for (std::string line; std::getline(next, line);) {
          std::vector<std::string> longer = command;
          longer.push_back(line.substr(0, line.find('\t')));
          if (std::islower(static_cast<unsigned char>(line[0])) != 0) add(longer);
        }
      };
  add({});
  // A line for each command; a change of them is one of what users rely on.
  const std::string expected = read(fs::path(LONGHAND_SOURCE) / "tests/cli/flags.txt");
  std::istringstream lines(found), others(expected);
  for (std::string line; std::getline(lines, line);)
    if (("\n" + expected).find("\n" + line + "\n") == std::string::npos)
      FAIL_CHECK("not in tests/cli/flags.txt: " << line);
  for (std::string line; std::getline(others, line);)
    if (("\n" + found).find("\n" + line + "\n") == std::string::npos)
      FAIL_CHECK("only in tests/cli/flags.txt: " << line);
}

TEST_CASE("config init writes a configuration that trains as it is") {
  const TemporaryDirectory folder;
  const std::string made = succeed({"config", "init", "copy", "performer"}, folder.path()).out;
  CHECK_THAT(made, Contains("# peak learning rate of the schedule (at least 0; default 0.001)\n"
                            "lr = 0.002\n") &&
                       Contains("\n# vocabulary = ") && Contains("\n# nesterov = false\n") &&
                       Contains("\neval_batches = 3\n") && Contains("\ntype = \"performer\"\n"));
  write_text(folder / "a.toml", made);
  const std::vector<std::string> small = {"train",
                                          "a.toml",
                                          "--quiet",
                                          "--out",
                                          "run",
                                          "--set",
                                          "train.steps=1",
                                          "data.train_size=32",
                                          "data.validation_size=4",
                                          "data.test_size=4"};
  CHECK(run(small, folder.path()).code == 0);
  // Options that follow from others still do, and all effective values are those of the file.
  CHECK_THAT(succeed({"config", "dump", "a.toml", "--set", "train.steps=50"}, folder.path()).out,
             Contains("eval_every = 5\n"));
  // As many examples in an evaluation as cost about 1 % of the steps between two, unless another number is given.
  const auto evaluated = [&](const std::vector<std::string>& set) {
    std::vector<std::string> words = {"config", "init", "copy", "--set"};
    words.insert(words.end(), set.begin(), set.end());
    const std::string text = succeed(words, folder.path()).out;
    const size_t begin = text.find("\neval_batches = ") + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(evaluated({"train.steps=2000", "train.batch_size=12"}) == "eval_batches = 5");
  CHECK(evaluated({"train.steps=2000", "train.eval_batch_size=64"}) == "eval_batches = 3");
  CHECK(evaluated({"train.steps=9", "train.batch_size=2"}) == "eval_batches = 1");
  // The first examples would be of the first segment.
  CHECK(evaluated({"data.length=[64,128]"}) == "eval_batches = 0");
  CHECK(evaluated({"train.eval_every=0"}) == "eval_batches = 0");
  CHECK(evaluated({"train.eval_batches=3"}) == "eval_batches = 3");
  // To a file, which must not exist; with options; of a task that needs files.
  succeed({"config", "init", "mqar", "-o", "b.toml", "--set", "model.layers=1"}, folder.path());
  CHECK_THAT(read(folder / "b.toml"), Contains("\nlayers = 1\n"));
  CHECK_THAT(run({"config", "init", "mqar", "-o", "b.toml"}, folder.path()).err,
             Contains("b.toml: the file exists; choose another name"));
  CHECK_THAT(
      succeed({"config", "init", "copy", "softmax", "--set", "attention.type=linear",
               "data.task=parity"},
              folder.path())
          .out,
      Catch::StartsWith("# parity with linear attention. ") && Contains("--out runs/linear\n"));
  CHECK_THAT(run({"config", "init", "text_lm", "linear"}, folder.path()).err,
             Contains("longhand config init text_lm linear --set data.path=PATH"));
  CHECK_THAT(run({"config", "init", "cpoy"}, folder.path()).err, Contains("did you mean copy?"));
  CHECK_THAT(run({"config", "init", "copy", "perfomer"}, folder.path()).err,
             Contains("did you mean \"performer\"?"));
}

TEST_CASE("config init gives a configuration that trains, for every variant") {
  const TemporaryDirectory folder;
  for (const std::string& variant : attention::names()) {
    INFO(variant);
    const std::string config = variant + ".toml";
    const Outcome made =
        run({"config", "init", "copy", variant, "--set", "model.d_model=16", "-o", config},
            folder.path());
    INFO(made.err);
    REQUIRE(made.code == 0);
    const Outcome trained = run(
        {"train", config, "--quiet", "--out", variant, "--set", "train.steps=2",
         "train.batch_size=4", "data.train_size=32", "data.validation_size=4", "data.test_size=4"},
        folder.path());
    INFO(trained.err);
    CHECK(trained.code == 0);
  }
}

TEST_CASE("config dump prints the meaning of options") {
  const TinyFolder folder;
  const Outcome outcome = run({"config", "dump", "config.toml", "--comments"}, folder.path());
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("# embedding dimension, a multiple of heads") &&
                              Contains("# number of symbols to copy") &&
                              Contains("# peak learning rate of the schedule"));
  write_text(folder / "again.toml", outcome.out);
  const std::string plain = run({"config", "dump", "config.toml"}, folder.path()).out;
  CHECK(run({"config", "dump", "again.toml"}, folder.path()).out == plain);
}

TEST_CASE("tables of options in the pages are those of the declarations") {
  const fs::path source = LONGHAND_SOURCE;
  size_t tables = 0;
  for (const char* folder : {"attention", "data", "train"})
    for (const auto& entry : fs::recursive_directory_iterator(source / folder)) {
      if (entry.path().extension() != ".md") continue;
      const std::string text = read(entry.path());
      const std::string begin = "\n<!-- options: ", end = "<!-- end -->";
      for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
        const size_t name = at + begin.size(), close = text.find(" -->\n", name);
        const size_t table = close + 5, stop = text.find(end, table);
        REQUIRE(close != std::string::npos);
        REQUIRE(stop != std::string::npos);
        INFO(entry.path().string() << ": stale; run tests/update_pages.sh PATH/TO/longhand");
        CHECK(text.substr(table, stop - table) ==
              to_markdown(train::topic(text.substr(name, close - name))));
        ++tables;
      }
    }
  CHECK(tables >= 20);
}

TEST_CASE("the page of all options is that of the declarations") {
  INFO("train/options.md: stale; run tests/update_pages.sh PATH/TO/longhand");
  CHECK(read(fs::path(LONGHAND_SOURCE) / "train/options.md") == train::reference_page());
}
