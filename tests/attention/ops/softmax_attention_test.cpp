#include "longhand/attention/ops/softmax_attention.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/core/layouts.h"
#include "longhand/core/parallel.h"
#include "longhand/core/storage.h"
#include "tests/attention/attention_check.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

struct SoftmaxCase {
  std::string name;
  int64_t N = 8, M = 0;  // 0: N
  int64_t B = 2, H = 2, Hkv = 2, D = 4;
  SoftmaxAttentionOptions options = {};
};
Tensor counts(const std::vector<int32_t>& values) { return lengths(values).lengths; }

// Each block of queries attends to each block of keys with the given probability; some rows are
// empty and one is full.
std::shared_ptr<const BlockPattern> pattern(int64_t N, int64_t M, int64_t block, int64_t samples,
                                            int64_t heads, double share, int64_t key_block = 0) {
  BlockPattern out{.block = block, .samples = samples, .heads = heads, .key_block = key_block};
  const int64_t rows = (N + block - 1) / block,
                columns = (M + out.keys_of_block() - 1) / out.keys_of_block();
  RandomStream random{Generator(11)};
  for (int64_t r = 0; r < samples * heads * rows; ++r) {
    for (int64_t j = 0; j < columns; ++j)
      if (random.uniform() < share || r == 1) out.keys.push_back(static_cast<int32_t>(j));
    out.begin.push_back(static_cast<int64_t>(out.keys.size()));
  }
  return std::make_shared<const BlockPattern>(std::move(out));
}

std::vector<SoftmaxCase> softmax_cases() {
  const auto padded = counts({70, 250}), key_padded = counts({0, 101}), short_one = counts({170});
  return {
      {.name = "one token", .N = 1},
      {.name = "one key", .N = 5, .M = 1},
      {.name = "odd sizes", .N = 13, .D = 5},
      {.name = "longer than a block", .N = 97, .M = 195, .D = 3},
      {.name = "many keys", .N = 3, .M = 1301, .D = 1},
      {.name = "causal, one token", .N = 1, .options = {.causal = true}},
      {.name = "causal", .N = 95, .options = {.causal = true}},
      {.name = "causal, longer", .N = 290, .D = 9, .options = {.causal = true}},
      {.name = "window of one", .N = 9, .options = {.window = 1}},
      {.name = "window", .N = 291, .options = {.window = 5}},
      {.name = "window of more than a block", .N = 400, .options = {.window = 130}},
      {.name = "causal window", .N = 301, .options = {.causal = true, .window = 101}},
      {.name = "window of all", .N = 120, .options = {.causal = true, .window = 120}},
      {.name = "scale", .N = 11, .options = {.scale = 0.1}},
      {.name = "lengths", .N = 250, .options = {.key_lengths = padded, .query_lengths = padded}},
      {.name = "lengths of keys alone", .N = 20, .M = 150, .options = {.key_lengths = key_padded}},
      {.name = "window beyond the keys",
       .N = 250,
       .options = {.window = 20, .key_lengths = padded}},
      {.name = "causal with lengths",
       .N = 250,
       .options = {.causal = true, .key_lengths = padded, .query_lengths = padded}},
      {.name = "ALiBi", .N = 130, .options = {.slopes = {0.5, 0.03}}},
      {.name = "causal ALiBi",
       .N = 130,
       .options = {.causal = true, .window = 120, .slopes = {0.5, 0.03}}},
      {.name = "grouped queries", .N = 101, .H = 6, .Hkv = 2, .options = {.causal = true}},
      {.name = "one head for all", .N = 40, .M = 33, .H = 3, .Hkv = 1},
      {.name = "dropout", .N = 111, .M = 203, .options = {.dropout = {0.3, Generator(5)}}},
      {.name = "everything",
       .N = 250,
       .H = 4,
       .options = {.scale = 0.4,
                   .causal = true,
                   .window = 172,
                   .key_lengths = padded,
                   .query_lengths = padded,
                   .slopes = {0.5, 0.25, 0.125, 0.0625},
                   .dropout = {0.4, Generator(6)}}},
      // Enough heads for blocks of queries that share keys.
      {.name = "blocks that share keys", .N = 291, .H = 32, .Hkv = 8, .D = 2},
      {.name = "blocks that share keys, window",
       .N = 291,
       .H = 32,
       .Hkv = 8,
       .D = 2,
       .options = {.window = 40,
                   .key_lengths = padded,
                   .query_lengths = padded,
                   .dropout = {0.2, Generator(7)}}},
      // Enough keys for several groups.
      {.name = "groups of keys", .N = 12, .M = 2100, .B = 1, .H = 2, .Hkv = 1, .D = 2},
      // Few keys, but enough queries for several groups.
      {.name = "groups of queries", .N = 1100, .M = 12, .B = 1, .H = 4, .Hkv = 2, .D = 2},
      {.name = "blocks", .N = 300, .options = {.pattern = pattern(300, 300, 64, 1, 1, 0.3)}},
      {.name = "small blocks",
       .N = 103,
       .M = 77,
       .options = {.pattern = pattern(103, 77, 2, 2, 2, 0.2)}},
      {.name = "blocks of 10, causal",
       .N = 301,
       .H = 4,
       .options = {.causal = true, .pattern = pattern(301, 301, 10, 1, 4, 0.3)}},
      {.name = "blocks longer than a tile",
       .N = 200,
       .M = 600,
       .options = {.pattern = pattern(200, 600, 194, 2, 1, 0.5)}},
      {.name = "blocks longer than the keys",
       .N = 30,
       .options = {.pattern = pattern(30, 30, 64, 1, 1, 1)}},
      {.name = "blocks and everything",
       .N = 250,
       .H = 4,
       .options = {.scale = 0.4,
                   .causal = true,
                   .window = 172,
                   .key_lengths = padded,
                   .query_lengths = padded,
                   .pattern = pattern(250, 250, 32, 2, 4, 0.6),
                   .slopes = {0.5, 0.25, 0.125, 0.0625},
                   .dropout = {0.4, Generator(6)}}},
      {.name = "blocks, and blocks of queries that share keys",
       .N = 195,
       .B = 1,
       .H = 32,
       .Hkv = 8,
       .D = 2,
       .options = {.window = 110,
                   .key_lengths = short_one,
                   .query_lengths = short_one,
                   .pattern = pattern(195, 195, 48, 1, 32, 0.4),
                   .dropout = {0.2, Generator(7)}}},
      {.name = "blocks and groups of keys",
       .N = 100,
       .M = 2900,
       .B = 1,
       .H = 2,
       .Hkv = 1,
       .D = 2,
       .options = {.pattern = pattern(100, 2900, 16, 1, 2, 0.4)}},
      {.name = "small blocks of keys",
       .N = 300,
       .M = 77,
       .options = {.pattern = pattern(300, 77, 64, 2, 1, 0.4, 4)}},
      {.name = "large blocks of keys",
       .N = 103,
       .M = 600,
       .options = {.pattern = pattern(103, 600, 16, 1, 2, 0.5, 194),
                   .dropout = {0.3, Generator(8)}}},
      {.name = "blocks of one key",
       .N = 100,
       .M = 133,
       .options = {.key_lengths = key_padded, .pattern = pattern(100, 133, 32, 1, 1, 0.3, 1)}},
      {.name = "odd blocks, causal window",
       .N = 250,
       .options = {.causal = true,
                   .window = 51,
                   .key_lengths = padded,
                   .query_lengths = padded,
                   .pattern = pattern(250, 250, 25, 2, 2, 0.7, 7)}},
      {.name = "causal groups of keys",
       .N = 1100,
       .B = 1,
       .H = 1,
       .Hkv = 1,
       .D = 2,
       .options = {.causal = true}},
  };
}

// (B, M, Hkv, D) with each head repeated H / Hkv times.
Variable repeated(const Variable& x, int64_t H) {
  const int64_t B = x.size(0), M = x.size(1), G = x.size(2), D = x.size(3);
  return reshape(broadcast_to(reshape(x, {B, M, G, 1, D}), {B, M, G, H / G, D}), {B, M, H, D});
}

// The formulas, with the N x M matrix.
Variable naive(const Variable& q, const Variable& k, const Variable& v,
               const SoftmaxAttentionOptions& o) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), M = k.size(1);
  const double tau = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensor bias = Tensor::zeros({H, N, M}, q.dtype());
  Tensor keep = Tensor::zeros({B, H, N, M}, DType::u8);
  dispatch_float(q.dtype(), [&]<class T>() {
    for (int64_t h = 0; h < H && !o.slopes.empty(); ++h)
      for (int64_t i = 0; i < N; ++i)
        for (int64_t j = 0; j < M; ++j)
          bias.data<T>()[(h * N + i) * M + j] =
              static_cast<T>(-o.slopes[h] * static_cast<double>(std::abs(i - j)));
  });
  for (int64_t row = 0; row < B * H * N; ++row) {
    const int64_t b = row / N / H, h = row / N % H, i = row % N;
    int64_t begin = 0, end = o.causal ? std::min(M, i + 1) : M;
    if (o.window) begin = std::max(begin, i - o.window + 1), end = std::min(end, i + o.window);
    if (o.key_lengths.defined()) end = std::min<int64_t>(end, o.key_lengths.data<int32_t>()[b]);
    if (o.query_lengths.defined() && i >= o.query_lengths.data<int32_t>()[b]) end = 0;
    const auto keep_some = [&](int64_t first, int64_t last) {
      first = std::max(first, begin), last = std::min(last, end);
      std::fill_n(keep.data<uint8_t>() + row * M + first, std::max<int64_t>(0, last - first), 1);
    };
    if (!o.pattern) {
      keep_some(0, M);
      continue;
    }
    const BlockPattern& p = *o.pattern;
    const int64_t list = ((p.samples == 1 ? 0 : b) * p.heads + (p.heads == 1 ? 0 : h)) *
                             ((N + p.block - 1) / p.block) +
                         i / p.block;
    for (int64_t at = p.begin[list]; at < p.begin[list + 1]; ++at)
      keep_some(p.keys[at] * p.keys_of_block(), (p.keys[at] + 1) * p.keys_of_block());
  }
  Variable scores = matmul(permute(q, {0, 2, 1, 3}), permute(repeated(k, H), {0, 2, 3, 1}), tau);
  if (o.log_decay.defined()) {
    const Variable G = cumsum(permute(o.log_decay, {0, 2, 1}), 2);
    scores = scores + unsqueeze(G, 3) - unsqueeze(G, 2);
  }
  if (o.key_bias.defined()) scores = scores + unsqueeze(permute(o.key_bias, {0, 2, 1}), 2);
  scores = where(keep, scores + Variable(bias), -std::numeric_limits<double>::infinity());
  if (o.sink.defined())
    scores = concat({scores, broadcast_to(reshape(o.sink, {1, H, 1, 1}), {B, H, N, 1})}, 3);
  Variable p = o.sigmoid ? sigmoid(scores) : slice(softmax(scores), 3, 0, M);
  if (o.dropout.p > 0) {
    const ProbabilityDropout dropout(o.dropout, q.size(2));
    p = where(dropout.kept({B, H, N, M}), p, 0.0) * dropout.scale();
  }
  return permute(matmul(p, permute(repeated(v, H), {0, 2, 1, 3})), {0, 2, 1, 3});
}

struct Sample {
  Tensor q, k, v, cotangent;
};
Sample inputs(const SoftmaxCase& c, DType dtype, double std = 0.9) {
  const int64_t M = c.M ? c.M : c.N;
  return {normal({c.B, c.N, c.H, c.D}, 1, dtype, std), normal({c.B, M, c.Hkv, c.D}, 2, dtype, std),
          normal({c.B, M, c.Hkv, c.D}, 3, dtype, 1), normal({c.B, c.N, c.H, c.D}, 4, dtype, 1)};
}

using Function = Variable (*)(const Variable&, const Variable&, const Variable&,
                              const SoftmaxAttentionOptions&);
Outcome outcome(Function f, const Sample& x, const SoftmaxAttentionOptions& options) {
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable out = f(q, k, v, options);
  backward(out, x.cotangent);
  return {out.value(), q.grad(), k.grad(), v.grad(), {}};
}

void check_near(const Outcome& a, const Outcome& b, double tolerance, double of_gradients) {
  CHECK(near(a.out, b.out, tolerance));
  CHECK(near(a.dq, b.dq, of_gradients));
  CHECK(near(a.dk, b.dk, of_gradients));
  CHECK(near(a.dv, b.dv, of_gradients));
}

void check_identical(const Outcome& a, const Outcome& b) {
  CHECK(identical(a.out, b.out));
  CHECK(identical(a.dq, b.dq));
  CHECK(identical(a.dk, b.dk));
  CHECK(identical(a.dv, b.dv));
}

class Threads {
 public:
  explicit Threads(int n) : before_(threads()) { set_threads(n); }
  ~Threads() { set_threads(before_); }

 private:
  int before_;
};

}  // namespace

TEST_CASE("tiled attention equals the naive one") {
  for (const SoftmaxCase& c : softmax_cases()) {
    INFO(c.name);
    const Sample x = inputs(c, DType::f64);
    const Outcome expected = outcome(naive, x, c.options);
    check_near(outcome(softmax_attention, x, c.options), expected, 1e-12, 1e-12);
    const Sample y = inputs(c, DType::f32);
    const Sample exact{y.q.to(DType::f64), y.k.to(DType::f64), y.v.to(DType::f64),
                       y.cotangent.to(DType::f64)};
    check_near(outcome(softmax_attention, y, c.options), outcome(naive, exact, c.options), 1.5e-6,
               4e-6);
  }
}

TEST_CASE("tiled attention: biases of keys, with gradients") {
  std::vector<SoftmaxCase> all = softmax_cases();
  all.push_back({.name = "forget gate", .N = 203, .H = 4, .options = {.causal = true}});
  for (const SoftmaxCase& c : all) {
    INFO(c.name);
    const int64_t M = c.M ? c.M : c.N;
    const bool gate = c.name == "forget gate";
    const auto run = [&](Function f, DType dtype, const Tensor& bias) {
      const Variable b(bias.to(dtype), true),
          g(affine(Variable(normal({c.B, c.N, c.H}, 6)), 0.3, -2).value().to(dtype), true);
      SoftmaxAttentionOptions options = c.options;
      options.key_bias = b;
      if (gate) options.log_decay = g;
      const Sample x = inputs(c, DType::f32);
      Outcome o =
          outcome(f, {x.q.to(dtype), x.k.to(dtype), x.v.to(dtype), x.cotangent.to(dtype)}, options);
      o.parameters["bias"] = b.grad();
      if (gate) o.parameters["decay"] = g.grad();
      return o;
    };
    const Tensor bias = normal({c.B, M, c.H}, 5, DType::f32, 2);
    const Outcome expected = run(naive, DType::f64, bias);
    for (const DType dtype : {DType::f64, DType::f32}) {
      const bool f64 = dtype == DType::f64;
      const Outcome tiled = run(softmax_attention, dtype, bias);
      check_near(tiled, expected, f64 ? 1e-12 : 2e-6, f64 ? 1e-12 : 6e-6);
      for (const auto& [name, grad] : expected.parameters)
        CHECK(near(tiled.parameters.at(name), grad, f64 ? 1e-12 : 1e-5));
      // Tokens last, and any number of threads.
      const Threads one_more(threads() + 1);
      const Tensor view = bias.permute({0, 2, 1}).contiguous().permute({0, 2, 1});
      const Outcome strided = run(softmax_attention, dtype, view);
      check_identical(strided, tiled);
      CHECK(identical(strided.parameters.at("bias"), tiled.parameters.at("bias")));
    }
  }
}

TEST_CASE("tiled attention: sinks and sigmoid weights, with gradients") {
  for (const SoftmaxCase& c : softmax_cases())
    for (const bool sigmoid : {false, true}) {
      INFO(c.name << (sigmoid ? ", sigmoid weights" : ", a sink"));
      const auto run = [&](Function f, DType dtype) {
        // Sinks below, among and above the logarithms of the normalisers.
        const Variable s(affine(Variable(normal({c.H}, 5, DType::f32, 3)), 1, 2).value().to(dtype),
                         true),
            b(affine(Variable(normal({c.B, c.M ? c.M : c.N, c.H}, 6, DType::f32)), 1, -3)
                  .value()
                  .to(dtype),
              true);
        SoftmaxAttentionOptions options = c.options;
        if (sigmoid)
          options.sigmoid = true, options.key_bias = b;
        else
          options.sink = s;
        const Sample x = inputs(c, DType::f32);
        Outcome o = outcome(f, {x.q.to(dtype), x.k.to(dtype), x.v.to(dtype), x.cotangent.to(dtype)},
                            options);
        o.parameters["added"] = sigmoid ? b.grad() : s.grad();
        return o;
      };
      const Outcome expected = run(naive, DType::f64);
      for (const DType dtype : {DType::f64, DType::f32}) {
        const bool f64 = dtype == DType::f64;
        const Outcome tiled = run(softmax_attention, dtype);
        check_near(tiled, expected, f64 ? 1e-12 : 2e-6, f64 ? 1e-12 : 6e-6);
        CHECK(near(tiled.parameters.at("added"), expected.parameters.at("added"),
                   f64 ? 1e-12 : 1e-5));
        const Threads one_more(threads() + 1);
        const Outcome again = run(softmax_attention, dtype);
        check_identical(again, tiled);
        CHECK(identical(again.parameters.at("added"), tiled.parameters.at("added")));
      }
    }
}

TEST_CASE("tiled attention: a sink counts in the sums of results, with gradients") {
  const Sample x = inputs({.name = "sums", .N = 70}, DType::f64);
  const auto run = [&](const auto& f) {
    const Variable q(x.q, true), k(x.k, true), v(x.v, true),
        sink(normal({q.size(2)}, 5, DType::f64), true);
    const SoftmaxAttentionResult r = f(q, k, v, sink);
    backward(sum(r.out * Variable(x.cotangent)) + sum(square(r.log_sums)));
    return std::pair(Outcome{r.log_sums.value(), q.grad(), k.grad(), v.grad(), {}}, sink.grad());
  };
  const auto found =
      run([](const Variable& q, const Variable& k, const Variable& v, const Variable& sink) {
        return softmax_attention_with_sums(q, k, v, {.causal = true, .sink = sink});
      });
  // Added to what there is without it.
  const auto expected = run([](const Variable& q, const Variable& k, const Variable& v,
                               const Variable& sink) {
    const auto [out, sums] = softmax_attention_with_sums(q, k, v, {.causal = true});
    const Variable s = reshape(sink, {1, sink.size(0), 1}),
                   share = sigmoid(sums - s);  // of the other keys
    return SoftmaxAttentionResult{out * unsqueeze(transpose(share, 1, 2), 3), sums - log(share)};
  });
  check_near(found.first, expected.first, 1e-12, 1e-12);
  CHECK(near(found.second, expected.second, 1e-12));
}

TEST_CASE("tiled attention: the same bits for any number of threads") {
  std::vector<SoftmaxCase> some = softmax_cases();
  some.push_back({.name = "blocks", .N = 700, .B = 3, .H = 4, .Hkv = 2, .D = 32});
  for (const SoftmaxCase& c : some) {
    INFO(c.name);
    const Sample x = inputs(c, DType::f32);
    std::optional<Outcome> first;
    for (const int n : {1, 2, 3, 8}) {
      const Threads with(n);
      const Outcome o = outcome(softmax_attention, x, c.options);
      if (first)
        check_identical(o, *first);
      else
        first = o;
    }
  }
}

TEST_CASE("tiled attention: large scores, and values that nobody attends to") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    // Scores up to about 1e4: usually one key has all the weight.
    const SoftmaxCase c{.name = "", .N = 150, .D = 16};
    const Sample x = inputs(c, dtype, 50);
    const Outcome o = outcome(softmax_attention, x, {});
    for (const Tensor* t : {&o.out, &o.dq, &o.dk, &o.dv}) CHECK(all_finite(*t));
    if (dtype == DType::f64) check_near(o, outcome(naive, x, {}), 1e-9, 1e-9);

    // Queries and keys beyond the lengths may hold anything, and so may their output gradients.
    const SoftmaxAttentionOptions padded{.key_lengths = counts({100, 0}),
                                         .query_lengths = counts({97, 150})};
    const Sample zeros = inputs(c, dtype);
    Sample poisoned = zeros;
    poisoned.q = with_padding(zeros.q, {padded.query_lengths}, NAN);
    poisoned.k = with_padding(zeros.k, {padded.key_lengths}, NAN);
    poisoned.v = with_padding(zeros.v, {padded.key_lengths}, INFINITY);
    poisoned.cotangent = with_padding(zeros.cotangent, {padded.query_lengths}, NAN);
    const Outcome clean = outcome(softmax_attention, zeros, padded);
    check_identical(outcome(softmax_attention, poisoned, padded), clean);
    CHECK(all_zero(clean.out.slice(0, 0, 1).slice(1, 97, 150)));
    CHECK(all_zero(clean.dq.slice(0, 0, 1).slice(1, 97, 150)));
    CHECK(all_zero(clean.dk.slice(0, 0, 1).slice(1, 100, 150)));
    for (const Tensor* t : {&clean.out, &clean.dq, &clean.dk, &clean.dv}) {
      CHECK(all_finite(*t));
      CHECK(all_zero(t->slice(0, 1, 2)));
    }
    // NaN in a key that a query attends to propagates.
    poisoned.k = zeros.k.clone();
    copy_into(poisoned.k.slice(0, 0, 1).slice(1, 99, 100), Tensor::full({1, 1, 2, 16}, NAN, dtype));
    const Tensor out = outcome(softmax_attention, poisoned, padded).out;
    CHECK(std::isnan(out.at({0, 0, 0, 0})));
    CHECK(std::isnan(out.at({0, 96, 1, 15})));
  }
}

// Subnormal numbers take many times as long on some CPUs, and decays give many of them.
TEST_CASE("tiled attention: what is below the normal numbers is 0, as are its gradients") {
  // The second key has the weight 1e-37, and its value times that is 1e-40.
  const auto row = [](float first, float second) {
    Tensor t = Tensor::empty({1, 2, 1, 1}, DType::f32);
    t.data<float>()[0] = first, t.data<float>()[1] = second;
    return t;
  };
  const Sample x{row(1, 1), row(0, -85.2f), row(0, 1e-3f), row(1e-3f, 1e-3f)};
  const Outcome o = outcome(softmax_attention, x, {.scale = 1});
  CHECK(all_zero(o.out));
  CHECK(all_zero(o.dk));
  CHECK(o.dv.at({0, 0, 0, 0}) == Approx(2e-3));
  CHECK(o.dv.at({0, 1, 0, 0}) == 0);
}

TEST_CASE("tiled attention: keys of blocks that are not attended to are not read") {
  const SoftmaxCase c{.name = "", .N = 300, .D = 4};
  Sample x = inputs(c, DType::f32);
  // Every block of 50 attends to itself and to the first one, but none to the fourth.
  BlockPattern p{.block = 50};
  for (const auto& row :
       std::vector<std::vector<int32_t>>{{0}, {0, 1}, {0, 2}, {}, {0, 4}, {0, 5}}) {
    p.keys.insert(p.keys.end(), row.begin(), row.end());
    p.begin.push_back(static_cast<int64_t>(p.keys.size()));
  }
  const SoftmaxAttentionOptions options{.pattern = std::make_shared<const BlockPattern>(p)};
  const Outcome clean = outcome(softmax_attention, x, options);
  for (Tensor* const t : {&x.k, &x.v}) t->slice(1, 150, 200).fill(NAN);
  const Outcome o = outcome(softmax_attention, x, options);
  check_identical(o, clean);
  CHECK(all_zero(o.out.slice(1, 150, 200)));
  CHECK(all_zero(o.dq.slice(1, 150, 200)));
  CHECK(all_zero(o.dk.slice(1, 150, 200)));
}

TEST_CASE("tiled attention: some of the queries, from a first one on") {
  const int64_t N = 230, first = 117, n = 71;
  const Tensor q = random({2, N, 2, 4}), k = random({2, N, 2, 4}, DType::f64, -2, 2, 2),
               v = random({2, N, 2, 4}, DType::f64, -2, 2, 3),
               g = random({2, N, 2}, DType::f64, -1, 0, 4);
  const std::vector<SoftmaxAttentionOptions> cases{
      {.dropout = {0.3}},
      {.causal = true},
      {.window = 9, .slopes = {0.5, 0.25}},
      {.causal = true, .window = 40, .key_lengths = counts({230, 150}), .dropout = {0.3}}};
  for (size_t c = 0; c < cases.size(); ++c)
    for (const bool decays : {false, true}) {
      if (decays && !cases[c].causal) continue;
      INFO("case " << c << ", decays " << decays);
      const auto results = [&](bool some) {
        const Op op = [&](const Variables& in) {
          SoftmaxAttentionOptions options = cases[c];
          if (decays) options.log_decay = in[3];
          const Variable queries = slice(in[0], 1, first, first + n);
          if (!some)
            return slice(softmax_attention(in[0], in[1], in[2], options), 1, first, first + n);
          options.first_query = first;
          return softmax_attention(queries, in[1], in[2], options);
        };
        return run(op, {q, k, v, g});
      };
      const auto some = results(true), all = results(false);
      for (size_t i = 0; i < all.size(); ++i) {
        INFO("result " << i);
        CHECK(close(some[i], all[i], 1e-12));
      }
    }
  const Variable x(q);
  CHECK_THROWS_AS(softmax_attention(x, x, x, {.causal = true, .first_query = 1}), ShapeError);
  CHECK_THROWS_AS(softmax_attention(x, x, x, {.causal = true, .first_query = -1}), ShapeError);
}

TEST_CASE("tiled attention: logarithms of the normalisers, with gradients") {
  const SoftmaxAttentionOptions options{
      .causal = true, .window = 30, .query_lengths = counts({70, 61})};
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Sample x = inputs({.name = "", .N = 70}, dtype);
    const auto run = [&](bool tiled) {
      const Variable q(x.q, true), k(x.k, true), v(x.v, true);
      Variable out, sums;
      if (tiled) {
        const SoftmaxAttentionResult r = softmax_attention_with_sums(q, k, v, options);
        out = r.out, sums = r.log_sums;
      } else {
        Tensor keep = Tensor::empty({2, 1, 70, 70}, DType::u8);
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t i = 0; i < 70; ++i)
            for (int64_t j = 0; j < 70; ++j)
              keep.data<uint8_t>()[(b * 70 + i) * 70 + j] =
                  j <= i && i - j < 30 && (b == 0 || i < 61);
        const Variable s = matmul(transpose(q, 1, 2), permute(k, {0, 2, 3, 1}), 0.5);
        sums = log(sum(where(keep, exp(s), 0.0), {3}));
        out = naive(q, k, v, options);
      }
      const Variable real = slice(sums, 2, 0, 61);
      backward(0.5 * sum(real) + sum(out * Variable(x.cotangent)));
      return Outcome{real.value(), q.grad(), k.grad(), v.grad(), {}};
    };
    const Outcome tiled = run(true), expected = run(false);
    const double tolerance = dtype == DType::f64 ? 1e-12 : 5e-6;
    check_near(tiled, expected, tolerance, tolerance);
    const SoftmaxAttentionResult r =
        softmax_attention_with_sums(Variable(x.q), Variable(x.k), Variable(x.v), options);
    CHECK(r.log_sums.value().at({1, 0, 69}) == -std::numeric_limits<double>::infinity());
    CHECK(
        identical(r.out.value(),
                  softmax_attention(Variable(x.q), Variable(x.k), Variable(x.v), options).value()));
  }
}

TEST_CASE("tiled attention needs memory in O(N)") {
  const SoftmaxCase c{.name = "", .N = 3000, .B = 1, .H = 1, .Hkv = 1, .D = 8};
  const Sample x = inputs(c, DType::f32);
  const Threads with(2);
  outcome(softmax_attention, x, {});
  // The pool's peak may come from an earlier test: fill up to it, so that the memory of a call adds
  // to it.
  const MemoryStats before = memory_stats();
  const Tensor filler =
      Tensor::empty({static_cast<int64_t>(before.peak - before.in_use) + 1}, DType::u8);
  const size_t peak = memory_stats().peak;
  outcome(softmax_attention, x, {});
  CHECK(memory_stats().peak > peak);
  CHECK(memory_stats().peak < peak + size_t{4} * 3000 * 3000 / 8);
}

TEST_CASE("tiled attention: what does not fit is refused") {
  const auto x = [](const Shape& shape, DType dtype = DType::f64) {
    return Variable(Tensor::zeros(shape, dtype));
  };
  const auto run = [&](const Variable& q, const Variable& k, const Variable& v,
                       const SoftmaxAttentionOptions& options = {}) {
    return softmax_attention(q, k, v, options);
  };
  const Variable q = x({2, 5, 4, 3}), k = x({2, 5, 2, 3}), other = x({2, 6, 2, 3});
  CHECK_NOTHROW(run(q, k, k));
  CHECK_THROWS_AS(run(x({2, 5, 3, 3}), k, k), ShapeError);
  CHECK_THROWS_AS(run(x({2, 5, 12}), k, k), ShapeError);
  CHECK_THROWS_AS(run(q, k, other), ShapeError);
  CHECK_THROWS_AS(run(x({2, 5, 4, 4}), k, k), ShapeError);
  CHECK_THROWS_AS(run(x({1, 5, 4, 3}), k, k), ShapeError);
  CHECK_THROWS_AS(run(x({2, 5, 4, 3}, DType::f32), k, k), ShapeError);
  CHECK_THROWS_AS(run(q, other, other, {.causal = true}), ShapeError);
  CHECK_THROWS_AS(run(q, other, other, {.window = 3}), ShapeError);
  CHECK_THROWS_AS(run(q, k, k, {.window = -1}), ConfigError);
  CHECK_THROWS_AS(run(q, k, k, {.slopes = {1, 2}}), ShapeError);
  CHECK_THROWS_AS(run(q, k, k, {.dropout = {1}}), ConfigError);
  CHECK_NOTHROW(run(q, other, other, {.key_bias = x({2, 6, 4})}));
  CHECK_THROWS_WITH(run(q, other, other, {.key_bias = x({2, 5, 4})}),
                    Catch::Contains("[2, 6, 4]") && Catch::Contains("[2, 5, 4]"));
  CHECK_THROWS_AS(run(q, k, k, {.key_bias = x({2, 5, 4}, DType::f32)}), ShapeError);
  CHECK_THROWS_WITH(run(q, k, k, {.sink = x({3})}), Catch::Contains("expected sink"));
  CHECK_THROWS_WITH(run(q, k, k, {.sink = x({4}), .sigmoid = true}),
                    Catch::Contains("neither log_decay nor sink"));
  CHECK_THROWS_WITH(
      softmax_attention_with_sums(Variable(q), Variable(k), Variable(k), {.sigmoid = true}),
      Catch::Contains("no normalisers"));
  CHECK_THROWS_AS(run(q, k, k, {.key_lengths = counts({6, 1})}), ShapeError);
  CHECK_THROWS_AS(run(q, k, k, {.query_lengths = counts({5})}), ShapeError);
  const auto with = [](const BlockPattern& p) {
    return SoftmaxAttentionOptions{.pattern = std::make_shared<const BlockPattern>(p)};
  };
  const BlockPattern all{.block = 4, .begin = {0, 2, 3}, .keys = {0, 1, 1}};
  CHECK_NOTHROW(run(q, k, k, with(all)));
  for (const auto& [block, key_block] : {std::pair(0, 4), std::pair(4, -1)}) {
    BlockPattern p = all;
    p.block = block, p.key_block = key_block;
    CHECK_THROWS_AS(run(q, k, k, with(p)), ConfigError);
  }
  const BlockPattern odd{.block = 4, .begin = {0, 2, 3}, .keys = {0, 1, 1}, .key_block = 3};
  CHECK_NOTHROW(run(q, k, k, with(odd)));
  SoftmaxAttentionOptions drops = with(odd);
  drops.dropout.p = 0.1;
  CHECK_THROWS_AS(run(q, k, k, drops), ConfigError);
  for (const auto& keys : std::vector<std::vector<int32_t>>{{0, 2, 1}, {1, 0, 1}, {0, 0, 1}, {0}}) {
    BlockPattern p = all;
    p.keys = keys;
    CHECK_THROWS_AS(run(q, k, k, with(p)), ShapeError);
  }
  for (int64_t BlockPattern::*const size : {&BlockPattern::samples, &BlockPattern::heads}) {
    BlockPattern p = all;
    p.*size = 3;
    CHECK_THROWS_AS(run(q, k, k, with(p)), ShapeError);
  }
}

TEST_CASE("dropout of probabilities keeps what it should, evenly") {
  const int64_t N = 512;
  for (const double p : {0.1, 0.5}) {
    const ProbabilityDropout dropout({p, Generator(3)}, 1);
    CHECK(dropout.scale() == Approx(1 / (1 - p)).epsilon(2e-5));
    const auto keep = dropout.kept({1, 2, N, N}).to_vector<uint8_t>();
    const double q = 1 - p, sigma = std::sqrt(p * q);
    const auto at = [&](int64_t h, int64_t i, int64_t j) {
      return (keep[(h * N + i) * N + j] - q) / sigma;  // mean 0, variance 1
    };
    // Means of n independent numbers of mean 0 and variance 1, times sqrt(n).
    double all = 0, along = 0, down = 0, corners = 0, heads = 0, rows = 0, cols = 0;
    for (int64_t i = 0; i < N; ++i) {
      double row = 0, col = 0;
      for (int64_t j = 0; j < N; ++j) {
        const double x = at(0, i, j), right = at(0, i, (j + 1) % N), below = at(0, (i + 1) % N, j);
        all += x, row += x, col += at(0, j, i);
        along += x * right, down += x * below, heads += x * at(1, i, j);
        corners += x * right * below * at(0, (i + 1) % N, (j + 1) % N);
      }
      rows += row * row / static_cast<double>(N) - 1;  // of variance 2
      cols += col * col / static_cast<double>(N) - 1;
    }
    const double n = static_cast<double>(N);
    for (const double sum : {all, along, down, corners, heads}) CHECK(std::abs(sum) < 4 * n);
    for (const double sum : {rows, cols}) CHECK(std::abs(sum) < 4 * std::sqrt(2 * n));
  }
}

TEST_CASE("tiled attention: precise to 65,536 keys") {
  // One key among equal ones, of the only value that is not 0: its weight is 1 over the row's sum.
  for (const int64_t M : {4096, 16384, 65536}) {
    const int64_t D = 4, N = 20;
    Tensor q = Tensor::full({1, N, 1, D}, 0.3f, DType::f32);
    Tensor k = Tensor::full({1, M, 1, D}, 0.2f, DType::f32),
           v = Tensor::full({1, M, 1, D}, 0.7f, DType::f32);
    v.select(3, 0).fill(0);
    for (Tensor* t : {&k, &v}) t->select(1, M / 3).fill(0.9f);
    const Tensor dout = Tensor::full({1, N, 1, D}, 0.3f, DType::f32);
    const auto outcome = [&](DType dtype) {
      const Variable a(q.to(dtype), true), b(k.to(dtype), true), c(v.to(dtype), true);
      const Variable out = softmax_attention(a, b, c, {});
      backward(out, dout.to(dtype));
      return std::vector<Tensor>{out.value(), a.grad(), b.grad(), c.grad()};
    };
    const auto found = outcome(DType::f32), expected = outcome(DType::f64);
    for (const int64_t column : {0, 1}) {
      const auto x = found[0].select(3, column).to_vector<double>(),
                 y = expected[0].select(3, column).to_vector<double>();
      INFO(M << " keys, column " << column);
      CHECK(std::abs(x[0] / y[0] - 1) <= 5e-6);
    }
    for (const int i : {1, 2, 3}) {
      const auto x = found[i].to_vector<double>(), y = expected[i].to_vector<double>();
      double worst = 0, largest = 0;
      for (size_t j = 0; j < x.size(); ++j) {
        worst = std::max(worst, std::abs(x[j] - y[j]));
        largest = std::max(largest, std::abs(y[j]));
      }
      INFO(M << " keys, gradient " << i);
      // dq sums differences that nearly cancel: the error is relative to their terms.
      CHECK(worst <= 1e-5 * std::max(largest, i == 1 ? 0.01 : 0.0));
    }
  }
}

namespace {

Tensor random_f32(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::f32);
  fill_normal(t, Generator(5), 0, 1);
  return t;
}

}  // namespace

TEST_CASE("tiled attention: few heads of keys and values need no copies of gradients") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // no arena to query
#endif
  // Copies for each head of queries, or for each thread, would need more than the margin.
  const int64_t D = 32, margin = int64_t{2} << 20;
  for (const auto& [heads, N] : {std::pair<int64_t, int64_t>{16, 2048}, {1, 16384}}) {
    const int64_t bytes = 4 * N * (heads + 2) * D;
    const Variable q(random_f32({1, N, heads, D}), true), k(random_f32({1, N, 1, D}), true),
        v(random_f32({1, N, 1, D}), true);
    const Variable out = softmax_attention(q, k, v, {.causal = true});
    const Tensor dout = random_f32({1, N, heads, D});
    // Fill memory up to the previous peak, so that additional memory raises it.
    const MemoryStats before = memory_stats();
    const Storage ballast(before.peak - before.in_use + 64);
    const size_t peak = memory_stats().peak;
    backward(out, dout);
    const auto more = static_cast<int64_t>(memory_stats().peak - peak);
    INFO(heads << " heads: " << more << " bytes, " << bytes << " of gradients");
    CHECK(more <= bytes + margin);
  }
}
