// The table of operations of attention/ops: see tests/support/op_check.h. Results that have several
// parts are joined.
#include <numeric>

#include "longhand/attention/ops/aft.h"
#include "longhand/attention/ops/bucket_attention.h"
#include "longhand/attention/ops/cluster_means.h"
#include "longhand/attention/ops/delta_scan.h"
#include "longhand/attention/ops/fenwick_scan.h"
#include "longhand/attention/ops/fourier_mix.h"
#include "longhand/attention/ops/inverse.h"
#include "longhand/attention/ops/linear_attention.h"
#include "longhand/attention/ops/listed_attention.h"
#include "longhand/attention/ops/log_cumulative_sum_exp.h"
#include "longhand/attention/ops/low_rank.h"
#include "longhand/attention/ops/near_and_far.h"
#include "longhand/attention/ops/normalised.h"
#include "longhand/attention/ops/path_attention.h"
#include "longhand/attention/ops/products.h"
#include "longhand/attention/ops/ridge_scan.h"
#include "longhand/attention/ops/rwkv7.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/attention/ops/selected_blocks.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/ops/take_rows.h"
#include "tests/attention/recurrence.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

#define OP(...) [](const Variables& x) -> Variable { return __VA_ARGS__; }

// All parts of each sample as one row.
Variable joined(const Variables& parts) {
  Variables rows;
  for (const Variable& part : parts)
    if (part.defined()) rows.push_back(reshape(part, {part.size(0), -1}));
  return concat(rows, 1);
}

Variable joined(const SoftmaxAttentionResult& r) { return joined(Variables{r.out, r.log_sums}); }
Variable joined(const ScanState& s) { return joined(Variables{s.S, s.z}); }
Variable joined(const ScanResult& r) { return joined(Variables{r.out, r.state.S, r.state.z}); }
Variable joined(const DeltaInputs& x) {
  return joined(Variables{x.log_decay, x.k, x.read, x.write});
}
Variable joined(const DeltaResult& r) { return joined(Variables{r.out, r.state}); }

// Tokens i and i + 2 are in one cluster.
Tensor members_like(const Variable& x) {
  const int64_t B = x.size(0), N = x.size(1), H = x.size(2);
  std::vector<int32_t> members;
  for (int64_t i = 0; i < B * H * N; ++i) members.push_back(static_cast<int32_t>(i % N % 2));
  return Tensor::from(members, {B, H, N});
}
// Of three clusters; the last token is padding.
Variable clusters(const Variables& x) {
  const auto n = static_cast<int32_t>(x[0].size(1));
  return cluster_means(x[0], members_like(x[0]), {std::max(n, 1) - 1}, 3);
}

// Tokens i and i + 2 are in one bucket, in both of two rounds.
Buckets buckets_of(const Variable& q) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), n = std::min<int64_t>(N, 2);
  Buckets out{.bucket = Tensor::empty({B, H, 2, N}, DType::i32),
              .sorted = Tensor::empty({B, H, 2, N}, DType::i32),
              .place = Tensor::empty({B, H, 2, N}, DType::i32),
              .begin = Tensor::empty({B, H, 2, n + 1}, DType::i32),
              .window = 2};
  for (int64_t round = 0; round < 2 * B * H; ++round) {
    int32_t at = 0;
    for (int64_t bucket = 0; bucket < n; ++bucket) {
      out.begin.data<int32_t>()[round * (n + 1) + bucket] = at;
      for (int64_t i = bucket; i < N; i += n, ++at) {
        out.bucket.data<int32_t>()[round * N + i] = static_cast<int32_t>(bucket);
        out.sorted.data<int32_t>()[round * N + at] = static_cast<int32_t>(i);
        out.place.data<int32_t>()[round * N + i] = at;
      }
    }
    out.begin.data<int32_t>()[round * (n + 1) + n] = at;
  }
  return out;
}

// Every third key.
Variable listed(const Variables& x) {
  return listed_attention(
      x[0], x[1], x[2], {.scale = 0.7, .added = x.size() > 3 ? x[3] : Variable()},
      [M = x[1].size(1)](int64_t, int64_t h, int64_t i, std::vector<int32_t>& keys) {
        for (int64_t j = (i + h) % 3; j < M; j += 3) keys.push_back(static_cast<int32_t>(j));
      });
}

Variable listed_with_sums(const Variables& x) {
  return joined(listed_attention_with_sums(
      x[0], x[1], x[2], {.scale = 0.7},
      [M = x[1].size(1)](int64_t, int64_t h, int64_t i, std::vector<int32_t>& keys) {
        for (int64_t j = h; j < std::min(M, i + h + 1); ++j)
          keys.push_back(static_cast<int32_t>(j));
      }));
}

// Blocks of two tokens; every query with earlier blocks selects the first one, and those of the second head the one
// before theirs, too.
Variable selected(const Variables& x) {
  const int64_t B = x[0].size(0), N = x[0].size(1), H = x[0].size(2);
  Tensor lists = Tensor::full({B, H, N, 2}, -1, DType::i32);
  for (int64_t row = 0; row < B * H * N; ++row) {
    const int64_t block = row % N / 2, h = row / N % H;
    int32_t* const to = lists.data<int32_t>() + 2 * row;
    if (block > 0) to[0] = 0;
    if (block > 1 && h == 1) to[1] = static_cast<int32_t>(block - 1);
  }
  return selected_blocks_attention(x[0], x[1], x[2], lists, 2, 0.7);
}

// x + 3 I, which is far from singular.
Variable shifted(const Variable& x) {
  if (!is_float(x.dtype())) return x;
  const int64_t d = x.size(2);
  Tensor I = Tensor::zeros({d, d}, x.dtype());
  I.reshape({d * d}).slice(0, 0, d * d, d + 1).fill(3);
  return x + Variable(I);
}

// Near keys: x[0] with logarithms x[1]; far ones: x[2], for the queries from the second on.
Variable near_and_far_sums(const Variables& x) {
  const Shape& of_far = x[2].shape();
  const FarSums far{x[2], Tensor::zeros({of_far[0], of_far[2], of_far[1]}, x[2].dtype()), 1, 0};
  const std::vector<int32_t> lengths(static_cast<size_t>(x[0].size(0)),
                                     static_cast<int32_t>(x[0].size(1)));
  return near_and_far({x[0], x[1]}, {far}, lengths);
}

constexpr int64_t many = 1300;
const GradcheckOptions some{.max_elements = 6};
const Argument decay{.low = -1, .high = 0, .optional = true}, unit{.low = -0.5, .high = 0.5},
    feature{.low = 0.1, .high = 1, .optional = true}, optional{.optional = true},
    positive{.low = 0.5, .high = 1}, fading{.low = -1, .high = -0.2, .optional = true},
    length{3, 7, DType::i32, false, true};

// Of q, k and v: one token, several, more than a block; a head more or less.
const std::vector<Case> triples{{{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}},
                                {{2, 7, 2, 3}, {2, 7, 2, 3}, {2, 7, 2, 3}},
                                {{1, 53, 2, 5}, {1, 53, 2, 5}, {1, 53, 2, 5}}};
const std::vector<Case> long_triples{{{1, many, 1, 4}, {1, many, 1, 4}, {1, many, 1, 4}},
                                     {{2, 300, 3, 8}, {2, 300, 3, 8}, {2, 300, 3, 8}}};

std::vector<Case> with(std::vector<Case> cases, const std::function<Shape(const Shape& q)>& more) {
  for (Case& shapes : cases) shapes.push_back(more(shapes[0]));
  return cases;
}
Shape of_heads(const Shape& q) { return {q[0], q[1], q[2]}; }
Shape of_heads_alone(const Shape& q) { return {q[2]}; }
Shape of_channels(const Shape& q) { return q; }
Shape of_head(const Shape& q) { return {q[2], q[3]}; }
std::vector<Case> path_shapes(const std::vector<Case>& of) {
  std::vector<Case> cases;
  for (const Case& c : of) {
    const Shape& q = c[0];
    cases.push_back({q, q, q, q, of_heads(q), of_heads(q)});
  }
  return cases;
}
Shape of_state(const Shape& q) { return {q[0], q[2], q[3], q[3]}; }
Shape of_samples(const Shape& q) { return {q[0]}; }
Shape of_pairs(const Shape& k) { return {k[1], k[1]}; }
std::vector<Case> with_biases(const std::vector<Case>& all) {
  std::vector<Case> cases;
  for (const Case& shapes : all) cases.push_back({shapes[0], shapes[1], of_pairs(shapes[0])});
  return cases;
}

OpLine line(const std::string& name, const Op& op, const std::vector<Case>& cases = triples,
            const std::vector<Case>& large = long_triples, CheckOptions options = {}) {
  options.order = Order::other;
  options.empty = std::any_of(cases.begin(), cases.end(),
                              [](const Case& shapes) { return shapes[0].numel() == 0; });
  options.gradcheck = some;
  if (options.non_finite != NonFinite::refused) options.non_finite = NonFinite::samples;
  if (options.f32_tolerance == CheckOptions{}.f32_tolerance) options.f32_tolerance = 3e-5;
  return {name, op, cases, large, options};
}

const std::vector<OpLine>& attention_operations() {
  static const std::vector<OpLine> table = [] {
    std::vector<OpLine> all{
        line("softmax_attention", OP(softmax_attention(x[0], x[1], x[2], {}))),
        line("softmax_attention: causal, dropout",
             OP(softmax_attention(x[0], x[1], x[2],
                                  {.causal = true, .dropout = {0.3, Generator(6)}}))),
        // With a key before the first query, whose probabilities would otherwise be constant.
        line("softmax_attention: causal",
             OP(softmax_attention(x[0], x[1], x[2], {.causal = true, .first_query = 1})),
             {{{1, 1, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 1}},
              {{2, 6, 2, 3}, {2, 7, 2, 3}, {2, 7, 2, 3}},
              {{1, 52, 2, 5}, {1, 53, 2, 5}, {1, 53, 2, 5}}},
             {{{2, 299, 3, 8}, {2, 300, 3, 8}, {2, 300, 3, 8}}}),
        line("softmax_attention: window, slopes",
             OP(softmax_attention(
                 x[0], x[1], x[2],
                 {.window = 5, .slopes = std::vector<double>(x[0].size(2), 0.25)}))),
        line("softmax_attention: lengths",
             OP(softmax_attention(x[0], x[1], x[2],
                                  {.key_lengths = x[3].value(), .query_lengths = x[4].value()})),
             with(with({triples[1], triples[2]}, of_samples), of_samples),
             with(with({long_triples[1]}, of_samples), of_samples),
             {.arguments = {{}, {}, {}, length, length}}),
        line("softmax_attention: fewer heads of keys", OP(softmax_attention(x[0], x[1], x[2], {})),
             {{{2, 5, 4, 3}, {2, 7, 2, 3}, {2, 7, 2, 3}},
              {{1, 9, 2, 1}, {1, 5, 1, 1}, {1, 5, 1, 1}}},
             {{{1, 300, 8, 8}, {1, 500, 2, 8}, {1, 500, 2, 8}}}),
        line("softmax_attention: decay and biases of keys",
             OP(softmax_attention(x[0], x[1], x[2],
                                  {.causal = true, .log_decay = x[3], .key_bias = x[4]})),
             with(with(triples, of_heads), of_heads),
             with(with({long_triples[1]}, of_heads), of_heads),
             {.arguments = {{}, {}, {}, decay, optional}}),
        line("softmax_attention: sink",
             OP(softmax_attention(x[0], x[1], x[2], {.causal = true, .sink = x[3]})),
             with(triples, of_heads_alone), with({long_triples[1]}, of_heads_alone),
             {.arguments = {{}, {}, {}, optional}}),
        line("softmax_attention: sigmoid weights",
             OP(softmax_attention(x[0], x[1], x[2], {.key_bias = x[3], .sigmoid = true})),
             with(triples, of_heads), with({long_triples[1]}, of_heads),
             {.arguments = {{}, {}, {}, optional}}),
        line("softmax_attention: with sums",
             OP(joined(softmax_attention_with_sums(x[0], x[1], x[2], {.window = 5})))),
        line("linear_attention", OP(linear_attention(x[0], x[1], x[2], {})), triples, long_triples,
             {.low = 0.1, .high = 1}),
        line("linear_attention: exponentials",
             OP(linear_attention(x[0], x[1], x[2], {.features = {.exponentials = true}}))),
        line("linear_attention: projection",
             OP(linear_attention(
                 x[0], x[1], x[2],
                 {.features = {.exponentials = true,
                               .projection = normal({6, x[0].size(3)}, 4).to(x[0].dtype()),
                               .half_norm = 0.3}})),
             {triples[1]}, {long_triples[1]}),
        line("listed_attention", listed,
             {triples[0], triples[1], triples[2], {{0, 7, 2, 3}, {0, 7, 2, 3}, {0, 7, 2, 3}}}),
        line("listed_attention: added scores", listed,
             {{{2, 5, 2, 3}, {2, 7, 2, 3}, {2, 7, 2, 3}, {2, 2, 5, 3}},
              {{0, 5, 2, 3}, {0, 7, 2, 3}, {0, 7, 2, 3}, {0, 2, 5, 3}},
              {{1, 1, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 1, 1, 1}}},
             {{{1, 300, 2, 8}, {1, 60, 2, 8}, {1, 60, 2, 8}, {1, 2, 300, 20}}},
             {.arguments = {{}, {}, {}, optional}}),
        line("listed_attention: with sums", listed_with_sums,
             {triples[0], triples[1], triples[2], {{0, 7, 2, 3}, {0, 7, 2, 3}, {0, 7, 2, 3}}}),
        line("selected_blocks_attention", selected),
        line("bucket_attention", OP(bucket_attention(x[0], x[1], x[2], 0.7, buckets_of(x[0]))),
             {triples[0], triples[1], triples[2], {{0, 7, 2, 3}, {0, 7, 2, 3}, {0, 7, 2, 3}}}),
        line("aft", OP(aft(x[0], x[1], x[2], x[0].size(1), false, false, {})),
             with_biases({triples[0], triples[1], triples[2], {{0, 7, 2, 3}, {0, 7, 2, 3}}}),
             with_biases({long_triples[1]}), {.arguments = {{}, {}, optional}}),
        line("aft: causal", OP(aft(x[0], x[1], {}, 0, false, true, {})),
             {{{1, 1, 1, 1}, {1, 1, 1, 1}},
              {{0, 7, 2, 3}, {0, 7, 2, 3}},
              {{2, 7, 2, 3}, {2, 7, 2, 3}}},
             {{{2, 300, 3, 8}, {2, 300, 3, 8}}}),
        line("cluster_means", clusters, {{{1, 1, 1, 1}}, {{0, 7, 2, 3}}, {{2, 7, 2, 3}}},
             {{{2, 300, 3, 8}}}),
        line("take_rows", OP(take_rows(x[0], members_like(x[0]))),
             {{{1, 2, 1, 1}}, {{0, 7, 2, 3}}, {{2, 7, 2, 3}}}, {{{2, 300, 3, 8}}}),
        line("fourier_mix", OP(fourier_mix(x[0], {}, true)),
             {{{1, 1, 1, 1}}, {{0, 7, 2, 3}}, {{2, 7, 2, 3}}}, {{{2, 300, 3, 8}}}),
        line("low_rank", OP(low_rank(x[0], {}, {.rank = 1, .projector = false}).out),
             {{{1, 1, 1, 1}}, {{0, 2, 3, 3}}, {{2, 2, 5, 4}}}, {{{2, 2, 40, 50}}},
             {.non_finite = NonFinite::refused}),
        line("inverse", OP(inverse(shifted(x[0]))), {{{1, 1, 1}}, {{0, 3, 3}}, {{2, 4, 4}}},
             {{{3, 30, 30}}}, {.low = -0.2, .high = 0.2, .non_finite = NonFinite::refused}),
        line("lower_inverse", OP(lower_inverse(x[0])), {{{1, 1}}, {{0, 3, 3}}, {{2, 4, 4}}},
             {{{3, 2, 30, 30}}}, {.low = -0.5, .high = 0.5}),
        line("path_attention", OP(path_attention({x[0], x[1], x[2], x[3], x[4], x[5]})),
             path_shapes({triples[0], triples[1], triples[2]}), path_shapes({{{1, 150, 2, 8}}}),
             {.arguments = {{}, {}, {}, unit, {.low = 0.2, .high = 1.8}, decay}}),
        line("near_and_far", near_and_far_sums,
             {{{1, 2, 1, 1}, {1, 1, 2}, {1, 1, 1, 2}},
              {{0, 7, 2, 3}, {0, 2, 7}, {0, 6, 2, 4}},
              {{2, 7, 2, 3}, {2, 2, 7}, {2, 6, 2, 4}}},
             {{{2, 300, 3, 8}, {2, 3, 300}, {2, 299, 3, 9}}}, {.low = 0.1, .high = 1}),
        line("quadratic_products", OP(quadratic_products(x[0], true)),
             {{{1, 1}}, {{0, 7}}, {{2, 7, 3}}}, {{{300, 3, 8}}}),
        line("shifted_products", OP(shifted_products(x[0], 3)),
             {{{1, 2}}, {{0, 7}}, {{2, 7, 3}}, {{5, 2}}}, {{{300, 3, 8}}}),
        line("normalised", OP(normalised(x[0])), {{{1, 1, 1, 2}}, {{0, 7, 2, 3}}, {{2, 7, 2, 3}}},
             {{{1, 3000, 4, 9}}}, {.low = 0.1, .high = 1, .any_dtype = true}),
        line("log_cumulative_sum_exp", OP(log_cumulative_sum_exp(x[0])),
             {{{1, 1, 1, 1}}, {{0, 7, 2, 3}}, {{2, 53, 2, 3}}}, {{{1, 3000, 4, 9}}},
             {.any_dtype = true}),
        line("log_decay_of_scale", OP(log_decay_of_scale(x[0])),
             {{{1, 1, 1}}, {{0, 7, 3}}, {{2, 7, 3}}}, {{{3, 3000, 8}}}, {.any_dtype = true}),
        line("scan", OP(joined(scan({x[0], x[1], x[2]})))),
        // Scales are constants for the gradients, and cancel.
        line("scan: exponentials",
             OP(normalised(
                 scan({x[0], x[1], x[2]}, nullptr, {.features = {.exponentials = true}}).out))),
        line("scan: combine", OP(joined(combine({x[0], x[1]}, {x[2], x[3]}, x[4]))),
             {{{1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1}, {1, 1}},
              {{2, 3, 5, 4}, {2, 3, 5}, {2, 3, 5, 4}, {2, 3, 5}, {2, 3}},
              {{2, 3, 5, 4}, {2, 3, 5}, {2, 3, 5, 4}, {2, 3, 5}, {2, 3, 5}}},
             {{{2, 3, 65, 65}, {2, 3, 65}, {2, 3, 65, 65}, {2, 3, 65}, {2, 3}}},
             {.arguments = {{}, {}, {}, {}, decay}}),
        line("fenwick_scan", OP(fenwick_scan({x[0], x[1], x[2], x[4]}, x[3])),
             with(with(triples, of_channels), of_heads),
             with(with(long_triples, of_channels), of_heads),
             {.arguments = {{}, {}, {}, {}, decay}}),
        line("ridge_scan", OP(ridge_scan({x[0], x[1], x[2], x[3], x[5]}, x[4])),
             with(with(with(triples, of_heads), of_head), of_heads),
             with(with(with(long_triples, of_heads), of_head), of_heads),
             {.arguments = {{}, unit, {}, positive, positive, fading}}),
        line("rwkv7_operands", OP(joined(rwkv7_operands({x[0], x[1], x[2], x[3], x[4]}, 1e-6))),
             with(with(triples, of_head), of_head), with(with(long_triples, of_head), of_head)),
        line("rwkv7_result",
             OP(rwkv7_result({x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]}, 0.1)),
             with(with(with(with(with(triples, of_channels), of_channels), of_head), of_head),
                  of_head),
             with(with(with(with(with(long_triples, of_channels), of_channels), of_head), of_head),
                  of_head),
             {.arguments = {{}, {}, {}, {}, optional}}),
        line("delta_scan", OP(joined(delta_scan({x[0], x[1], x[2]}))), triples, long_triples,
             {.arguments = {{}, unit, {}}}),
    };
    // From a state, with every kind of decay.
    const Op scanned = [](const Variables& x) {
      const ScanState initial{x[4]};
      return joined(scan({x[0], x[1], x[2], x[3]}, &initial, {.normalizer = false, .block = 20}));
    };
    const Op corrected = [](const Variables& x) {
      return joined(delta_scan({x[0], x[1], x[2], x[5], x[3], {}, x[6]}, x[4], {.block = 20}));
    };
    for (const bool of_head : {true, false}) {
      const std::string kind = of_head ? "head" : "channel";
      const auto of_decay = of_head ? of_heads : of_channels;
      const std::vector<Case> small = with(with(triples, of_decay), of_state),
                              large = with(with(long_triples, of_decay), of_state);
      all.push_back(line("scan: decays of a " + kind, scanned, small, large,
                         {.arguments = {{}, {}, {}, decay, {}}}));
      all.push_back(line("delta_scan: decays of a " + kind, corrected,
                         with(with(small, of_heads), of_channels),
                         with(with(large, of_heads), of_channels),
                         {.arguments = {{}, unit, {}, decay, optional, feature, optional}}));
    }
    return all;
  }();
  return table;
}

}  // namespace

TEST_CASE("attention operations: sizes of 1, and large ones") {
  CHECK(missing_sizes(attention_operations()) == "");
}
TEST_CASE("attention operations: gradients") {
  check_each(attention_operations(), property::gradients);
}
TEST_CASE("attention operations: layouts") {
  check_each(attention_operations(), property::layouts);
}
TEST_CASE("attention operations: f32") { check_each(attention_operations(), property::f32); }
TEST_CASE("attention operations: aliasing") {
  check_each(attention_operations(), property::aliasing);
}
TEST_CASE("attention operations: NaN and infinity") {
  check_each(attention_operations(), property::non_finite);
}
TEST_CASE("attention operations: accumulation") {
  check_each(attention_operations(), property::accumulation);
}
TEST_CASE("attention operations: dry arguments") {
  check_each(attention_operations(), property::dry);
}
TEST_CASE("attention operations: errors") { check_each(attention_operations(), property::errors); }
TEST_CASE("attention operations: threads") {
  check_each(attention_operations(), property::same_bits);
}
