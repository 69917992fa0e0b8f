#include "longhand/train/ranks/start.h"

#include <utility>
#include <vector>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/version.h"
#include "longhand/data/bytes.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/transfer/distill.h"

namespace longhand::train {
namespace {

/// Throws on all ranks if `error` is not empty on one of them.
void agree(Communicator& world, const std::string& error) {
  const std::vector<std::string> errors = world.gather(error), hosts = world.gather(host_name());
  for (size_t rank = 0; rank < errors.size(); ++rank)
    check<DataError>(errors[rank].empty(), rank_name(static_cast<int>(rank), hosts[rank]), ": ",
                     errors[rank]);
}

/// Throws ConfigError on all ranks unless this text is equal on all of them.
void check_equal(Communicator& world, const std::string& what, const std::string& text,
                 const std::string& remedy) {
  const auto difference = first_difference(world, text);
  const std::vector<std::string> hosts = world.gather(host_name());
  if (!difference) return;
  const auto [rank, expected, found] = *difference;
  throw ConfigError(concat_message(rank_name(rank, hosts[static_cast<size_t>(rank)]), " has ", what,
                                   " ", found, ", but ", rank_name(0, hosts[0]), " has ", expected,
                                   "; ", remedy));
}

std::unique_ptr<RankGrid> make_grid(Communicator& world, const TrainerOptions& options,
                                    const std::map<std::string, std::string>& data) {
  check_equal(world, "version", version(), "install the same version on all machines");
  check_equal(
      world, "the backend", machine_description(),
      "ranks must compute the same bits: use processors of one kind, or set LONGHAND_ISA=avx2 and "
      "OPENBLAS_CORETYPE=Haswell for all ranks");
  std::string hashes;
  for (const auto& [split, hash] : data)
    hashes += (hashes.empty() ? "" : ", ") + split + " " + hash;
  check_equal(world, "data with the hashes", hashes, "give all machines the same files");
  return std::make_unique<RankGrid>(world, options.sequence_ranks, options.step.shards);
}

/// What a following rank constructs.
struct Follower {
  explicit Follower(const Start& start, Observer observer)
      : experiment(Config::parse(start.config, "the configuration of the leading rank")),
        loader(experiment.loader()),
        trainer(experiment.model, logits_of(experiment.model), *experiment.optimizer,
                experiment.schedule, loader, experiment.task, experiment.options,
                std::move(observer), start.folder, start.config,
                distilled_loss(experiment, load_teacher(experiment.plan.train.distill))) {
    trainer.resume(from_bytes(data::bytes_of(start.checkpoint), "the state of the leading rank"));
  }

  Experiment experiment;
  data::Loader loader;
  Trainer trainer;
};

}  // namespace

Lead::~Lead() {
  if (started_) return;
  try {
    std::string nothing;
    world_.broadcast(nothing);
  } catch (...) {  // the others end when this process does
  }
}

std::unique_ptr<RankGrid> Lead::start(Start start, const TrainerOptions& options,
                                      const std::map<std::string, std::string>& data) {
  started_ = true;
  for (std::string* text : {&start.config, &start.folder, &start.checkpoint})
    world_.broadcast(*text);
  start = {};  // frees as much memory as the checkpoint takes
  agree(world_, "");
  return make_grid(world_, options, data);
}

std::optional<Stopped> follow(Communicator& world, Observer observer) {
  Start start;
  world.broadcast(start.config);
  if (start.config.empty()) return std::nullopt;  // nothing to do
  for (std::string* text : {&start.folder, &start.checkpoint}) world.broadcast(*text);
  std::unique_ptr<Follower> follower;
  std::string error;
  try {
    follower = std::make_unique<Follower>(
        start, Observer{.should_stop = observer.should_stop, .should_save = observer.should_save});
  } catch (const std::exception& e) {
    error = e.what();
  }
  start = {};
  agree(world, error);
  Trainer& trainer = follower->trainer;
  const auto grid = make_grid(world, follower->experiment.options, trainer.data_hashes());
  trainer.join(*grid);
  return trainer.run();
}

}  // namespace longhand::train
