// Runs whose targets are numbers or labels: train, evaluate, predict, sweeps and reports.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "longhand/core/random.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

/// Sequences of 8 bits. Numbers: the share of ones, and the difference of the last two bits. Labels: whether
/// there are more than three ones, and the first bit.
struct Files : TinyFolder {
  Files() {
    std::string numbers, labels;
    for (uint64_t i = 0; i < 250; ++i) {
      Json tokens;
      int ones = 0;
      for (uint64_t b = 0; b < 8; ++b) {
        tokens.push_back((i + 1) >> b & 1);
        ones += static_cast<int>((i + 1) >> b & 1);
      }
      const int difference = tokens[7].get<int>() - tokens[6].get<int>();
      numbers += Json{{"tokens", tokens}, {"targets", {ones / 8.0, difference}}}.dump() + "\n";
      labels += Json{{"tokens", tokens}, {"targets", {ones > 3 ? 1 : 0, tokens[0]}}}.dump() + "\n";
    }
    write_text(*this / "numbers.jsonl", numbers);
    write_text(*this / "labels.jsonl", labels);
    for (const std::string kind : {"numbers", "labels"})
      write_text(*this / (kind + ".toml"),
                 "[model]\nd_model = 16\nheads = 2\nlayers = 1\nd_mlp = 16\n"
                 "[data]\ntask = \"tokens\"\ntargets = \"" +
                     kind + "\"\npath = \"" + kind +
                     ".jsonl\"\n[train]\nsteps = 150\nbatch_size = 32\neval_every = 50\n"
                     "[optimizer]\nlr = 1e-2\n");
  }
  Json json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    return Json::parse(succeed(arguments, path()).out);
  }
  std::string refusal(std::vector<std::string> arguments) const {
    const Outcome outcome = run(arguments, path());
    CHECK(outcome.code == 2);
    return outcome.err;
  }
};

}  // namespace

TEST_CASE("a model learns numbers; evaluate compares with their mean, predict writes them") {
  const Files folder;
  const std::string log = succeed({"train", "numbers.toml", "--out", "run"}, folder.path()).err;
  CHECK_THAT(log, Contains("validation loss 0.") && !Contains("accuracy"));
  const Json scores = folder.json({"evaluate", "run"});
  CHECK(scores["targets"] == 2 * scores["examples"].get<int>());
  const double loss = scores["loss"], constant = scores["constant_loss"];
  CHECK(loss < 0.2 * constant);
  CHECK(std::abs(scores["rmse"].get<double>() - std::sqrt(loss)) <= 1e-12);
  CHECK(std::abs(scores["r2"].get<double>() - (1 - loss / constant)) <= 1e-12);
  CHECK_FALSE(scores.contains("perplexity"));
  CHECK_THAT(
      succeed({"evaluate", "run"}, folder.path()).out,
      Contains("rmse ") && Contains("R2 ") && Contains("constant loss ") && !Contains("accuracy"));

  std::istringstream lines(succeed({"predict", "run"}, folder.path()).out);
  double squares = 0, n = 0;
  std::array<double, 2> sums{}, of_squares{};
  for (std::string line; std::getline(lines, line);) {
    const Json each = Json::parse(line);
    CHECK_FALSE(each.contains("probabilities"));
    for (size_t k = 0; k < 2; ++k, ++n) {
      const double error = each["prediction"][k].get<double>() - each["target"][k].get<double>();
      squares += error * error;
      sums[k] += each["target"][k].get<double>();
      of_squares[k] += std::pow(each["target"][k].get<double>(), 2);
    }
  }
  double variance = 0;
  for (size_t k = 0; k < 2; ++k)
    variance += of_squares[k] / n - 2 * std::pow(sums[k] / n, 2);  // n / 2 examples; mean over k
  CHECK(std::abs(constant - variance) <= 1e-6);
  CHECK(n == scores["targets"].get<double>());
  CHECK(std::abs(squares / n - loss) <= 1e-5);
  const Json written = folder.json({"predict", "run", "-o", "p.npz"});
  CHECK(written["loss"] == loss);
  const train::TensorFile npz = train::read_tensor_file(folder / "p.npz");
  CHECK(npz.tensors.at("target").shape() == npz.tensors.at("prediction").shape());
  CHECK_THAT(succeed({"data", "show", "run"}, folder.path()).out,
             Contains("2 numbers per sequence"));
  CHECK_THAT(succeed({"data", "check", "tokens", "numbers.jsonl", "--set", "data.targets=numbers"},
                     folder.path())
                 .out,
             Contains("2 numbers per sequence"));
  // Threads and a resumed run give the same bits.
  CHECK(
      run({"train", "numbers.toml", "--quiet", "--out", "half", "--until", "70", "--threads", "1"},
          folder.path())
          .code == 75);
  succeed({"train", "--resume", "half", "--quiet", "--threads", "2"}, folder.path());
  CHECK(folder.json({"checkpoint", "diff", "run", "half"})["equal"] == true);
}

TEST_CASE("a model learns labels; their accuracy, F1 and predictions") {
  const Files folder;
  succeed(
      {"train", "labels.toml", "--quiet", "--out", "run", "--set", "train.best_metric=accuracy"},
      folder.path());
  const Json scores = folder.json({"evaluate", "run"});
  CHECK(scores["accuracy"].get<double>() > 0.9);
  CHECK(scores["f1"].get<double>() > 0.9);
  CHECK(scores["loss"].get<double>() < 0.5 * scores["constant_loss"].get<double>());
  std::istringstream lines(succeed({"predict", "run"}, folder.path()).out);
  double right = 0, n = 0, tp = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json each = Json::parse(line);
    for (size_t k = 0; k < 2; ++k, ++n) {
      CHECK((each["probabilities"][k].get<double>() > 0.5) == (each["prediction"][k] == 1));
      right += each["prediction"][k] == each["target"][k];
      tp += each["prediction"][k] == 1 && each["target"][k] == 1;
    }
  }
  CHECK(std::abs(right / n - scores["accuracy"].get<double>()) <= 1e-12);
  CHECK(std::abs(2 * tp / (2 * tp + n - right) - scores["f1"].get<double>()) <= 1e-12);
  const Json logits = folder.json({"predict", "run", "-o", "p.safetensors", "--logits"});
  CHECK(logits["accuracy"] == scores["accuracy"]);
  CHECK(train::read_tensor_file(folder / "p.safetensors").tensors.contains("logits"));
}

TEST_CASE("what needs classes is refused for numbers and labels") {
  const Files folder;
  const auto train = [&](const std::string& config, const std::string& set) {
    return folder.refusal({"train", config, "--quiet", "--out", "x", "--set", set});
  };
  CHECK_THAT(
      train("numbers.toml", "train.best_metric=accuracy"),
      Contains("train.best_metric") && Contains("the targets are numbers: expected \"loss\""));
  CHECK_THAT(train("numbers.toml", "train.target_accuracy=0.9"),
             Contains("numbers have no accuracy"));
  CHECK_THAT(train("labels.toml", "train.label_smoothing=0.1"), Contains("the targets are labels"));
  CHECK_THAT(train("numbers.toml", "model.targets=classes"),
             Contains("model.targets") && Contains("the data has numbers (data.targets)"));
  CHECK_THAT(train("numbers.toml", "model.classes=3"),
             Contains("the data has 2 numbers per sequence"));
  succeed({"train", "numbers.toml", "--quiet", "--out", "run", "--set", "train.steps=2"},
          folder.path());
  CHECK_THAT(folder.refusal({"evaluate", "run", "run"}),
             Contains("members of an ensemble predict classes"));
  CHECK_THAT(folder.refusal({"analyse", "heuristics", "--run", "run", "-o", "h.json"}),
             Contains("heuristics predict classes, but the targets of tokens are numbers"));
  CHECK_THAT(folder.refusal({"train", "numbers.toml", "--distill-from", "run", "--out", "y"}),
             Contains("train.distill_from"));

  write_text(folder / "sweep.toml",
             "[sweep]\nbase = \"numbers.toml\"\nset = [\"train.steps=4\"]\n"
             "[[axis]]\nattention.type = [\"softmax\", \"linear\"]\n");
  CHECK_THAT(folder.refusal({"ablate", "sweep.toml", "--out", "sweep"}),
             Contains("metric = \"accuracy\"") && Contains("expected metric = \"loss\""));
  write_text(folder / "axis.toml",
             "[sweep]\nbase = \"numbers.toml\"\nset = [\"data.targets=classes\"]\n"
             "[[axis]]\ndata.targets = [\"numbers\"]\n");
  CHECK_THAT(folder.refusal({"ablate", "axis.toml", "--out", "sweep"}),
             Contains("variant targets=numbers") && Contains("expected metric = \"loss\""));
  std::string text = data::read_text_file(folder / "sweep.toml");
  text.insert(text.find("base"), "metric = \"loss\"\n");
  write_text(folder / "sweep.toml", text);
  succeed({"ablate", "sweep.toml", "--out", "sweep", "--quiet"}, folder.path());
  succeed({"ablate", "sweep", "--verify"}, folder.path());
  succeed({"report", "sweep", "-o", "r.html"}, folder.path());
  CHECK_THAT(succeed({"report", "sweep", "--table", "text"}, folder.path()).out, Contains("loss"));
}
