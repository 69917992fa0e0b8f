// Chapter 10: a training loop by hand, its learning rate, and runs that stop and go on with the same bits.
#include <algorithm>
#include <cstdio>

#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/config/experiment.h"

using namespace longhand;
using train::Schedule;

// Recall of values by their keys. By the convolution, a value sees the token before it: its key.
const char* const description = R"(
data = { task = "mqar", length = 16, pairs = 2, vocabulary = 32 }
model = { d_model = 32, heads = 1, layers = 1, d_mlp = 0, short_conv = 3, dtype = "f64" }
train = { seed = 1 })";

// Everything that a step reads or changes.
struct Run {
  Schedule schedule;
  double clip_norm = 0;
  train::Experiment parts{train::Config::parse(description, "chapter 10")};
  data::Loader loader{*parts.task.train, {.batch_size = 32, .prefetch = false}, Generator(1)};
  train::Optimizer& optimizer = *parts.optimizer;
  int64_t step = 0;

  void train_to(int64_t end) {
    for (; step < end; ++step) {
      const data::Batch batch = loader.next();
      const nn::Pass pass = nn::Pass::train(Generator(1).fork(static_cast<uint64_t>(step)));
      const Variable logits = parts.model.forward(batch.tokens, batch.lengths, pass);
      backward(cross_entropy(logits, batch.targets));
      const train::Gradients gradients = train::take_gradients(parts.model.named_parameters());
      const double norm = train::global_norm(gradients);
      optimizer.step(schedule.at(step), gradients, train::clip_scale(norm, clip_norm));
    }
  }
  double loss() {  // of 128 examples that it is not trained on
    const auto logits = train::logits_of(parts.model);
    return train::evaluate(logits, *parts.task.test, {.batch_size = 128, .limit = 128})->loss();
  }
  std::vector<std::byte> save() const {
    train::Checkpoint c;
    c.model = parts.model.state_dict(), c.optimizer = optimizer.state_dict();
    c.training.cursor = loader.cursor(), c.training.step = step;
    return train::to_bytes(c);
  }
  void resume(const std::vector<std::byte>& bytes, const std::string& without) {
    const train::Checkpoint c = train::from_bytes(bytes, "checkpoint");
    parts.model.load_state_dict(c.model);
    if (without != "moments") optimizer.load_state_dict(c.optimizer);
    if (without != "cursor") loader.seek(c.training.cursor);
    if (without != "step") step = c.training.step;
  }
};

int main() {
  std::puts("step  lr 0.0003   lr 0.003    lr 0.03");
  Run runs[] = {{{.lr = 3e-4}}, {{.lr = 3e-3}}, {{.lr = 3e-2}}};
  for (int64_t step = 0; step <= 120; step += 10) {
    std::printf("%-4d", int(step));
    for (Run& run : runs) run.train_to(step), std::printf("  %9.2f", run.loss());
    std::puts("");
  }

  std::puts("\nlr 0.03 with       loss");
  const Schedule constant{.lr = 0.03}, warmup{.lr = 0.03, .warmup_steps = 20};
  const Schedule cosine{Schedule::Kind::cosine, 0.03, 20, 120};
  const auto with = [](const char* what, const Schedule& schedule, double clip) {
    Run run{schedule, clip};
    run.train_to(120);
    std::printf("%-17s  %.2f\n", what, run.loss());
  };
  with("clipping", constant, 1);
  with("warmup", warmup, 0);
  with("warmup and cosine", cosine, 0);
  with("all of them", cosine, 1);

  std::puts("\n40 steps                    loss  same bits");
  Run whole{cosine};
  whole.train_to(40);
  const auto compare = [&](const std::string& name, Run& run) {
    const auto a = run.parts.model.state_dict(), b = whole.parts.model.state_dict();
    const auto equal = [](auto& x, auto& y) { return identical(x.second, y.second); };
    const char* same = std::ranges::equal(a, b, equal) ? "yes" : "no";
    std::printf("%-26s  %.2f  %s\n", name.c_str(), run.loss(), same);
  };
  set_threads(threads() == 1 ? 2 : 1);
  Run again{cosine};
  again.train_to(40);
  compare("another number of threads", again);
  for (const std::string without : {"", "moments", "cursor", "step"}) {
    Run first{cosine}, second{cosine};
    first.train_to(20);
    second.resume(first.save(), without);
    second.train_to(second.step + 20);
    compare("resumed" + (without == "" ? "" : " without " + without), second);
  }
}
