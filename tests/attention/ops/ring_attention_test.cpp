// Ring attention, against attention to whole sequences.
#include <mutex>

#include "longhand/attention/ops/ring_attention.h"
#include "longhand/attention/ranks/sequence_part.h"
#include "tests/support/catch.h"
#include "tests/support/thread_ranks.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

constexpr int64_t ring_batch = 2, ring_heads = 2, ring_key_heads = 1, ring_dim = 8;

struct Case {
  const char* name;
  int64_t length;
  SoftmaxAttentionOptions options;
};

std::vector<Case> ring_cases() {
  SoftmaxAttentionOptions drops, window, both, slopes, sinks;
  drops.dropout = {0.3, Generator(7)}, drops.causal = true;
  window.window = 190;
  both.window = 250, both.causal = true;
  slopes.slopes = {0.5, 0.01};
  sinks.causal = true;
  sinks.sink = Variable(Tensor::from(std::vector{3.0, -1.0}, {2}), true);
  return {{"all keys", 700, {}},   {"one token a rank", 4, {}},  {"causal, dropout", 700, drops},
          {"window", 700, window}, {"causal window", 601, both}, {"ALiBi", 333, slopes},
          {"sinks", 333, sinks}};
}

struct RingResult {
  Tensor out, dq, dk, dv;  // (B, N, …)
  Tensor dsink;            // (H), the sum over ranks
};

// x (B, N, …) with rows of zeros, or of NaN, which nothing may read, behind token N.
Tensor part_of(const Tensor& x, const SequencePart& part, double behind) {
  Tensor all = Tensor::full({x.size(0), part.padded(), x.size(2), x.size(3)}, behind, x.dtype());
  copy_into(all.slice(1, 0, part.length), x);
  return all.slice(1, part.begin, part.begin + part.tokens()).contiguous();
}

RingResult attend_on(int P, const Case& c, const Tensor& q, const Tensor& k, const Tensor& v,
                     const Tensor& weights, const Tensor& lengths) {
  const auto like = [](const Tensor& x) { return Tensor::zeros(x.shape(), x.dtype()); };
  RingResult whole{like(q), like(q), like(k), like(v), Tensor::zeros({ring_heads}, q.dtype())};
  std::mutex mutex;
  run_ranks(P, [&](Communicator& ranks) {
    const auto of = SequencePart::of(ranks, c.length);
    const SequencePart& part = *of;
    SoftmaxAttentionOptions options = c.options;
    options.key_lengths = lengths;
    if (!lengths.defined() && part.padded() > part.length)
      options.key_lengths =
          Tensor::full({ring_batch}, static_cast<double>(part.length), DType::i32);
    const Variable own_q(part_of(q, part, NAN), true), own_k(part_of(k, part, NAN), true),
        own_v(part_of(v, part, NAN), true);
    options.query_lengths = part.cut() ? Tensor() : lengths;
    if (options.sink.defined())
      options.sink = Variable(options.sink.value().to(q.dtype()).clone(), true);
    const Variable out = part.cut() ? ring_attention(own_q, own_k, own_v, options, of)
                                    : softmax_attention(own_q, own_k, own_v, options);
    backward(out, part_of(weights, part, 0));
    const std::lock_guard lock(mutex);
    const int64_t real = std::min(part.tokens(), std::max<int64_t>(0, part.length - part.begin));
    const auto put = [&](const Tensor& to, const Tensor& x) {
      if (real > 0) copy_into(to.slice(1, part.begin, part.begin + real), x.slice(1, 0, real));
    };
    put(whole.out, out.value());
    put(whole.dq, own_q.grad()), put(whole.dk, own_k.grad()), put(whole.dv, own_v.grad());
    if (options.sink.defined())
      whole.dsink = (Variable(whole.dsink) + Variable(options.sink.grad())).value();
  });
  return whole;
}

double most_apart(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double most = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double apart = std::abs(x[i] - y[i]);
    most = apart <= most ? most : apart;  // NaN passes on
    size = std::max(size, std::abs(y[i]));
  }
  return most / size;
}

}  // namespace

TEST_CASE("ring attention is attention to whole sequences") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (const Case& c : ring_cases())
      for (const bool padded : {false, true}) {
        const auto random = [&](int64_t h, const char* what, double factor) {
          Tensor x = Tensor::empty({ring_batch, c.length, h, ring_dim}, dtype);
          fill_normal(x, Generator(3).fork(what));
          return (Variable(x) * factor).value();
        };
        // Large scores, so that the parts' sums differ by orders of magnitude.
        const Tensor q = random(ring_heads, "q", 4), k = random(ring_key_heads, "k", 2),
                     v = random(ring_key_heads, "v", 1), weights = random(ring_heads, "weights", 1);
        const auto n = static_cast<int32_t>(c.length);
        const Tensor lengths = padded ? Tensor::from(std::vector{n, n / 3}, {2}) : Tensor();
        const RingResult expected = attend_on(1, c, q, k, v, weights, lengths);
        for (const int P : {2, 3, 4}) {
          INFO(c.name << ", " << dtype << (padded ? ", padded, " : ", ") << P << " ranks");
          const RingResult found = attend_on(P, c, q, k, v, weights, lengths);
          const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
          CHECK(most_apart(found.out, expected.out) < tolerance);
          CHECK(most_apart(found.dq, expected.dq) < tolerance);
          CHECK(most_apart(found.dk, expected.dk) < tolerance);
          CHECK(most_apart(found.dv, expected.dv) < tolerance);
          if (c.options.sink.defined()) CHECK(most_apart(found.dsink, expected.dsink) < tolerance);
        }
      }
}

TEST_CASE("ring attention sends the keys of a part round, whatever the length") {
  for (const int64_t length : {64, 256})
    run_ranks(4, [&](Communicator& ranks) {
      const auto of = SequencePart::of(ranks, length);
      const SequencePart& part = *of;
      const auto make = [&](int64_t h) {
        return Variable(Tensor::full({ring_batch, part.tokens(), h, ring_dim}, 0.5), true);
      };
      const int64_t before = ranks.traffic().bytes;
      const Variable out =
          ring_attention(make(ring_heads), make(ring_key_heads), make(ring_key_heads), {}, of);
      const int64_t part_bytes = 2 * ring_batch * part.tokens() * ring_key_heads * ring_dim * 4;
      check(ranks.traffic().bytes - before == 3 * part_bytes, "the forward pass");
      backward(out, Tensor::full(out.shape(), 1));
      check(ranks.traffic().bytes - before == (3 + 3 + 4) * part_bytes, "both passes");
    });
}

TEST_CASE("ring attention refuses what depends on other keys") {
  run_ranks(2, [&](Communicator& ranks) {
    const Variable x(Tensor::zeros({1, 4, 1, 4}));
    SoftmaxAttentionOptions options;
    options.key_bias = Variable(Tensor::zeros({1, 4, 1}));
    try {
      ring_attention(x, x, x, options, SequencePart::of(ranks, 8));
    } catch (const ConfigError& e) {
      check(std::string(e.what()).find(
                "expected neither log_decay, key_bias, pattern nor sigmoid") != std::string::npos,
            e.what());
      return;
    }
    throw Error("key_bias was accepted");
  });
}

TEST_CASE("a block of keys begins at an even index, and has no pattern") {
  const Variable x(Tensor::zeros({1, 4, 1, 4}));
  SoftmaxAttentionOptions options;
  options.first_key = 3;
  CHECK_THROWS_AS(softmax_attention(x, x, x, options), ConfigError);
  options.first_key = 4;
  options.first_query = 4;
  CHECK_NOTHROW(softmax_attention(x, x, x, options));
  options.pattern =
      std::make_shared<BlockPattern>(BlockPattern{.block = 4, .begin = {0, 1}, .keys = {0}});
  CHECK_THROWS_AS(softmax_attention(x, x, x, options), ConfigError);
}
