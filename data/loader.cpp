#include "longhand/data/loader.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "longhand/core/error.h"

namespace longhand::data {
namespace {

// Examples are sorted by length among this many batches: enough for the examples of a batch to have
// nearly equal lengths, few enough for an epoch to stay well mixed.
constexpr int64_t bucket_window = 50;

}  // namespace

void LoaderConfig::describe(OptionVisitor& v) {
  v.integer("batch_size", batch_size, {1, std::numeric_limits<int32_t>::max()},
            "examples per step");
  v.boolean("shuffle", shuffle, "whether to reshuffle the examples at every epoch");
  v.boolean("bucket", bucket,
            "whether to batch examples of similar length together, which reduces padding");
}

Loader::Loader(const Dataset& dataset, const LoaderConfig& config, const Generator& generator)
    : dataset_(dataset), config_(config), generator_(generator.fork("shuffle")) {
  const int64_t size = dataset.size();
  int64_t& batch = config_.batch_size;
  check<ConfigError>(batch >= 1, "loader: expected a batch size of at least 1, got ", batch);
  check<ConfigError>(size >= 1, "loader: the dataset has no examples");
  check<ConfigError>(size >= batch || !config.drop_last, "batch_size = ", batch,
                     ": expected at most the number of examples, ", size);
  batch = std::min(batch, size);
  examples_ = config.drop_last ? size / batch * batch : size;
  batches_ = (examples_ + batch - 1) / batch;
}

void Loader::prepare_epoch(int64_t epoch) {
  if (prepared_epoch_ == epoch) return;
  prepared_epoch_ = -1;
  order_ = indices_from(0, dataset_.size());
  RandomStream random(generator_.fork(static_cast<uint64_t>(epoch)));
  if (config_.shuffle) random.shuffle(order_);
  if (config_.bucket) {
    // Sorts only the first examples_: if the others were sorted too, the longest would be left out.
    std::vector<std::pair<int64_t, int64_t>> window;  // length, index
    const int64_t step = bucket_window * config_.batch_size;
    for (int64_t begin = 0; begin < examples_; begin += step) {
      const int64_t end = std::min(begin + step, examples_);
      window.clear();
      for (int64_t i = begin; i < end; ++i)
        window.emplace_back(dataset_.length(order_[i]), order_[i]);
      std::ranges::stable_sort(window,
                               [](const auto& a, const auto& b) { return a.first < b.first; });
      // The full batches of the window are shuffled; an incomplete one stays at the end.
      std::vector<int64_t> batch_order = indices_from(0, (end - begin) / config_.batch_size);
      if (config_.shuffle) random.shuffle(batch_order);
      int64_t to = begin;
      for (const int64_t batch : batch_order)
        for (int64_t i = 0; i < config_.batch_size; ++i)
          order_[to++] = window[batch * config_.batch_size + i].second;
      for (; to < end; ++to) order_[to] = window[to - begin].second;
    }
  }
  prepared_epoch_ = epoch;
}

Batch Loader::make(Cursor cursor) {
  prepare_epoch(cursor.epoch);
  const int64_t begin = cursor.batch * config_.batch_size;
  const int64_t end = std::min(begin + config_.batch_size, examples_);
  return dataset_.collate(std::span(order_).subspan(begin, end - begin));
}

Batch Loader::next() {
  if (std::exchange(prefetching_, false)) background_.wait();
  Batch batch = ahead_ ? *std::exchange(ahead_, std::nullopt) : make(cursor_);
  if (++cursor_.batch == batches_) cursor_ = {cursor_.epoch + 1, 0};
  // Passes in order run one at a time: after the end of one, there is nothing to prefetch.
  if (config_.prefetch && (config_.shuffle || cursor_.batch > 0)) {
    try {
      background_.run([this, cursor = cursor_] { ahead_ = make(cursor); });
      prefetching_ = true;
    } catch (const std::bad_alloc&) {  // the next call makes the batch
    }
  }
  return batch;
}

void Loader::seek(Cursor cursor) {
  check<DataError>(cursor.epoch >= 0 && cursor.batch >= 0 && cursor.batch < batches_,
                   "loader: batch ", cursor.batch, " of epoch ", cursor.epoch,
                   " does not exist; an epoch has ", batches_, " batches");
  if (cursor == cursor_) return;
  try {
    if (std::exchange(prefetching_, false)) background_.wait();
  } catch (...) {  // errors of a batch that was not requested
  }
  ahead_.reset();
  cursor_ = cursor;
}

}  // namespace longhand::data
