#include "longhand/train/cost/scaling.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/results/codec.h"
#include "longhand/train/trainer.h"

namespace longhand::train {

/// A step on one rank, with its phases and what it sends.
struct TimedStep {
  double begin = 0, seconds = 0;
  int64_t bytes = 0, tokens = 0;
  std::vector<Span> spans{};

  /// Returns the seconds in which something is sent.
  double communication() const {
    std::vector<Span> sent;
    std::ranges::copy_if(spans, std::back_inserter(sent), &Span::sends);
    std::ranges::sort(sent, {}, &Span::begin);
    double sum = 0, until = 0;
    for (const Span& span : sent) {
      sum += std::max(0.0, span.end - std::max(span.begin, until));
      until = std::max(until, span.end);
    }
    return sum;
  }
  double waited() const {
    double sum = 0;
    for (const Span& span : spans)
      if (!span.sends && span.what == "wait") sum += span.end - span.begin;
    return sum;
  }
};

// What ranks exchange about their steps, in whole nanoseconds.
void fields(Is<Span> auto& s, auto& f) {
  f("rank", s.rank);
  f("what", s.what);
  f("sends", s.sends);
  f("begin", s.begin, 1e9);
  f("end", s.end, 1e9);
}
void fields(Is<TimedStep> auto& s, auto& f) {
  f("seconds", s.seconds);
  f("spans", s.spans);
}

namespace {

/// A model that trains a few steps at a time.
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
      if (steps_.empty() || steps_.back().seconds > 0) steps_.push_back({.begin = time});
      TimedStep& step = steps_.back();
      const double at = time - step.begin;
      const int rank = grid_.world().rank();
      if (!step.spans.empty()) step.spans.back().end = at;
      if (name != std::string("end")) {
        step.spans.push_back({.rank = rank, .what = name, .begin = at});
        return;
      }
      step.seconds = at;
      for (const Message& m : grid_.data().take_messages())
        step.spans.push_back({rank, m.name, true, m.begin - step.begin, m.end - step.begin});
      const int64_t bytes = grid_.data().traffic().bytes;
      step.bytes = bytes - std::exchange(bytes_, bytes);
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
  constexpr int64_t never = int64_t{1} << 40;
  for (const auto& [key, value] : {std::pair("batch_size", P * one.loading.batch_size),
                                   {"shards", P * one.trainer.step.shards},
                                   {"steps", never},
                                   {"log_every", never},
                                   {"eval_every", int64_t{0}},
                                   {"checkpoint_every", int64_t{0}}})
    config.assign("train", key, value, "bench ranks");
  return std::make_unique<Runner>(std::move(config), ranks);
}

double largest(Communicator& world, double value) {
  return std::ranges::max(
      world.all_gather(Tensor::full({1}, value, DType::f64)).to_vector<double>());
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
  if (single) single->run(2);  // the first steps allocate memory
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
  std::vector<std::vector<TimedStep>> of_ranks;
  for (const std::string& text : world.gather(json_of(steps).dump()))
    of_ranks.push_back(read_json<Strict, std::vector<TimedStep>>(Json::parse(text)));
  // A step ends when its slowest rank does, which has waited least.
  std::vector<TimedStep> slowest;
  for (size_t i = 0; i < steps.size(); ++i)
    slowest.push_back(std::ranges::max_element(of_ranks, {}, [&](const auto& own) {
                        return own[i].seconds;
                      })->at(i));
  const auto median = [&](const auto& value) {
    std::vector<double> all;
    for (const TimedStep& step : slowest) all.push_back(std::invoke(value, step));
    return quantile(all, 0.5);
  };
  out.communication = median(&TimedStep::communication);
  out.waited = median(&TimedStep::waited);
  out.bytes = steps.back().bytes;
  const double middle = median(&TimedStep::seconds);
  const auto typical = std::ranges::min_element(
      slowest, {}, [&](const TimedStep& step) { return std::abs(step.seconds - middle); });
  for (const std::vector<TimedStep>& own : of_ranks) {
    const std::vector<Span>& spans = own[static_cast<size_t>(typical - slowest.begin())].spans;
    out.timeline.insert(out.timeline.end(), spans.begin(), spans.end());
  }
  return out;
}

SequenceTraffic measure_sequence_traffic(Communicator& ranks,
                                         const attention::TransformerConfig& config) {
  const Generator random(1);
  const int64_t N = config.max_length;
  attention::Transformer model(nn::root(), config);
  const auto part = attention::SequencePart::of(ranks, N);
  const nn::Pass pass = attention::over_part(nn::Pass::train(random), part);
  const data::Batch batch =
      part_of({random_ids({1, N}, config.vocabulary, random.fork("tokens")),
               random_ids({1, N}, config.classes, random.fork("targets")), Tensor()},
              *part);
  const attention::Variant& kernel = model.kernel(0);
  SequenceTraffic out;
  out.path = attention::name_of(attention::sequence_path(kernel, ranks.size()));
  for (int repetition = 0; repetition < 3; ++repetition) {
    model.zero_grad();
    ranks.barrier();
    const Traffic before = ranks.traffic();
    const double begin = clock_seconds();
    backward(cross_entropy(model.forward(batch.tokens, {}, pass), batch.targets, {}));
    const double seconds = clock_seconds() - begin;
    out.seconds = repetition == 0 ? seconds : std::min(out.seconds, seconds);
    out.bytes =
        static_cast<double>((ranks.traffic() - before).bytes) / static_cast<double>(config.layers);
  }
  return out;
}

}  // namespace longhand::train
