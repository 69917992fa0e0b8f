// Exercise 3: training on several processes, by MPI. Built with longhand::mpi and started as
// `mpirun -np 2 ./solution_3`, or 4, or without mpirun; the hash is the same.
#include <iostream>

#include "longhand/core/communicator.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/ranks/mpi.h"
#include "longhand/train/trainer.h"

using namespace longhand;

int main() {
  train::Mpi mpi;
  Communicator& ranks = mpi.world();

  // A batch has 8 shards, which the ranks divide. Every rank makes the same data and model.
  const train::Config config = train::Config::parse(R"(
    [data]
    task = "mqar"
    length = 32
    pairs = 4
    vocabulary = 256
    train_size = 640
    validation_size = 64
    test_size = 64
    [model]
    d_model = 32
    heads = 4
    [attention]
    type = "performer"
    [train]
    steps = 20
    batch_size = 32
    shards = 8
    shard_optimizer = true  # each rank keeps only its part of Adam's averages
    compare_every = 10      # stop if ranks ever differ
  )",
                                                    "exercise 3");
  train::Experiment experiment(config);
  data::Loader loader = experiment.loader();
  const train::RankGrid grid(ranks, /*sequence_ranks=*/1, experiment.options.step.shards);

  double loss = 0;
  train::Observer observer;
  observer.on_progress = [&](const train::Progress& progress) { loss = progress.loss; };
  train::Trainer trainer(experiment.model, train::logits_of(experiment.model),
                         *experiment.optimizer, experiment.schedule, loader, experiment.task,
                         experiment.options, observer);
  trainer.join(grid);
  trainer.run();

  const std::string hash = train::hash_of(experiment.optimizer->parameters());
  const bool equal = !first_difference(ranks, hash);
  if (grid.leads()) {
    std::cout << "ranks: " << ranks.size() << '\n';
    std::cout << "loss of the last step: " << loss << ", hash of the parameters: " << hash << '\n';
  }
  return equal && loss < 6 ? 0 : 1;
}
