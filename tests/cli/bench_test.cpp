// longhand bench: its output and its errors. No test depends on timings.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

Outcome bench(std::vector<std::string> arguments) {
  const TemporaryDirectory folder;
  arguments.insert(arguments.begin(), "bench");
  for (const char* word : {"--d-model", "16", "--tokens", "128", "--repetitions", "1"})
    arguments.emplace_back(word);
  return run(arguments, folder.path());
}

std::vector<Json> cells_of(const Outcome& outcome) {
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return Json::parse(outcome.out).at("cells").get<std::vector<Json>>();
}

}  // namespace

TEST_CASE("bench leaves out a row that takes longer than --row-timeout") {
  CHECK(cells_of(bench({"step", "--attention", "linear", "--length", "32", "--row-timeout", "300",
                        "--json"}))
            .size() == 1);
  const Outcome ended =
      bench({"step", "--attention", "svd", "--length", "4096", "--row-timeout", "1", "--json"});
  CHECK(ended.code == 1);
  CHECK_THAT(ended.err, Contains("svd 4096: ended after 1 s"));
  CHECK(Json::parse(ended.out)["cells"].empty());
}

TEST_CASE("bench gives the cells in order") {
  for (const char* what : {"step", "attention"}) {
    const auto cells =
        cells_of(bench({what, "--attention", "softmax,linear", "--length", "64,32", "--dropout",
                        "0.25", "--threads", "2", "--seed", "3", "--json"}));
    REQUIRE(cells.size() == 4);
    for (size_t i = 0; i < 4; ++i) {
      const Json& cell = cells[i];
      INFO(what << " " << cell);
      CHECK(cell["attention"] == (i < 2 ? "softmax" : "linear"));
      CHECK(cell["length"] == (i % 2 ? 32 : 64));
      CHECK(cell["batch"] == (i % 2 ? 4 : 2));
      CHECK(cell["dropout"] == 0.25);
      // Only variants that form probabilities can drop them.
      CHECK(cell["attention_dropout"] == (i < 2 ? 0.25 : 0));
      CHECK(cell["threads"] == 2);
      CHECK(cell["repetitions"] == 1);
      for (const char* key : {"seconds", "seconds_forward", "tokens_per_second", "gflops",
                              "share_of_peak", "limit_seconds", "share_of_limit", "machine_gflops",
                              "seconds_low", "seconds_high", "allocated_bytes"})
        CHECK(cell[key].get<double>() > 0);
      CHECK(cell["seconds_forward"] <= cell["seconds"]);
      if (what != std::string("step")) continue;
      // About six operations for each parameter and token: embeddings need fewer, attention more.
      const double work = 1e9 * cell["gflops"].get<double>() * cell["seconds"].get<double>();
      CHECK(work == Approx(6 * cell["parameters"].get<double>() * 128).epsilon(0.5));
    }
  }
}

TEST_CASE("the memory of a cell does not depend on the cells before it") {
  // 4096 tokens need memory that 16 do not: probabilities, and longer queries, keys and values.
  const auto cells =
      cells_of(bench({"attention", "--attention", "softmax", "--length", "4096,16", "--json"}));
  REQUIRE(cells.size() == 2);
  const auto peak = [&](size_t i) { return cells[i]["peak_memory_bytes"].get<double>(); };
  CHECK(peak(1) > 0);
  CHECK(peak(1) < peak(0));
}

// Under the address sanitizer, freed memory is not used again, so peaks say nothing.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("recomputed blocks need less memory") {
  const TemporaryDirectory folder;
  const auto peak = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "step", "--attention", "none", "--length", "8192",
                                         "--layers", "8", "--repetitions", "1", "--json"});
    return cells_of(run(arguments, folder.path())).at(0)["peak_memory_bytes"].get<double>();
  };
  CHECK(peak({"--recompute"}) < 0.7 * peak({}));
}
#endif

TEST_CASE("bench prints a table, and crossovers against exact attention") {
  const Outcome outcome =
      bench({"step", "--attention", "softmax,linear", "--length", "16,32", "--quiet"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err == "");
  CHECK_THAT(outcome.out, Contains("of limit") && Contains("softmax") &&
                              Contains("Against exact attention") && Contains("This machine, "));
}

TEST_CASE("options apply to the variants that declare them") {
  const auto cells = cells_of(bench({"step", "--attention", "softmax,linformer", "--length", "32",
                                     "--set", "attention.k=4", "--json"}));
  REQUIRE(cells.size() == 2);
  // Two layers, E and F of 4 rows each.
  CHECK(cells[1]["parameters"].get<int>() - cells[0]["parameters"].get<int>() == 2 * 2 * 4 * 32);
}

TEST_CASE("bench measures every option, and dropout where there are probabilities") {
  for (const char* option : {"attention.pinv=svd", "attention.pinv=ridge"}) {
    const auto cells = cells_of(bench(
        {"attention", "--attention", "nystrom", "--length", "128", "--set", option, "--json"}));
    REQUIRE(cells.size() == 1);
    CHECK(cells[0]["limit_seconds"].get<double>() > 0);
  }
  const auto cells = cells_of(bench({"attention", "--attention", "softmax,linear,lowrank",
                                     "--length", "32", "--dropout", "0.1", "--json"}));
  REQUIRE(cells.size() == 3);
  CHECK(cells[0]["attention_dropout"] == 0.1);
  CHECK(cells[1]["attention_dropout"] == 0.0);
  CHECK(cells[2]["attention_dropout"] == 0.0);
}

TEST_CASE("bench measures models whose layers differ") {
  const auto cells =
      cells_of(bench({"step", "--attention", "window+linear,softmax", "--length", "32", "--set",
                      "attention.window=4", "--dropout", "0.1", "--json"}));
  REQUIRE(cells.size() == 2);
  CHECK(cells[0]["attention"] == "window+linear");
  CHECK(cells[0]["seconds"].get<double>() > 0);
}

TEST_CASE("bench takes options of single layers with one variant for all layers") {
  const auto cells =
      cells_of(bench({"step", "--attention", "softmax,window", "--length", "32", "--set",
                      "attention.1.window=4", "--dropout", "0.1", "--json"}));
  REQUIRE(cells.size() == 2);
  for (const Json& cell : cells) CHECK(cell["attention_dropout"] == 0.1);
}

TEST_CASE("a causal bench includes the variants that can be causal") {
  const auto cells = cells_of(bench({"step", "--causal", "--length", "16", "--json"}));
  CHECK(cells.size() >= 3);
  for (const Json& cell : cells) CHECK(cell["attention"] != "linformer");
}

namespace {

Outcome bench_decode(std::vector<std::string> arguments) {
  const TemporaryDirectory folder;
  arguments.insert(arguments.begin(), {"bench", "decode", "--d-model", "16", "--heads", "2",
                                       "--seconds", "0", "--quiet"});
  return run(arguments, folder.path());
}

}  // namespace

TEST_CASE("bench decode gives costs against context, and crossings with softmax") {
  const Outcome outcome = bench_decode({"--attention", "linear,forgetting", "--context", "4,40",
                                        "--batch", "1,3", "--json", "--seed", "3"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json tables = Json::parse(outcome.out).at("tables");
  const auto column = [&](size_t table, const std::string& name) {
    const Json& columns = tables.at(table).at("columns");
    const auto at =
        std::ranges::find_if(columns, [&](const Json& c) { return c.at("name") == name; });
    std::vector<Json> out;
    for (const Json& row : tables.at(table).at("rows")) out.push_back(row.at(at - columns.begin()));
    return out;
  };
  using Column = std::vector<Json>;
  CHECK(column(0, "attention") == Column{"softmax", "softmax", "softmax", "softmax", "linear",
                                         "linear", "linear", "linear", "forgetting", "forgetting",
                                         "forgetting", "forgetting"});
  CHECK(column(0, "batch") == Column{1, 1, 3, 3, 1, 1, 3, 3, 1, 1, 3, 3});
  CHECK(column(0, "context") == Column{4, 40, 4, 40, 4, 40, 4, 40, 4, 40, 4, 40});
  // Keys and values in f32, for 16 and 64 tokens; a sum in f64; and sums of decays.
  const int keys = 2 * 16 * 4, sums = 16 * (8 + 1) * 8;
  CHECK(column(0, "state_bytes") == Column{16 * keys, 64 * keys, 16 * keys, 64 * keys, sums, sums,
                                           sums, sums, 16 * (keys + 16), 64 * (keys + 16),
                                           16 * (keys + 16), 64 * (keys + 16)});
  for (const char* const name : {"tokens_per_second", "share_of_limit", "limit_us"})
    for (const Json& value : column(0, name)) CHECK(value.get<double>() > 0);
  CHECK(column(1, "attention") == Column{"linear", "linear", "forgetting", "forgetting"});
  CHECK(column(1, "smaller_from")[0] == 4);
  CHECK(column(1, "smaller_from")[2].is_null());
}

TEST_CASE("errors of bench decode") {
  const auto failure = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = bench_decode(arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK_THAT(failure({"--attention", "linformer"}), Contains("linformer"));
  CHECK_THAT(failure({"--attention", "linear", "--context", "64,64"}), Contains("--context"));
  CHECK_THAT(failure({"--attention", "linear", "--batch", "0"}), Contains("--batch"));
  CHECK_THAT(failure({"--attention", "linear", "--context", "1048576", "--batch", "1048576"}),
             Contains("--batch") && Contains("softmax"));
  CHECK_THAT(failure({"--set", "attention.k=4", "--attention", "linear"}), Contains("attention.k"));
  CHECK_THAT(failure({"--attention", "linear", "--fill-seconds", "0"}),
             Contains("--fill-seconds") && Contains("64"));
}

TEST_CASE("errors of bench") {
  const auto failure = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = bench(arguments);
    INFO(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK_THAT(failure({}), Contains("bench"));
  CHECK_THAT(failure({"step", "--attention", "linfromer"}), Contains("linformer"));
  CHECK_THAT(failure({"step", "--model", "S"}), Contains("--model S"));
  CHECK_THAT(failure({"step", "--length", "0"}), Contains("--length"));
  CHECK_THAT(failure({"step", "--dropout", "1.5"}), Contains("dropout"));
  CHECK_THAT(failure({"step", "--heads", "3"}), Contains("--heads") && Contains("d_model"));
  CHECK_THAT(failure({"step", "--attention", "softmax", "--set", "attention.k=4"}),
             Contains("attention.k"));
  CHECK_THAT(failure({"step", "--set", "attention.type=linear"}), Contains("--attention"));
  CHECK_THAT(failure({"step", "--attention", "linear", "--length", "16", "--set", "data.x=4"}),
             Contains("data.x"));
  CHECK_THAT(failure({"step", "--attention", "linformer", "--causal"}), Contains("causal"));
  // Everything is checked before anything is measured: otherwise the first cells would print.
  CHECK_THAT(failure({"step", "--attention", "softmax,linformer", "--length", "16,4", "--set",
                      "attention.k=0"}),
             Contains("attention.k = 0"));
  CHECK_THAT(failure({"step", "--attention", "softmax,nystrom", "--length", "16", "--causal"}),
             Contains("causal"));
  CHECK_THAT(failure({"attention", "--attention", "softmax,nystrom", "--length", "16", "--set",
                      "attention.ridge=0.1"}),
             Contains("attention.ridge") && Contains("only with pinv"));
}

TEST_CASE("bench step --against measures two builds in turns") {
  const TemporaryDirectory folder;
  // The program itself, which also writes down what it is asked for.
  write_text(folder / "other", "#!/bin/sh\necho \"$*\" >> log\nexec \"$longhand\" \"$@\"\n");
  fs::permissions(folder / "other", fs::perms::owner_all);
  const auto against = [&](const std::string& more) {
    return shell(
        "$longhand bench step --d-model 16 --tokens 128 --repetitions 1 --length 32 --seed 3 " +
            more,
        folder.path());
  };
  const Outcome outcome = against(
      "--attention softmax,linformer --set attention.k=4 --against ./other --rounds 6 --json");
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json result = Json::parse(outcome.out);
  CHECK(result["kind"] == "bench step");
  const Json& table = result["tables"][0];
  const std::vector<std::string> names = {
      "attention", "length",     "seconds",         "other_seconds",   "ratio",
      "ratio_low", "ratio_high", "peak_memory_mib", "more_memory_mib", "rounds"};
  REQUIRE(table["columns"].size() == names.size());
  for (size_t i = 0; i < names.size(); ++i) CHECK(table["columns"][i]["name"] == names[i]);
  REQUIRE(table["rows"].size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const Json& row = table["rows"][i];
    INFO(row);
    CHECK(row[0] == (i == 0 ? "softmax" : "linformer"));
    CHECK(row[1] == 32);
    CHECK(row[5] <= row[4]);
    CHECK(row[4] <= row[6]);
    CHECK(row[7] > 0);
    CHECK(std::abs(row[8].get<double>()) < 0.5 * row[7].get<double>());
    CHECK(row[9] == 6);
  }
  // It runs the same cells with the same options.
  std::istringstream log(read_text(folder / "log"));
  std::string line;
  std::getline(log, line);
  CHECK(line == "--version --json");
  for (int i = 0; i < 12; ++i) {
    REQUIRE(std::getline(log, line));
    CHECK_THAT(line, Contains(i < 6 ? "--attention softmax" : "--attention linformer") &&
                         Contains("--length 32") && Contains("--seed 3"));
    CHECK((line.find("attention.k=4") != std::string::npos) == (i >= 6));
  }
  CHECK(!std::getline(log, line));

  const Outcome text = against("--attention softmax --rounds 1 --quiet --against ./other");
  CHECK_THAT(text.out, Contains("Steps of this build") && Contains("/other (") &&
                           Contains("By their intervals, 0 of 1 cells"));
  const Outcome csv = against("--attention softmax --rounds 1 --table csv --against ./other");
  CHECK_THAT(csv.out, Catch::StartsWith("attention,length,seconds,other_seconds,ratio,"));
}

TEST_CASE("bench step --against refuses programs that are not builds of longhand") {
  const TemporaryDirectory folder;
  const auto script = [&](const std::string& name, const std::string& bench) {
    write_text(folder / name,
               "#!/bin/sh\n[ \"$1\" != --version ] || exec \"$longhand\" \"$@\"\n" + bench + "\n");
    fs::permissions(folder / name, fs::perms::owner_all);
  };
  const auto refused = [&](const std::string& more, int code) {
    const Outcome outcome = shell(
        "$longhand bench step --attention softmax,linear --length 16 --d-model 16 --tokens 16 "
        "--rounds 1 --repetitions 1 " +
            more,
        folder.path());
    INFO(more << ": " << outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  write_text(folder / "text", "longhand");
  CHECK_THAT(refused("--against missing", 2), Contains("missing") && Contains("no such file"));
  CHECK_THAT(refused("--against text", 2), Contains("text") && Contains("cannot be executed"));
  CHECK_THAT(refused("--against .", 2), Contains("cannot be executed"));
  CHECK_THAT(refused("--against /bin/true", 2), Contains("/bin/true") && Contains("--version"));
  CHECK_THAT(refused("--against /bin/false", 2), Contains("--version"));
  script("older", "echo '{\"cells\": [{\"seconds\": 1}]}'");
  CHECK_THAT(refused("--against ./older", 2), Contains("\"peak_memory_bytes\""));
  script("silent", "");
  CHECK_THAT(refused("--against ./silent", 2), Contains("\"seconds\""));
  script("lists", "echo '[1]'");
  CHECK_THAT(refused("--against ./lists", 2), Contains("\"seconds\""));
  script("fails", "exit 3");
  CHECK_THAT(refused("--against ./fails", 1),
             Contains("fails: softmax 16") && Contains("fails: linear 16"));
  CHECK_THAT(refused("", 2), Contains("apply only to comparisons; add --against"));
  CHECK_THAT(refused("--table xml --against ./older", 2), Contains("xml"));

  // A cell that the other build cannot measure, such as a variant that it does not have yet.
  script("partial", "case \"$*\" in *linear*) exit 2;; *) exec \"$longhand\" \"$@\";; esac");
  const Outcome partial = shell(
      "$longhand bench step --attention softmax,linear --length 16 --d-model 16 --tokens 16 "
      "--rounds 1 --repetitions 1 --against ./partial",
      folder.path());
  CHECK(partial.code == 1);
  CHECK_THAT(partial.out, Contains("softmax") && !Contains("linear"));
  CHECK_THAT(partial.err, Contains("partial: linear 16"));
}
