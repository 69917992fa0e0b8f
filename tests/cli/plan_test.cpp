// longhand plan: its output and its errors. tests/train/cost/forecast_test.cpp checks the numbers.
#include <map>
#include <nlohmann/json.hpp>

#include "longhand/train/cost/rates.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

/// A folder with a configuration, rates of computation and rates of a network.
class PlanFolder : public TinyFolder {
 public:
  PlanFolder() {
    write_text(*this / "step.json", R"({"kind": "bench step", "cells": [{"attention": "softmax",
      "length": 1024, "share_of_limit": 0.5, "machine_gflops": 100, "machine_exps_per_second": 1e9,
      "machine_bytes_per_second": 1e10}]})");
    train::Results comm{
        .kind = "bench comm", .title = {}, .command = {}, .machine = {}, .date = {}, .version = {}};
    std::vector<train::CollectiveRate> rates;
    for (const train::Collective each : train::all_collectives)
      rates.push_back({each, 2, 1e-6, 1e10, 0});
    comm.tables = {train::rate_table(rates)};
    write_text(*this / "comm.json", to_json(comm));
  }

  Outcome plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"plan", "config.toml", "--bench", "step.json"});
    return run(arguments, path());
  }
};

/// The rows of a table of results, by the names of its columns.
std::vector<std::map<std::string, Json>> rows(const Json& results, const std::string& name) {
  std::vector<std::map<std::string, Json>> out;
  for (const Json& table : results["tables"]) {
    if (table["name"] != name) continue;
    for (const Json& row : table["rows"]) {
      auto& cells = out.emplace_back();
      for (size_t i = 0; i < row.size(); ++i) cells[table["columns"][i]["name"]] = row[i];
    }
  }
  return out;
}

}  // namespace

TEST_CASE("plan gives every split of every number of ranks, and chooses one") {
  const PlanFolder folder;
  const Outcome outcome = folder.plan(
      {"--ranks", "1,4", "--length", "16,64", "--rates", "comm.json", "--json", "-o", "plan.json"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.out == read_text(folder / "plan.json"));
  const Json results = Json::parse(outcome.out);
  CHECK(results["kind"] == "plan");
  const auto all = rows(results, "forecasts");
  REQUIRE(all.size() == 2 * (1 + 3));  // 1 x 1, and 1 x 4, 2 x 2, 4 x 1
  for (auto row : all) {
    CHECK(row["data_ranks"].get<int>() * row["sequence_ranks"].get<int>() == row["ranks"]);
    CHECK(row["fits"] == "yes");
    const double parts = row["compute_s"].get<double>() + row["optimizer_s"].get<double>() +
                         row["communication_s"].get<double>() - row["hidden_s"].get<double>();
    CHECK(row["step_s"].get<double>() == Approx(parts));
    CHECK((row["sent_mib"].get<double>() > 0) == (row["ranks"] == 4));
    CHECK(row["memory_mib"].get<double>() > 30);
  }
  // One split of each length and number of ranks is marked as the choice.
  CHECK(results["tables"][1]["marked"] == Json::parse("[[0, 4], [3, 4], [4, 4], [7, 4]]"));
  auto choices = rows(results, "choices");
  REQUIRE(choices.size() == 4);
  CHECK(choices[0]["split"] == "1 x 1");
  CHECK(choices[0]["speed_up"] == 1);
  for (const char* const number : {"step_s", "sent_mib", "memory_mib"})
    CHECK(choices[0][number] == all[0].at(number));
  CHECK(choices[1]["length"] == 16);
  CHECK(choices[3]["length"] == 64);
  CHECK(choices[3]["split"] == "4 x 1");
  CHECK(choices[3]["options"] == "train.shards=4");
  CHECK_THAT(choices[3]["why"].get<std::string>(),
             Contains("of those that fit the least") && Contains("2 x 2 takes"));
  CHECK_THAT(results["tables"][0]["note"].get<std::string>(),
             Contains("Computed, not measured") && Contains("step.json, 1024 tokens") &&
                 Contains("comm.json"));
  CHECK_THAT(results["summary"].get<std::string>(),
             Contains("16 tokens:") && Contains("64 tokens:"));

  // A report shows it.
  const Outcome report = run({"report", "plan.json", "-o", "plan.html"}, folder.path());
  INFO(report.err);
  CHECK(report.code == 0);
  CHECK_THAT(read_text(folder / "plan.html"), Contains("Computed seconds of a step against ranks"));
}

TEST_CASE("plan chooses what fits into memory, and says what does not") {
  const PlanFolder folder;
  const auto plan = [&](const char* gib) {
    return Json::parse(
        folder
            .plan({"--ranks", "4", "--length", "65536", "--set", "train.batch_size=4",
                   "train.eval_batch_size=1", "--memory", gib, "--json"})
            .out);
  };
  // One sequence on each rank needs about 60 MiB, a quarter of each four sequences as much less.
  auto roomy = rows(plan("100"), "choices").at(0);
  CHECK(roomy["split"] == "4 x 1");
  auto tight = rows(plan("0.01"), "choices").at(0);
  CHECK_THAT(tight["why"].get<std::string>(),
             Contains("does not fit: ") && Contains("--memory has 10 MiB"));
  CHECK_THAT(plan("0.01")["summary"].get<std::string>(),
             Contains("65,536 tokens do not fit on any of these numbers of ranks"));
  // Ranks that share this machine have a part of its memory each.
  const auto here = Json::parse(
      folder.plan({"--ranks", "1,2", "--here", "--threads", "1", "--memory", "0.08", "--json"})
          .out);
  auto two = rows(here, "forecasts");
  CHECK(two.at(0)["fits"] == "yes");
  CHECK(two.at(1)["fits"] == "no");
}

TEST_CASE("plan measures steps by itself, and assumes a network") {
  const PlanFolder folder;
  const Outcome outcome =
      run({"plan", "config.toml", "--ranks", "2", "--seconds", "0", "--latency", "3", "--threads",
           "1", "--table", "md", "--quiet", "attention.type=linear"},
          folder.path());
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(outcome.err == "");
  CHECK_THAT(outcome.out, Contains("| length | ranks | split |") && Contains("| 16 | 2 |") &&
                              !Contains("Every split"));
  const Outcome text = run(
      {"plan", "config.toml", "--ranks", "2", "--seconds", "0", "--latency", "3", "--threads", "1"},
      folder.path());
  CHECK_THAT(text.out, Contains("measured here with 1 thread") && Contains("network of 3 us"));
}

TEST_CASE("plan names what it cannot use") {
  const PlanFolder folder;
  const auto fails = [&](std::vector<std::string> arguments, int code, const std::string& text) {
    const Outcome outcome = folder.plan(std::move(arguments));
    CAPTURE(outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.out == "");
    CHECK_THAT(outcome.err, Contains(text));
  };
  fails({"--rates", "nothing.json"}, 3, "nothing.json");
  fails({"--rates", "step.json"}, 3, "step.json");
  fails({"--rates", "comm.json", "--latency", "1"}, 2, "expected one or the other");
  fails({"--bandwidth", "0"}, 2, "--bandwidth 0: expected a number above 0");
  fails({"--latency", "-1"}, 2, "--latency -1: expected a number above 0");
  fails({"--memory", "0"}, 2, "--memory 0: expected a number above 0, in GiB");
  for (const char* const ranks : {"0", "1048577", "2000000000"})
    fails({"--ranks", std::string("4,") + ranks}, 2,
          std::string("--ranks: expected an integer from 1 to 2^20, got ") + ranks);
  fails({"--length", "0"}, 2, "--length");
  fails({"--table", "pdf"}, 2, "pdf");
  fails({"attention.type=linear"}, 3, "step.json: has no cell of linear, but of softmax");
  fails({"attention.k=4"}, 2, "attention.k");
  fails({"--bench", "comm.json"}, 2, "--bench");  // given twice
  CHECK(run({"plan"}, folder.path()).code == 2);
  // Sequences of 16 tokens cannot be cut over 64 ranks.
  const Outcome many = folder.plan({"--ranks", "1,64", "--json", "train.batch_size=1"});
  CHECK(many.code == 0);
  auto choices = rows(Json::parse(many.out), "choices");
  CHECK(choices.at(1)["split"] == "-");
  CHECK_THAT(choices.at(1)["why"].get<std::string>(), Contains("cannot train"));
}
