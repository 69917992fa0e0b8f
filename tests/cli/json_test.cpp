// --json is one form everywhere: one object, with the same fields about the result.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The commands that have --json, as the manual pages name them.
std::set<std::string> commands_with_json(const fs::path& where) {
  succeed({"help", "--man-pages", "man"}, where);
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(where / "man")) {
    std::ifstream in(entry.path());
    std::string command;
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("\\fBlonghand") && line.find(" [OPTIONS]") != std::string::npos)
        command = line.substr(3, line.find("\\fR") - 3);
      if (line == "\\fB\\-\\-json\\fR" && command != "longhand")
        out.insert(command.substr(std::string("longhand ").size()));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("JSON of every command is one object with the same fields") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  write_text(folder / "text", std::string(30000, 'a') + "b\n");
  write_text(folder / "lm.toml",
             "[model]\nd_model = 8\nheads = 1\nlayers = 1\nd_mlp = 8\nmax_length = 16\n"
             "[attention]\ntype = \"softmax\"\n[data]\ntask = \"text_lm\"\npath = \"text\"\n"
             "[train]\nsteps = 1\nbatch_size = 2\n");
  succeed({"train", "lm.toml", "--quiet", "--out", "lm"}, folder.path());
  write_text(folder / "sweep.toml",
             "[sweep]\nbase = \"config.toml\"\n[[axis]]\nattention.type = [\"linear\"]\n");
  write_text(folder / "a.tsv", "Source\tTarget\n[MAX 1 2 ]\t2\n");
  for (const char* const split : {"train", "validation", "test"})
    write_text(folder / (std::string(split) + ".tsv"), "good\ta text\nbad\tanother\n");
  succeed({"data", "make", "copy", "-o", "tokens.h5", "--count", "4"}, folder.path());
  const std::map<std::string, std::string> arguments = {
      {"train", "config.toml --out again"},
      {"evaluate", "run"},
      {"convert", "run --low-rank 4 --out small --no-evaluate --seconds 0"},
      {"generate", "lm --tokens 4"},
      {"ablate", "sweep.toml --out sweep"},
      {"replay", "run/checkpoints/last.h5"},
      {"variants", ""},
      {"check attention", "--variant none --check shapes"},
      {"bench step", "--attention none --length 16 --tokens 16 --repetitions 1"},
      {"bench attention", "--attention none,mean --length 16 --tokens 16 --repetitions 1"},
      {"bench decode", "--attention none --context 2 --batch 1 --d-model 8 --heads 1 --seconds 0"},
      {"plan", "config.toml --ranks 1,2 --seconds 0"},
      {"analyse error", "--length 16 --norm 1 --count 1 --attention nystrom:landmarks=4"},
      {"analyse spectrum", "--run run --length 16"},
      {"analyse landmarks", "--draws 2"},
      {"analyse kernel", "--length 16 --norm 1 --sizes 4 --draws 2"},
      {"analyse efficiency", "--attention linformer --sizes 8 --length 16,32 --seconds 0"},
      {"analyse attention", "run"},
      {"analyse heuristics", "copy data.train_size=20 data.test_size=10"},
      {"data make", "copy -o copy.h5 --count 4"},
      {"data show", "copy"},
      {"data hash", "copy --count 4"},
      {"data tasks", ""},
      {"data check listops", "a.tsv"},
      {"data check hdf5", "run/checkpoints/last.h5"},
      {"checkpoint inspect", "run/checkpoints/last.h5"},
      {"checkpoint verify", "--all run"},
      {"checkpoint diff", "run run"},
      {"checkpoint export", "run -o weights.safetensors"},
      {"checkpoint import", "weights.safetensors --out imported"},
      {"checkpoint repair", "run"},
      {"data check tokens", "tokens.h5"},
      {"data check text_classification", "."},
      {"data check text_lm", "text"},
      {"predict", "run -o predictions.jsonl"},
      {"report", "run"},
  };
  const auto check = [&](const std::string& command, const std::string& rest) {
    std::vector<std::string> words;
    std::istringstream in(command + " " + rest);
    for (std::string word; in >> word;) words.push_back(word);
    words.emplace_back("--json");
    const Outcome outcome = run(words, folder.path());
    INFO(command << ": " << outcome.err);
    CHECK(outcome.code == 0);
    const Json json = Json::parse(outcome.out, nullptr, false);
    REQUIRE(json.is_object());
    // A sweep's results and those of evaluate over a grid are read back by their kind.
    CHECK(json["kind"] == (command == "--version" ? "version" : command));
    CHECK_THAT(json["command"].get<std::string>(), Catch::StartsWith("longhand "));
    for (const char* const field : {"machine", "date", "version"}) CHECK(json[field].is_string());
  };
  for (const std::string& command : commands_with_json(folder.path())) {
    if (command == "data check pixels") continue;  // needs IDX files; the same as of tokens
    // These need mpirun: tests/distributed.
    if (command == "bench comm" || command == "bench ranks" || command == "bench sequence")
      continue;
    INFO(command << ": add its arguments to this test");
    REQUIRE(arguments.contains(command));
    check(command, arguments.at(command));
  }
  check("--version", "");
  check("check attention", "--list");
  check("ablate", "--status sweep");
  check("ablate", "sweep.toml --out sweep --dry-run");
}
