#include "longhand/train/cost/scaling.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/trainer.h"

namespace longhand::train {
namespace {

/// The seconds that at least one of the spans covers.
double covered(std::vector<Message> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  double sum = 0, until = 0;
  for (const Message& span : spans) {
    sum += std::max(0.0, span.end - std::max(span.begin, until));
    until = std::max(until, span.end);
  }
  return sum;
}

/// A step with its phases and what it has sent.
struct TimedStep {
  double begin = 0, end = 0;
  std::vector<Span> phases{};
  std::vector<Message> messages{};
  int64_t bytes = 0, tokens = 0;
  double seconds() const { return end - begin; }

  double communication() const { return covered(messages); }
  double waited() const {
    double sum = 0;
    for (const Span& phase : phases)
      if (phase.what == "wait") sum += phase.end - phase.begin;
    return sum;
  }
};

/// A model that trains some steps at a time.
class Runner {
 public:
  Runner(Config config, Communicator& ranks)
      : experiment_(std::move(config)),
        loader_(experiment_.loader()),
        grid_(ranks, 1, experiment_.options.step.shards),
        trainer_(experiment_.model, logits_of(experiment_.model), *experiment_.optimizer,
                 experiment_.schedule, loader_, experiment_.task, experiment_.options, observer()) {
    trainer_.join(grid_);
  }

  std::vector<TimedStep> run(int64_t steps) {
    steps_.clear();
    grid_.data().take_messages();
    bytes_ = grid_.data().traffic().bytes;
    left_ = steps;
    trainer_.run();
    return std::move(steps_);
  }

 private:
  Observer observer() {
    Observer out;
    out.on_phase = [this](const char* name) {
      const double time = clock_seconds();
      if (steps_.empty() || steps_.back().end > 0) steps_.push_back({.begin = time});
      TimedStep& step = steps_.back();
      if (!step.phases.empty()) step.phases.back().end = time;
      if (name == std::string("end")) {
        step.end = time;
        step.messages = grid_.data().take_messages();
        const int64_t bytes = grid_.data().traffic().bytes;
        step.bytes = bytes - std::exchange(bytes_, bytes);
      } else {
        step.phases.push_back({.rank = grid_.world().rank(), .what = name, .begin = time});
      }
    };
    out.on_progress = [this](const Progress& progress) {
      steps_.back().tokens = progress.tokens;
      --left_;
    };
    out.should_stop = [this] { return left_ == 0; };
    return out;
  }

  Experiment experiment_;
  data::Loader loader_;
  RankGrid grid_;
  int64_t left_ = 0, bytes_ = 0;
  std::vector<TimedStep> steps_;
  Trainer trainer_;
};

std::unique_ptr<Runner> make_runner(Config config, Communicator& ranks) {
  const TrainSection one = read_section<TrainSection>(config.train(), {}, nullptr);
  const int64_t P = ranks.size();
  const auto set = [&](const char* key, OptionValue value) {
    config.assign("train", key, std::move(value), "bench ranks");
  };
  set("batch_size", P * one.loading.batch_size);
  set("shards", P * one.trainer.step.shards);
  set("steps", int64_t{1} << 40);
  set("eval_every", int64_t{0});
  set("log_every", int64_t{1} << 40);
  set("checkpoint_every", int64_t{0});
  return std::make_unique<Runner>(std::move(config), ranks);
}

/// The timeline of a step of this rank, as text for the others.
std::string to_text(const TimedStep& step) {
  std::ostringstream out;
  out.precision(9);
  const auto line = [&](const std::string& what, bool sends, double begin, double end) {
    out << what << ' ' << sends << ' ' << begin - step.begin << ' ' << end - step.begin << '\n';
  };
  for (const Span& phase : step.phases) line(phase.what, false, phase.begin, phase.end);
  for (const Message& message : step.messages) line(message.name, true, message.begin, message.end);
  return out.str();
}

std::vector<Span> timeline_of(const std::vector<std::string>& texts) {
  std::vector<Span> out;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream in(texts[rank]);
    Span span;
    span.rank = static_cast<int>(rank);
    while (in >> span.what >> span.sends >> span.begin >> span.end) out.push_back(span);
  }
  return out;
}

double largest(Communicator& world, double value) {
  const Tensor all = world.all_gather(Tensor::full({1}, value, DType::f64));
  return *std::max_element(all.data<double>(), all.data<double>() + world.size());
}

}  // namespace

double Scaling::speed_up(int ranks) const {
  return ranks * quantile(one, 0.5) / quantile(all, 0.5);
}

Scaling measure_scaling(Communicator& world, const Config& config, const ScalingOptions& options) {
  const auto single = world.rank() == 0 ? make_runner(config, alone()) : nullptr;
  const auto joint = make_runner(config, world);
  Scaling out;
  std::vector<TimedStep> steps;
  if (single) single->run(2);  // the first steps take memory
  joint->run(2);
  const auto seconds = [&](Runner& runner) {
    const double begin = clock_seconds();
    for (TimedStep& step : runner.run(options.steps)) steps.push_back(std::move(step));
    return (clock_seconds() - begin) / static_cast<double>(options.steps);
  };
  for (int64_t turn = 0; turn < options.turns; ++turn) {
    world.barrier();
    if (single) {
      out.one.push_back(seconds(*single));
      out.tokens = steps.back().tokens;
      steps.resize(steps.size() - static_cast<size_t>(options.steps));
    }
    world.barrier();
    out.all.push_back(largest(world, seconds(*joint)));
    if (options.on_turn) options.on_turn(turn + 1);
  }
  // A step ends when its slowest rank does, which has waited least.
  const int64_t n = std::ssize(steps);
  Tensor own = Tensor::empty({n, 3}, DType::f64);
  for (int64_t i = 0; i < n; ++i) {
    own.data<double>()[3 * i] = steps[i].seconds();
    own.data<double>()[3 * i + 1] = steps[i].communication();
    own.data<double>()[3 * i + 2] = steps[i].waited();
  }
  const Tensor all = world.all_gather(own);
  std::vector<double> length, communication, waited;
  for (int64_t i = 0; i < n; ++i) {
    const auto of_all = [&](int64_t j) {
      std::vector<double> values;
      for (int64_t rank = 0; rank < world.size(); ++rank)
        values.push_back(all.data<double>()[(rank * n + i) * 3 + j]);
      return values;
    };
    const std::vector<double> lengths = of_all(0);
    const auto slowest =
        static_cast<size_t>(std::max_element(lengths.begin(), lengths.end()) - lengths.begin());
    length.push_back(lengths[slowest]);
    communication.push_back(of_all(1)[slowest]);
    waited.push_back(of_all(2)[slowest]);
  }
  out.communication = quantile(communication, 0.5);
  out.waited = quantile(waited, 0.5);
  out.bytes = steps.back().bytes;
  const double middle = quantile(length, 0.5);
  const auto typical = std::min_element(length.begin(), length.end(), [&](double a, double b) {
    return std::abs(a - middle) < std::abs(b - middle);
  });
  out.timeline =
      timeline_of(world.gather(to_text(steps[static_cast<size_t>(typical - length.begin())])));
  return out;
}

}  // namespace longhand::train
