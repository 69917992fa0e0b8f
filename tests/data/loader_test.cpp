#include "longhand/data/loader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <set>

#include "longhand/core/error.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using Catch::Contains;
using longhand::test::message_of;

namespace {

int64_t one(int64_t) { return 1; }

// Example i has length_of(i) tokens and the target i.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t (*length_of)(int64_t) = one)
      : size_(size), length_of_(length_of) {}

  int64_t size() const override { return size_; }
  int64_t length(int64_t index) const override { return length_of_(index); }
  Batch collate(std::span<const int64_t> indices) const override {
    ++collated;
    int64_t longest = 0;
    for (const int64_t i : indices) longest = std::max(longest, length(i));
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{
        Tensor::zeros({count, longest}, DType::i32), Tensor::empty({count}, DType::i32), {}};
    for (int64_t b = 0; b < count; ++b) {
      check<DataError>(indices[b] != broken, "example ", broken, " is broken");
      batch.targets.data<int32_t>()[b] = static_cast<int32_t>(indices[b]);
    }
    return batch;
  }

  int64_t broken = -1;
  mutable std::atomic<int64_t> collated = 0;

 private:
  int64_t size_;
  int64_t (*length_of_)(int64_t);
};

std::vector<int32_t> examples(const Batch& batch) { return batch.targets.to_vector<int32_t>(); }

std::vector<std::vector<int32_t>> take(Loader& loader, int64_t batches) {
  std::vector<std::vector<int32_t>> taken;
  for (int64_t i = 0; i < batches; ++i) taken.push_back(examples(loader.next()));
  return taken;
}

std::vector<int32_t> joined(const std::vector<std::vector<int32_t>>& batches) {
  std::vector<int32_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

int64_t uneven(int64_t i) { return 1 + i * 7919 % 1000; }

struct Threads {
  explicit Threads(int n) { set_threads(n); }
  ~Threads() { set_threads(before); }
  int before = threads();
};

}  // namespace

TEST_CASE("an epoch contains every example once, and the next one has another order") {
  const Numbers numbers(103, uneven);
  const bool bucket = GENERATE(false, true);
  Loader loader(numbers, {.batch_size = 10, .drop_last = false, .bucket = bucket}, Generator(1));
  REQUIRE(loader.batches_per_epoch() == 11);
  const auto first = joined(take(loader, 11)), second = joined(take(loader, 11));
  CHECK(first != second);
  for (auto epoch : {first, second}) {
    CHECK(!std::is_sorted(epoch.begin(), epoch.end()));
    std::sort(epoch.begin(), epoch.end());
    for (int i = 0; i < 103; ++i) REQUIRE(epoch[i] == i);
  }
}

TEST_CASE("the last batch has the examples that remain") {
  for (const auto& [examples, batch, expected] :
       {std::array<int64_t, 3>{7, 3, 3}, {6, 3, 2}, {8, 3, 3}, {5, 1, 5}, {1, 4, 1}}) {
    CAPTURE(examples, batch);
    const Numbers numbers(examples, uneven);
    Loader loader(numbers, {.batch_size = batch, .drop_last = false}, Generator(1));
    REQUIRE(loader.batches_per_epoch() == expected);
    const auto batches = take(loader, static_cast<int>(expected));
    CHECK(joined(batches).size() == static_cast<size_t>(examples));
    CHECK(std::ssize(batches.back()) == examples - (expected - 1) * std::min(batch, examples));
  }
}

TEST_CASE("batches are full, and the examples left out differ between epochs") {
  const Numbers numbers(23, uneven);
  const bool bucket = GENERATE(false, true);
  Loader loader(numbers, {.batch_size = 5, .bucket = bucket}, Generator(1));
  REQUIRE(loader.batches_per_epoch() == 4);
  std::set<std::vector<int32_t>> left_out;
  for (int epoch = 0; epoch < 5; ++epoch) {
    const auto batches = take(loader, 4);
    for (const auto& batch : batches) CHECK(batch.size() == 5);
    auto seen = joined(batches);
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
    std::vector<int32_t> rest;
    for (int i = 0; i < 23; ++i)
      if (!std::binary_search(seen.begin(), seen.end(), i)) rest.push_back(i);
    left_out.insert(rest);
  }
  CHECK(left_out.size() > 1);
}

TEST_CASE("the order depends on the generator alone") {
  const Numbers numbers(200, uneven);
  const bool bucket = GENERATE(false, true);
  const LoaderConfig config{.batch_size = 7, .bucket = bucket};
  Loader reference(numbers, config, Generator(5));
  const auto batches = take(reference, 100);

  for (const int n : {1, 2, 4}) {
    const Threads threads(n);
    LoaderConfig other = config;
    other.prefetch = n != 2;
    Loader loader(numbers, other, Generator(5));
    CHECK(take(loader, 100) == batches);
  }
  Loader other(numbers, config, Generator(6));
  CHECK(take(other, 100) != batches);
}

TEST_CASE("the order of an epoch is the same in all versions") {
  // Changing it would break resuming runs of earlier versions.
  const Numbers numbers(8);
  Loader loader(numbers, {.batch_size = 8}, Generator(0));
  CHECK(take(loader, 2) ==
        std::vector<std::vector<int32_t>>{{4, 6, 0, 5, 1, 2, 3, 7}, {5, 7, 2, 3, 0, 6, 1, 4}});
}

TEST_CASE("a loader after seek() returns the same batches as without it") {
  const Numbers numbers(50, uneven);
  const LoaderConfig config{
      .batch_size = 4, .bucket = GENERATE(false, true), .prefetch = GENERATE(false, true)};
  Loader loader(numbers, config, Generator(2));
  const auto batches = take(loader, 40);
  const auto stop = GENERATE(0, 1, 11, 12, 13, 25);

  Loader stopped(numbers, config, Generator(2));
  take(stopped, stop);
  const Loader::Cursor cursor = stopped.cursor();
  CHECK(cursor == Loader::Cursor{stop / 12, stop % 12});
  Loader resumed(numbers, config, Generator(2));
  resumed.seek(cursor);
  CHECK(resumed.cursor() == cursor);
  CHECK(take(resumed, 40 - stop) == std::vector(batches.begin() + stop, batches.end()));

  // And back again, with a batch already prefetched.
  loader.seek(cursor);
  CHECK(take(loader, 40 - stop) == std::vector(batches.begin() + stop, batches.end()));
}

TEST_CASE("cursors that do not exist are rejected") {
  const Numbers numbers(50);
  Loader loader(numbers, {.batch_size = 4}, Generator(2));
  CHECK_THAT(message_of<DataError>([&] {
               loader.seek({0, 12});
             }),
             Contains("batch 12 of epoch 0 does not exist; an epoch has 12 batches"));
  CHECK_THROWS_AS(loader.seek({-1, 0}), DataError);
  CHECK_THROWS_AS(loader.seek({0, -1}), DataError);
  CHECK(loader.cursor() == Loader::Cursor{});
}

TEST_CASE("evaluation reads the examples in order") {
  const Numbers numbers(11);
  const std::vector<std::vector<int32_t>> once{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}};
  {
    Loader loader(numbers, Loader::in_order(4), Generator(0));
    REQUIRE(loader.batches_per_epoch() == 3);
    CHECK(take(loader, 3) == once);
  }
  CHECK(numbers.collated == 3);  // no batch was made that was not requested
  Loader loader(numbers, Loader::in_order(4), Generator(0));
  CHECK(take(loader, 6) == take(loader, 6));
  Loader large(numbers, Loader::in_order(INT64_MAX), Generator(0));
  CHECK(examples(large.next()).size() == 11);
}

TEST_CASE("bucketing pads less and still mixes") {
  const Numbers numbers(1000, uneven);
  const auto padded = [&](bool bucket) {
    Loader loader(numbers, {.batch_size = 8, .bucket = bucket}, Generator(3));
    int64_t cells = 0;
    for (int i = 0; i < 125; ++i) cells += loader.next().tokens.numel();
    return cells;
  };
  int64_t real = 0;
  for (int64_t i = 0; i < 1000; ++i) real += uneven(i);
  CHECK(padded(false) > real * 17 / 10);
  CHECK(padded(true) < real * 11 / 10);

  // Batches of long and short examples are mixed.
  Loader loader(numbers, {.batch_size = 8, .bucket = true}, Generator(3));
  std::vector<int64_t> widths;
  for (int i = 0; i < 50; ++i) widths.push_back(loader.next().tokens.size(1));
  int rises = 0;
  for (int i = 1; i < 50; ++i) rises += widths[i] > widths[i - 1];
  CHECK(rises > 10);
  CHECK(rises < 40);
}

TEST_CASE("datasets without a batch are rejected") {
  CHECK_THAT(message_of<ConfigError>([] { Loader(Numbers(3), {.batch_size = 4}, Generator(0)); }),
             Contains("batch_size = 4: expected at most the number of examples, 3"));
  CHECK_THROWS_AS(Loader(Numbers(0), Loader::in_order(4), Generator(0)), ConfigError);
  CHECK_THROWS_AS(Loader(Numbers(3), {.batch_size = 0}, Generator(0)), ConfigError);
  CHECK_NOTHROW(Loader(Numbers(4), {.batch_size = 4}, Generator(0)));
}

TEST_CASE("an exception of a dataset is thrown at its batch, and the loader remains usable") {
  Numbers numbers(12);
  numbers.broken = 5;
  LoaderConfig config = Loader::in_order(4);
  config.prefetch = GENERATE(false, true);
  Loader loader(numbers, config, Generator(0));
  CHECK(examples(loader.next()) == std::vector<int32_t>{0, 1, 2, 3});
  CHECK_THAT(message_of<DataError>([&] { loader.next(); }), Contains("example 5 is broken"));
  CHECK(loader.cursor() == Loader::Cursor{0, 1});
  numbers.broken = -1;
  CHECK(examples(loader.next()) == std::vector<int32_t>{4, 5, 6, 7});

  numbers.broken = 8;
  loader.seek({0, 1});
  loader.next();
  loader.seek({0, 0});  // drops the broken batch that was being prefetched
  CHECK(examples(loader.next()) == std::vector<int32_t>{0, 1, 2, 3});
}
