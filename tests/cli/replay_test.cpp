// longhand replay.
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

TEST_CASE("a run that diverges names its snapshot, which replay explains") {
  const TinyFolder folder;
  const Outcome trained = run({"train", "config.toml", "--out", "run", "--set", "optimizer.lr=1e30",
                               "train.checkpoint_every=1"},
                              folder.path());
  CHECK(trained.code == 4);
  CHECK_THAT(trained.err, Contains("step 2: the loss is") &&
                              Contains("longhand replay run/checkpoints/before-step-00000002.h5"));

  const Outcome outcome = run({"replay", "run"}, folder.path());
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 4);
  CHECK_THAT(outcome.out, Contains("before-step-00000002.h5: step 2, learning rate 1e+30") &&
                              Contains("first value that is not finite: forward pass, ") &&
                              Contains(" in blocks.0") && Contains("input") && Contains("result"));
  const Outcome json =
      run({"replay", "run/checkpoints/before-step-00000002.h5", "--json"}, folder.path());
  CHECK(json.code == 4);
  const Json step = Json::parse(json.out);
  CHECK(step["good"] == false);
  CHECK(step["first"]["pass"] == "forward");
  CHECK(step["first"]["inputs"].size() >= 1);
  CHECK_FALSE(step.contains("loss"));

  // The same step, skipped.
  const Outcome skipped =
      run({"train", "--resume", "run", "--set", "train.on_bad_step=skip", "train.max_skips=3"},
          folder.path());
  CHECK(skipped.code == 4);
  CHECK_THAT(skipped.err, Contains("step 2: ") && Contains("its update is skipped") &&
                              Contains("step 5: ") && Contains("train.max_skips"));
  CHECK_THAT(run({"replay", "run"}, folder.path()).out,  // of the last snapshot
             Contains("before-step-00000005.h5: step 5"));
}

TEST_CASE("replay of a good step lists its gradients") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--out", "run"}, folder.path());
  const Outcome outcome = succeed({"replay", "run/checkpoints/last.h5"}, folder.path());
  CHECK_THAT(outcome.out,
             Contains("step 21") && Contains("every value is finite") && Contains("head.weight"));
  // The largest ones, of 22 parameters; the first line has that of all.
  size_t norms = 0;
  for (size_t at = 0; (at = outcome.out.find(" gradient norm ", at)) != std::string::npos; ++at)
    ++norms;
  CHECK(norms == 1 + 8);
  const Outcome none = run({"replay", "run"}, folder.path());
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("run has no checkpoints/before-step-N.h5"));
  CHECK(run({"replay", "missing.h5"}, folder.path()).code == 2);
}
