// How a run's ranks start together: one leads, the others follow.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "longhand/train/ranks/grid.h"
#include "longhand/train/trainer.h"

namespace longhand::train {

/// What a rank needs to train with the others. Only the leading rank reads the run's directory.
struct Start {
  std::string config;      // the effective configuration, as TOML: not empty
  std::string folder;      // folder of the checkpoints
  std::string checkpoint;  // the initial state: to_bytes()
};

/// The leading rank, which decides what all ranks do:
///
///     if (world.rank() > 0) return train::follow(world);
///     train::Lead lead(world);
///     train::Run::create(config, "runs/one")->train({}, &lead);
///
/// If it ends without a start, because there is nothing to do or because of an exception, the
/// others end too.
class Lead {
 public:
  explicit Lead(Communicator& world) : world_(world) {}
  ~Lead();
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  Communicator& world() const { return world_; }
  /// Sends `start` to the others, waits until they are ready, and returns the grid for the options.
  /// `data` holds the hashes of the leading rank's data. Throws DataError, naming the rank, if one
  /// cannot start, and ConfigError if one has other data, another version of Longhand, or a
  /// processor with different results; all ranks throw the same exception.
  std::unique_ptr<RankGrid> start(Start start, const TrainerOptions& options,
                                  const std::map<std::string, std::string>& data);

 private:
  Communicator& world_;
  bool started_ = false;
};

/// Runs any other rank: waits for the leading one, constructs what its configuration describes,
/// trains with the others and returns why they ended; nothing if there was no start. The observer
/// is asked whether to stop and to save, but receives no records.
std::optional<Stopped> follow(Communicator& world, Observer observer = {});

}  // namespace longhand::train
