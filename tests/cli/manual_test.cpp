// Manual pages and shell completion, as the program writes them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/cli/program.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

/// The candidates for the last of these words.
std::vector<std::string> complete(std::vector<std::string> words, const fs::path& where) {
  words.insert(words.begin(), {"completion", "--"});
  std::vector<std::string> out;
  std::istringstream lines(succeed(words, where).out);
  for (std::string line; std::getline(lines, line);) out.push_back(line.substr(0, line.find('\t')));
  return out;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("every command has a manual page without errors") {
  const TemporaryDirectory folder;
  succeed({"help", "--man-pages", "man"}, folder.path());
  for (const std::string& command : complete({""}, folder.path()))
    CHECK(fs::exists(folder / ("man/longhand-" + command + ".1")));
  std::ifstream in(folder / "man/longhand-bench.1");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  CHECK_THAT(page, Contains(".TH \"longhand\\-bench\" 1") &&
                       Contains(".SS \"longhand bench step\"") &&
                       Contains("\\fB\\-\\-recompute\\fR") && Contains(".SH \"EXIT STATUS\""));
  std::ifstream options(folder / "man/longhand.toml.5");
  const std::string all{std::istreambuf_iterator<char>(options), {}};
  CHECK_THAT(all, Contains(".SH \"[optimizer]\"") && Contains("\\fBlr\\fR = 0.001") &&
                      Contains(".SS \"attention.performer\""));
  // Warnings of the programs that show manual pages, where they are installed.
  const Outcome groff = shell(
      "command -v groff > /dev/null || exit 0\n"
      "for page in man/*; do groff -man -ww -Tutf8 \"$page\" 2>&1 > /dev/null; done",
      folder.path());
  CHECK(groff.out + groff.err == "");
  const Outcome mandoc = shell(
      "command -v mandoc > /dev/null || exit 0\n"
      "for page in man/*; do mandoc -T lint -W error \"$page\"; done; true",
      folder.path());
  CHECK(mandoc.out + mandoc.err == "");
}

TEST_CASE("completion of commands, flags and values") {
  const TemporaryDirectory folder;
  const auto at = [&](Words words) { return complete(std::move(words), folder.path()); };
  CHECK(at({"tra"}) == Words{"train"});
  CHECK(at({"bench", ""}) == Words{"step", "attention", "decode", "ranks", "sequence", "comm"});
  CHECK(at({"train", "--resu"}) == Words{"--resume", "--resume-or-start"});
  CHECK(at({"train", ""}) == Words{":files"});
  CHECK(at({"train", "--resume", ""}) == Words{":directories"});
  CHECK(at({"evaluate", "run", "--split", "t"}) == Words{"train", "test"});
  CHECK(has(at({"train", "c.toml", "--set", "op"}), "optimizer."));
  CHECK(has(at({"train", "c.toml", "--set", "optimizer.l"}), "optimizer.lr="));
  CHECK(has(at({"train", "c.toml", "--set", "attention.type=per"}), "attention.type=performer"));
  CHECK(at({"train", "c.toml", "--set", "train.shuffle="}) ==
        Words{"train.shuffle=true", "train.shuffle=false"});
  CHECK(has(at({"train", "c.toml", "--set", "a=1", "model.d_m"}), "model.d_model="));
  CHECK(has(at({"bench", "step", "--attention", "softmax,line"}), "softmax,linear"));
  CHECK(at({"config", "init", "mq"}) == Words{"mqar", "mqar_stacked", "mqar_overwrite"});
  CHECK(at({"config", "init", "mqar", "linf"}) == Words{"linformer"});
  CHECK(has(at({"help", "optimizer.l"}), "optimizer.lr"));
  CHECK(at({"nothing", "--x", ""}).empty() == false);
}

TEST_CASE("completion in shells") {
  const TemporaryDirectory folder;
  fs::create_directory(folder / "runs");
  const auto out = [&](const std::string& script) {
    const Outcome outcome = shell("PATH=$(dirname \"$longhand\"):$PATH\n" + script, folder.path());
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    return outcome.out;
  };
  write_text(
      folder / "c.bash",
      "source <(longhand completion bash)\n"
      "complete_line() { COMP_LINE=$1 COMP_POINT=${#1}; _longhand; echo \"${COMPREPLY[*]}\"; }\n"
      "complete_line 'longhand tra'\n"
      "complete_line 'longhand train --set attention.type=perf'\n"
      "complete_line 'longhand train --resume r'\n");
  CHECK(out("bash c.bash") == "train\nperformer\nruns\n");
  CHECK_THAT(out("command -v fish > /dev/null || { echo train; exit 0; }\n"
                 "export HOME=.; longhand completion fish > c.fish\n"
                 "fish --no-config -c 'source c.fish; complete -C \"longhand tra\"'"),
             Catch::StartsWith("train"));
  // zsh shows completions only in a terminal; here its parser reads the script.
  out("command -v zsh > /dev/null || exit 0\nlonghand completion zsh > c.zsh && zsh -n c.zsh");
  CHECK(run({"completion", "csh"}, folder.path()).code == 2);
}
