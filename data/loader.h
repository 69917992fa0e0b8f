// Loader: the batches of a dataset, epoch after epoch, determined by a seed and a position.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "longhand/core/schema.h"
#include "longhand/data/dataset.h"

namespace longhand::data {

struct LoaderConfig {
  int64_t batch_size = 32;
  bool shuffle = true;    // a new order each epoch
  bool drop_last = true;  // omit the last batch of an epoch if it is not full
  bool bucket = false;    // group examples of similar length, to reduce padding
  bool prefetch = true;   // make the next batch while the current one is used

  /// The options batch_size, shuffle and bucket.
  void describe(OptionVisitor& v);
};

/// The batches depend on dataset, batch_size, shuffle, drop_last, bucket, generator and cursor
/// alone: not on the number of threads, on prefetching, or on the batches read before.
class Loader {
 public:
  /// The batch that next() returns: number `batch` of epoch number `epoch`.
  struct Cursor {
    int64_t epoch = 0;
    int64_t batch = 0;
    friend bool operator==(const Cursor&, const Cursor&) = default;
  };

  /// The dataset must outlive the loader. The order of epoch e comes from
  /// generator.fork("shuffle").fork(e). Throws ConfigError if batch_size < 1 or the dataset has no
  /// full batch (with drop_last) or no example (without).
  Loader(const Dataset& dataset, const LoaderConfig& config, const Generator& generator);

  /// A configuration for evaluation: all examples once, in order; the last batch may be smaller.
  /// Call next() batches_per_epoch() times.
  static LoaderConfig in_order(int64_t batch_size) {
    return {.batch_size = batch_size, .shuffle = false, .drop_last = false};
  }

  int64_t batches_per_epoch() const { return batches_; }

  /// Returns the batch at the cursor, which advances, from the end of an epoch to the next one.
  /// Rethrows what Dataset::collate() threw; the cursor then does not advance.
  Batch next();

  Cursor cursor() const { return cursor_; }
  /// Moves to a cursor; the batches from there on are the same as without seeking. Throws DataError
  /// if this loader has no such batch.
  void seek(Cursor cursor);

 private:
  void prepare_epoch(int64_t epoch);
  Batch make(Cursor cursor);

  const Dataset& dataset_;
  LoaderConfig config_;
  Generator generator_;
  int64_t examples_;  // in an epoch
  int64_t batches_;
  Cursor cursor_;

  // Used by the background job while it runs.
  int64_t prepared_epoch_ = -1;
  std::vector<int64_t> order_;  // of prepared_epoch_
  std::optional<Batch> ahead_;  // the batch at cursor_

  bool prefetching_ = false;
  Background background_;  // last, so that it is destroyed first
};

}  // namespace longhand::data
