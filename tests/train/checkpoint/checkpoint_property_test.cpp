// Checkpoints of any contents, as they are written and read.
#include <algorithm>
#include <bit>
#include <limits>

#include "longhand/core/error.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/core/random_view.h"
#include "tests/support/property.h"

using namespace longhand;
using namespace longhand::test;
using namespace longhand::train;

namespace {

/// A tensor of any dtype, shape, strides and bits.
Tensor any_tensor() {
  const DType dtype = one_of<DType>({DType::f32, DType::f64, DType::i32, DType::i64, DType::u8});
  const Shape shape = any_shape(4, 4);
  RandomStream random(Generator(static_cast<uint64_t>(any_of(0, 1 << 30))));
  if (any_of(0, 1)) return random_view(shape, dtype, random, {.holes = true, .broadcast = true});
  Tensor t = Tensor::empty(shape, dtype);
  dispatch_any(dtype, [&]<class T>() {
    auto* const bytes = reinterpret_cast<unsigned char*>(t.data<T>());
    for (size_t i = 0; i < static_cast<size_t>(t.numel()) * sizeof(T); ++i)
      bytes[i] = static_cast<unsigned char>(random.below(256));
  });
  return t;
}

/// A name of a tensor, mostly like those of modules.
std::string any_name() {
  return any_of(0, 15) ? "blocks." + std::to_string(any_of(0, 20)) + ".weight" : any_bytes(12);
}

nn::StateDict any_state() {
  nn::StateDict state;
  for (int64_t n = any_of(0, 6); n > 0; --n) state[any_name()] = any_tensor();
  return state;
}

int64_t any_integer() {
  return one_of<int64_t>({0, 1, -1, any_of(0, 1000), std::numeric_limits<int64_t>::max(),
                          std::numeric_limits<int64_t>::min()});
}

double any_number() {
  return one_of<double>({0, -0.0, 0.1, std::numeric_limits<double>::infinity(),
                         std::bit_cast<double>(uint64_t{0x7ff8'0000'0000'1234}), 5e-324,
                         static_cast<double>(any_of(-1000, 1000)) / 7});
}

Checkpoint any_checkpoint() {
  Checkpoint c;
  c.model = any_state();
  c.optimizer = any_state();
  c.ema = any_state();
  c.config = any_bytes(100);
  c.machine = any_bytes(20);
  c.version = any_bytes(20);
  TrainingState& s = c.training;
  for (int64_t* const number :
       {&s.step, &s.cursor.epoch, &s.cursor.batch, &s.interval.steps, &s.interval.correct,
        &s.interval.targets, &s.evaluated_step, &s.best_step, &s.evaluations_since_best,
        &s.guard.skipped, &s.guard.skipped_in_turn})
    *number = any_integer();
  s.seed = static_cast<uint64_t>(any_integer());
  for (double* const number : {&s.interval.loss, &s.last_accuracy, &s.guard.loss.mean})
    *number = any_number();
  if (any_of(0, 1)) s.best = any_number();
  for (int64_t n = any_of(0, 2); n > 0; --n) s.interval.terms[any_bytes(5)] = any_number();
  return c;
}

bool equal(const nn::StateDict& a, const nn::StateDict& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && identical(x.second, y.second);
  });
}

/// The same values in other memory, with the axes in another order.
nn::StateDict stored_otherwise(const nn::StateDict& state) {
  nn::StateDict out;
  for (const auto& [name, tensor] : state) {
    Strides like = contiguous_strides(tensor.shape());
    const auto order = any_order(tensor.rank());
    for (int i = 0; i < tensor.rank(); ++i) like[i] = order[i] + 1;
    out[name] = Tensor::empty_ordered(tensor.shape(), tensor.dtype(), like);
    copy_into(out[name], tensor);
  }
  return out;
}

/// What a file can hold: names of datasets and of attributes.
bool can_be_stored(const Checkpoint& c) {
  const auto has = [](const std::string& text, char byte) {
    return text.find(byte) != std::string::npos;
  };
  for (const nn::StateDict* const state : {&c.model, &c.optimizer, &c.ema})
    for (const auto& [name, tensor] : *state)
      if (name.empty() || name == "." || has(name, '/') || has(name, '\0')) return false;
  for (const auto& [name, value] : c.training.interval.terms)
    if (has(name, '\n') || has(name, '\0')) return false;
  for (const std::string* const text : {&c.config, &c.machine, &c.version})
    if (has(*text, '\0')) return false;
  return true;
}

}  // namespace

TEST_CASE("property: a checkpoint is read as it was written, bit for bit") {
  int written = 0, refused = 0;
  require_always(
      "checkpoints",
      [&] {
        const Checkpoint c = any_checkpoint();
        if (!can_be_stored(c)) {
          ++refused;
          RC_ASSERT_THROWS_AS(to_bytes(c), DataError);
          return;
        }
        ++written;
        const auto bytes = to_bytes(c);
        const Checkpoint back = from_bytes(bytes, "x.h5");
        RC_ASSERT(equal(back.model, c.model));
        RC_ASSERT(equal(back.optimizer, c.optimizer));
        RC_ASSERT(equal(back.ema, c.ema));
        RC_ASSERT(back.config == c.config);
        RC_ASSERT(back.machine == c.machine);
        RC_ASSERT(back.version == c.version);
        RC_ASSERT(back.training.seed == c.training.seed);
        RC_ASSERT(back.training.interval.terms.size() == c.training.interval.terms.size());
        // The numbers, of which NaN is not equal to itself.
        RC_ASSERT(to_bytes(back) == bytes);
      },
      150);
  CHECK(written > refused);
  CHECK(refused > 0);
}

TEST_CASE("property: equal checkpoints give equal bytes, others do not") {
  require_always(
      "bytes",
      [] {
        Checkpoint c = any_checkpoint();
        if (!can_be_stored(c)) return;
        const auto bytes = to_bytes(c);
        Checkpoint same = c;
        same.model = stored_otherwise(c.model);
        same.ema = stored_otherwise(c.ema);
        RC_ASSERT(to_bytes(same) == bytes);
        switch (any_of(0, 3)) {
          case 0:
            ++reinterpret_cast<uint64_t&>(same.training.step);
            break;
          case 1:
            same.config += 'x';
            break;
          case 2:
            same.training.best = same.training.best ? std::nullopt : std::optional<double>(0);
            break;
          default:
            same.optimizer["another"] = any_tensor();
        }
        RC_ASSERT(to_bytes(same) != bytes);
      },
      60);
}
