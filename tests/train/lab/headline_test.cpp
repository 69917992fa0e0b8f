#include "longhand/train/lab/headline.h"

#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;

namespace {

Contender contender(const std::string& name, const std::vector<double>& scores) {
  Contender out{name, {}};
  for (size_t seed = 0; seed < scores.size(); ++seed)
    out.scores[static_cast<int64_t>(seed)] = scores[seed];
  return out;
}

}  // namespace

TEST_CASE("headline: no winner among variants that the seeds do not tell apart") {
  const Verdict close =
      verdict({},
              {contender("a", {0.90, 0.93, 0.91}), contender("b", {0.91, 0.90, 0.92}),
               contender("c", {0.80, 0.81, 0.79})},
              "");
  CHECK(close.best == std::vector<std::string>{"a", "b"});
  CHECK_THAT(close.sentence,
             Contains("No winner among 3 variants: a, with a validation accuracy of 0.913") &&
                 Contains("is not told apart from b. The 95 % interval of the difference") &&
                 Contains("includes 0"));
  // As good with every seed.
  const Verdict tie =
      verdict({}, {contender("a", {1, 1, 1}), contender("b", {1, 1, 1})}, " at copy");
  CHECK(tie.sentence ==
        "a and b tie at copy for the best of 2 variants, with a validation accuracy of 1 (3 seeds, "
        "all equal).");
  CHECK(tie.best.size() == 2);
  // The table gives no interval for seeds in two groups, either.
  const Verdict groups =
      verdict({}, {contender("a", {0.1, 0.4}), contender("b", {0.24, 0.24})}, "");
  CHECK_THAT(groups.sentence, !Contains("interval of the difference"));
}

TEST_CASE("headline: of rates, validation chooses, not the test split") {
  std::vector<Contender> tried = {
      contender("a lr=0.001", {0.70, 0.71, 0.70}), contender("a lr=0.01", {0.5, 0.51, 0.5}),
      contender("b lr=0.001", {0.62, 0.61, 0.60}), contender("b lr=0.01", {0.4, 0.41, 0.4})};
  const std::vector<double> validation = {0.5, 0.6, 0.7, std::nan("")};
  for (size_t i = 0; i < tried.size(); ++i) {
    tried[i].row = i;
    tried[i].family = tried[i].name.substr(0, 1);
    tried[i].validation = validation[i];
  }
  const Headline said = headline({{"", {}, tried}});
  CHECK(said.left_out == std::set<size_t>{0, 3});
  REQUIRE(said.sentences.size() == 2);
  CHECK_THAT(said.sentences[0], Contains("b lr=0.001 is the best of 2 variants"));
  CHECK(said.sentences[1] ==
        "Each variant has the learning rate that is best on the validation split.");
  CHECK(headline({{"", {}, {tried[0], tried[1]}}}).left_out.empty());  // of one variant
  for (Contender& each : tried) each.validation = std::nan("");
  CHECK(headline({{"", {}, tried}}).left_out.empty());
  const RowNames names =
      row_names({{{"attention.type", "a"}, {"optimizer.lr", "1"}, {"model.layers", "1"}},
                 {{"attention.type", "a"}, {"optimizer.lr", "2"}, {"model.layers", "2"}}});
  CHECK(names.family == std::vector<std::string>{"a layers=1", "a layers=2"});
}

TEST_CASE("headline: the interval of losses does not reach below 0") {
  const Estimate mean = mean_of({{0, 0.6}, {1, 0.9}}, false);
  CHECK(mean.mean == 0.75);
  CHECK(mean.low == 0);
  CHECK(mean.high > 2);
  CHECK(mean_of({{0, -0.6}, {1, 0.9}}, false).low < 0);
  CHECK(std::isnan(mean_of({{0, 0.6}}, false).low));
}

TEST_CASE("headline: of tasks without a score, one sentence") {
  const std::vector<Contender> none = {contender("a", {})};
  CHECK(headline({{"copy", {}, none}, {"parity", {}, none}}).sentences ==
        std::vector<std::string>{"2 tasks, none evaluated yet."});
  // Nor is the only one the best.
  CHECK(headline({{"copy", {}, {contender("a", {1, 1})}}, {"parity", {}, none}}).sentences[0] ==
        "2 tasks: only a has been evaluated.");
}

TEST_CASE("headline: an interval that excludes 0 makes no winner before it is corrected") {
  // Alone, p is 0.04; among ten, it is not told apart.
  std::vector<Contender> ten = {contender("a", {0.80, 0.84, 0.82})};
  for (int i = 0; i < 9; ++i) ten.push_back(contender("b" + std::to_string(i), {0.78, 0.81, 0.80}));
  const Verdict one = verdict({}, {ten[0], ten[1]}, ""), all = verdict({}, ten, "");
  CHECK_THAT(one.sentence,
             Contains("a is the best of 2 variants") && Contains("The interval excludes 0."));
  CHECK_THAT(all.sentence,
             Contains("No winner among 10 variants") && Contains("and 5 more. ") &&
                 Contains("excludes 0, but not once it is corrected for 9 comparisons"));
}

TEST_CASE("headline: one seed excludes no chance") {
  const Verdict two =
      verdict({"accuracy", true}, {contender("a", {0.9996}), contender("b", {0.9})}, "");
  CHECK_THAT(two.sentence,
             Contains("a has the highest test accuracy of 2 variants: 0.9996 (1 seed)") &&
                 Contains("chance is not excluded"));
  CHECK(two.best.size() == 2);
  CHECK_THAT(verdict({}, {contender("a", {0.5})}, "").sentence,
             Contains("With one seed, chance is not excluded"));
  CHECK_THAT(verdict({}, {contender("a", {1}), contender("b", {1})}, "").sentence,
             Contains("a and b tie") && Contains("chance is not excluded"));
  CHECK(verdict({}, {contender("a", {})}, " at copy").sentence ==
        "No run at copy has been evaluated yet.");
}

TEST_CASE("headline: where some seeds solve a task, their numbers are compared") {
  const std::vector<double> solved(5, 1), failed(5, 0.1);
  const Verdict five = verdict({}, {contender("a", solved), contender("b", failed)}, "");
  CHECK(five.best == std::vector<std::string>{"a"});  // 5 of 5 against 0 of 5: p = 2 / 252
  CHECK_THAT(five.sentence, Contains("a is the best of 2 variants"));
  const Verdict half =
      verdict({}, {contender("a", std::vector<double>(5, 0.5)), contender("b", failed)}, "");
  CHECK_THAT(half.sentence, Contains("a reaches 0.5 with 5 of 5 seeds, b with 0 of 5"));
  const Verdict three =
      verdict({}, {contender("a", {1, 0.99, 1}), contender("b", {0.1, 0.99, 0.1})}, "");
  CHECK(three.best.size() == 2);
  CHECK_THAT(
      three.sentence,
      Contains("a solves it with 3 of 3 seeds, b with 1 of 3 (Fisher's exact test: p = 0.4"));
  // Where they agree, an interval excludes 0, as those of the table do not overlap.
  const Verdict apart =
      verdict({},
              {contender("a", {0.9, 0.91, 0.92}), contender("b", {0.8, 0.81, 0.83}),
               contender("c", {0.5, 0.52, 0.5})},
              "");
  CHECK(apart.best == std::vector<std::string>{"a"});
}

TEST_CASE("headline: less of a loss is better, and a number is not rounded to 1") {
  const Verdict loss =
      verdict({"bits per byte", false},
              {contender("a", {2.1, 2.2, 2.3}), contender("b", {1.1, 1.21, 1.29})}, "");
  CHECK_THAT(loss.sentence,
             Contains("b is the best of 2 variants, with validation bits per byte of 1.2") &&
                 Contains("1 below a"));
  CHECK(rounded(0.99961) == "0.9996");
  CHECK(rounded(1) == "1");
  CHECK(rounded(1e-9) == "1e-09");
  CHECK(rounded(0.1234) == "0.123");
}

TEST_CASE("headline: over several tasks") {
  const Verdict a{"", {"a"}}, both{"", {"a", "b"}}, b{"", {"b"}};
  CHECK(over_tasks({a, both, both}) ==
        "3 tasks: a is the best, or not told apart from the best, at all of them.");
  CHECK(over_tasks({a, both, b}) ==
        "3 tasks: a and b are the best, or not told apart from the best, at 2 of them.");
  CHECK_THAT(over_tasks({{"", {"a", "b", "c", "d"}}}),
             Contains("with these seeds no variant stands out; 4 are the best"));
}

TEST_CASE("headline: names have what tells rows apart") {
  const RowNames names = row_names({
      {{"data.task", "copy"},
       {"data.count", "8"},
       {"attention.type", "softmax"},
       {"train.steps", "100"}},
      {{"data.task", "copy"},
       {"data.count", "8"},
       {"attention.type", "window"},
       {"attention.window", "8"},
       {"train.steps", "100"}},
      {{"data.task", "parity"},
       {"attention.type", "softmax"},
       {"train.steps", "200"},
       {"model.d_model", "32"}},
      {{"data.task", "parity"},
       {"attention.type", "softmax"},
       {"train.steps", "200"},
       {"model.d_model", "64"}},
  });
  CHECK(names.task == std::vector<std::string>{"copy", "copy", "parity", "parity"});
  CHECK(names.variant ==
        std::vector<std::string>{"softmax", "window", "softmax d_model=32", "softmax d_model=64"});
  // An option is in the names of tasks that have several values of it.
  const auto data = [](const std::string& task, const std::string& size) {
    return std::map<std::string, std::string>{{"data.task", task}, {"data.size", size}};
  };
  CHECK(row_names({data("copy", "8"), data("parity", "8"), data("parity", "9")}).task ==
        std::vector<std::string>{"copy", "parity size=8", "parity size=9"});
  // Rates of one variant all have their labels, without the task.
  const auto row = [](const std::string& task, const std::string& rate) {
    return std::map<std::string, std::string>{
        {"data.task", task}, {"attention.type", "softmax"}, {"optimizer.beta1", rate}};
  };
  const RowNames rates =
      row_names({row("copy", "1"), row("copy", "1"), row("parity", "1")},
                {"copy softmax lr=0.1", "copy softmax lr=0.2", "parity softmax lr=0.1"});
  CHECK(rates.variant == std::vector<std::string>{"softmax lr=0.1", "softmax lr=0.2", "softmax"});
}
