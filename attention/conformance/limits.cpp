// Exactness limits: settings for which an approximation is exact, or two options are equivalent.
#include <numbers>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/conformance/tools.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/linalg.h"

namespace longhand::attention::conformance {
namespace {

// q, k, v for the limits: 24 tokens, 2 heads of width 4, of unit variance.
constexpr int64_t N = 24, H = 2, D = 4;
struct Inputs {
  Tensor q = normal({2, N, H, D}, 1, DType::f64, 1), k = normal({2, N, H, D}, 2, DType::f64, 1),
         v = normal({2, N, H, D}, 3, DType::f64, 1), cotangent = normal({2, N, H, D}, 4);
};

Made made(bool causal = false) { return {.max_length = N, .causal = causal}; }

// Checks that results and gradients of q, k and v are the same.
void equal(Findings& f, const std::string& what, Variant& a, Variant& b, double tolerance,
           const Inputs& x = {}, const Mask& mask = {}) {
  const Outcome one = run(a, x.q, x.k, x.v, mask, x.cotangent);
  const Outcome two = run(b, x.q, x.k, x.v, mask, x.cotangent);
  double worst = 0;
  for (const auto& [name, s, t] :
       {std::tuple("the result", one.out, two.out), std::tuple("dq", one.dq, two.dq),
        std::tuple("dk", one.dk, two.dk), std::tuple("dv", one.dv, two.dv)}) {
    const double d = distance(s, t);
    worst = std::max(worst, d);
    f.expect(d <= tolerance, what, ": ", name, ": expected a difference of at most ", tolerance,
             ", got ", d);
  }
  f.measured(what, " to ", worst);
}

// Overwrites parameters and buffers by name.
void set(Variant& variant, const nn::StateDict& values) {
  nn::StateDict state = variant.state_dict();
  for (const auto& [name, tensor] : values) {
    check(state.count(name) == 1, "conformance: ", name, " is not in the state");
    state[name] = tensor;
  }
  variant.load_state_dict(state);
}

Tensor identity(int64_t n) {
  Tensor out = Tensor::zeros({n, n}, DType::f64);
  for (int64_t i = 0; i < n; ++i) out.slice(0, i, i + 1).slice(1, i, i + 1).fill(1);
  return out;
}

// Checks that the weights of a variant are kernel(i, j, q_i, k_j) divided by row sums.
template <class Kernel>
void has_kernel(Findings& f, const std::string& what, const std::string& name,
                const OptionSet& options, const Kernel& kernel) {
  for (const bool causal : {false, true}) {
    const auto variant = make_variant(name, options, made(causal));
    const Inputs x;
    const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
    const Tensor found = weights(*variant, q, k);
    Tensor expected = Tensor::zeros({N, N}, DType::f64);
    double* w = expected.data<double>();
    for (int64_t i = 0; i < N; ++i, w += N) {
      double sum = 0;
      for (int64_t j = 0; j < (causal ? i + 1 : N); ++j) {
        std::vector<double> qi, kj;
        for (int64_t d = 0; d < D; ++d) {
          qi.push_back(q.at({0, i, 0, d}));
          kj.push_back(k.at({0, j, 0, d}));
        }
        sum += w[j] = kernel(i, j, qi, kj);
      }
      for (int64_t j = 0; j < N; ++j) w[j] /= sum > 0 ? sum : 1;  // no common feature: 0
    }
    const double d = distance(found, expected);
    f.expect(d <= 1e-11, what, causal ? " causal" : "", ": weights differ by ", d);
    f.measured(what, causal ? " causal" : "", " to ", d);
  }
}

using Row = std::vector<double>;
double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void softmax_tiled(Findings& f) {
  const Shape shape{2, 203, H, D};  // more than a tile
  const Inputs x{normal(shape, 1, DType::f64, 1), normal(shape, 2, DType::f64, 1),
                 normal(shape, 3, DType::f64, 1), normal(shape, 4)};
  for (const bool causal : {false, true})
    for (OptionSet options :
         {OptionSet{}, OptionSet{{"window", 60}, {"bias", "alibi"}, {"scale", 0.3}}}) {
      const auto tiled = make_variant("softmax", options, made(causal));
      options.emplace_back("impl", "naive");
      equal(f, "tiled and naive", *tiled, *make_variant("softmax", options, made(causal)), 1e-12, x,
            lengths({203, 98}));
    }
}

void forgetting_limits(Findings& f) {
  const auto open = make_variant("forgetting", {{"gate_bias", 40.0}}, made(true));
  equal(f, "open gates and softmax", *open, *make_variant("softmax", {}, made(true)), 1e-12);
  // Gates that do not depend on x, with log sigmoid(b_h) = -slope_h.
  const auto constant = make_variant("forgetting", {}, made(true));
  Tensor b = Tensor::zeros({H}, DType::f64);
  for (int64_t h = 0; h < H; ++h) {
    const double slope = std::exp2(-8 * static_cast<double>(h + 1) / static_cast<double>(H));
    b.slice(0, h, h + 1).fill(-std::log(std::expm1(slope)));
  }
  set(*constant, {{"gate.weight", Tensor::zeros({H, H * D}, DType::f64)}, {"gate.bias", b}});
  equal(f, "constant gates and ALiBi", *constant,
        *make_variant("softmax", {{"bias", "alibi"}}, made(true)), 1e-12);
  const Shape shape{2, 203, H, D};  // more than a tile
  const Inputs x{normal(shape, 1, DType::f64, 1), normal(shape, 2, DType::f64, 1),
                 normal(shape, 3, DType::f64, 1), normal(shape, 4)};
  for (OptionSet options : {OptionSet{}, OptionSet{{"window", 60}}}) {
    const auto tiled = make_variant("forgetting", options, made(true));
    options.emplace_back("impl", "naive");
    equal(f, "tiled and naive", *tiled, *make_variant("forgetting", options, made(true)), 1e-12, x,
          lengths({203, 98}));
  }
}

void topk_limits(Findings& f) {
  for (const bool causal : {false, true}) {
    equal(f, "k = N and softmax", *make_variant("topk", {{"k", N}}, made(causal)),
          *make_variant("softmax", {}, made(causal)), 1e-12);
    const Inputs x;
    const auto best = make_variant("topk", {{"k", int64_t{1}}}, made(causal));
    const Tensor found = weights(*best, one(x.q, 0, N), one(x.k, 0, N));
    const auto softmax = make_variant("softmax", {}, made(causal));
    const Tensor all = weights(*softmax, one(x.q, 0, N), one(x.k, 0, N));
    for (int64_t i = 0; i < N; ++i) {
      int64_t largest = 0;
      for (int64_t j = 1; j < N; ++j)
        if (all.at({i, j}) > all.at({i, largest})) largest = j;
      f.expect(found.at({i, largest}) == 1, "k = 1: query ", i, " gives its best key ", largest,
               " the weight ", found.at({i, largest}));
    }
    // A row differs from that of softmax by twice the mass of the keys left out, in the l1 norm.
    const auto three = make_variant("topk", {{"k", int64_t{3}}}, made(causal));
    const Tensor kept = weights(*three, one(x.q, 0, N), one(x.k, 0, N));
    for (int64_t i = 0; i < N; ++i) {
      double difference = 0, left_out = 0;
      for (int64_t j = 0; j < N; ++j) {
        difference += std::abs(kept.at({i, j}) - all.at({i, j}));
        if (kept.at({i, j}) == 0) left_out += all.at({i, j});
      }
      f.expect(std::abs(difference - 2 * left_out) <= 1e-12, "k = 3: row ", i,
               " differs from that of softmax by ", difference, ", and leaves out ", left_out);
    }
    // Of equal scores those of the first keys count, and only k of them.
    const Tensor equals =
        weights(*three, one(x.q, 0, N), Tensor::full({1, N, H, D}, 0.5, DType::f64));
    for (int64_t i = 0; i < N; ++i)
      for (int64_t j = 0; j < N; ++j) {
        const int64_t seen = causal ? std::min<int64_t>(i + 1, 3) : 3;
        const double expected = j < seen ? 1 / static_cast<double>(seen) : 0;
        f.expect(std::abs(equals.at({i, j}) - expected) <= 1e-12, "k = 3, equal keys: query ", i,
                 " gives key ", j, " the weight ", equals.at({i, j}));
      }
  }
}

void latent_limits(Findings& f) {
  const auto equal_latents = make_variant("latent", {{"latents", int64_t{3}}}, made());
  set(*equal_latents, {{"latents", Tensor::zeros({H, 3, D}, DType::f64)}});
  const Inputs x;
  const Tensor mean = forward(*make_variant("mean", {}, made()), x.q, x.k, x.v);
  const double d = distance(forward(*equal_latents, x.q, x.k, x.v), mean);
  f.expect(d <= 1e-12, "latents of 0 and mean differ by ", d);
  f.measured("latents of 0 and mean to ", d);
  // One latent is the query of all tokens.
  const auto single = make_variant("latent", {{"latents", int64_t{1}}}, made());
  const Tensor L = single->state_dict().at("latents");  // (H, 1, D)
  const Tensor queries = L.transpose(0, 1).unsqueeze(0).expand({2, N, H, D});
  const Tensor softmax = forward(*make_variant("softmax", {}, made()), queries, x.k, x.v);
  const double one_latent = distance(forward(*single, x.q, x.k, x.v), softmax);
  f.expect(one_latent <= 1e-12, "one latent and softmax attention of it differ by ", one_latent);
  f.measured("one latent and softmax to ", one_latent);
}

void synthesizer_limits(Findings& f) {
  const Shape square{H, N, N};
  for (const bool causal : {false, true}) {
    const auto random = make_variant("synthesizer", {{"kind", "random"}}, made(causal));
    set(*random, {{"scores", Tensor::zeros(square, DType::f64)}});
    equal(f, "scores of 0 and mean", *random, *make_variant("mean", {}, made(causal)), 1e-13);
    const auto dense = make_variant("synthesizer", {{"hidden", int64_t{3}}}, made(causal));
    const Tensor bias = normal({H, N}, 5);
    set(*dense, {{"weight", Tensor::zeros({H, N, 3}, DType::f64)}, {"bias", bias}});
    set(*random, {{"scores", bias.unsqueeze(1).expand(square).contiguous()}});
    equal(f, "W = 0 and rows b", *dense, *random, 1e-13);
    const auto lowrank =
        make_variant("lowrank", {{"rank", int64_t{3}}, {"softmax", true}}, made(causal));
    const auto state = lowrank->state_dict();
    set(*random,
        {{"scores", matmul(Variable(state.at("u")), transpose(Variable(state.at("v")), 1, 2))
                        .value()
                        .contiguous()}});
    equal(f, "R = U Vᵀ and lowrank", *random, *lowrank, 1e-13);
  }
}

void aft_limits(Findings& f) {
  const Inputs x;
  const Tensor zeros = Tensor::zeros(x.q.shape(), DType::f64);
  for (const bool causal : {false, true}) {
    const auto simple = make_variant("aft", {{"kind", "simple"}}, made(causal));
    const Tensor mean = forward(*make_variant("mean", {}, made(causal)), x.q, x.k, x.v);
    const double d =
        distance(forward(*simple, zeros, zeros, x.v), affine(Variable(mean), 0.5).value());
    f.expect(d <= 1e-14, "queries and keys of 0 and half the mean differ by ", d);
    f.measured(causal ? "causal: " : "", "half the mean to ", d);
    const auto full = make_variant("aft", {{"kind", "full"}}, made(causal));
    const Tensor biases = full->state_dict().at("biases").clone();
    set(*full, {{"biases", Tensor::zeros({N, N}, DType::f64)}});
    equal(f, "biases of 0, full and simple", *full, *simple, 1e-13);
    const auto local =
        make_variant("aft", {{"kind", "local"}, {"window", int64_t{5}}}, made(causal));
    set(*local, {{"biases", Tensor::zeros({N, 9}, DType::f64)}});
    equal(f, "biases of 0, local and simple", *local, *simple, 1e-13);
    // A window of all tokens, whose band holds the matrix.
    const auto wide = make_variant("aft", {{"kind", "local"}, {"window", N}}, made(causal));
    Tensor band = Tensor::zeros({N, 2 * N - 1}, DType::f64);
    for (int64_t i = 0; i < N; ++i)
      copy_into(band.slice(0, i, i + 1).slice(1, N - 1 - i, 2 * N - 1 - i),
                biases.slice(0, i, i + 1));
    set(*full, {{"biases", biases}});
    set(*wide, {{"biases", band}});
    equal(f, "a window of all tokens and full", *wide, *full, 1e-13);
  }
}

void fnet_limits(Findings& f) {
  const int64_t C = H * D;
  double worst = 0;
  for (const int64_t n : {1, 2, 3, 5, 8, 12, 13, 24}) {
    const Tensor v = normal({1, n, H, D}, 3);
    const auto variant = make_variant("fnet", {}, made());
    const Tensor found = forward(*variant, v, v, v), twice = forward(*variant, v, v, found);
    Tensor expected = Tensor::zeros(v.shape(), DType::f64), reflected = expected.clone();
    const double* const x = v.data<double>();
    for (int64_t k = 0; k < n; ++k)
      for (int64_t l = 0; l < C; ++l) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t c = 0; c < C; ++c)
            sum +=
                x[i * C + c] * std::cos(2 * std::numbers::pi *
                                        (static_cast<double>(k * i % n) / static_cast<double>(n) +
                                         static_cast<double>(l * c % C) / static_cast<double>(C)));
        expected.data<double>()[k * C + l] = sum / std::sqrt(static_cast<double>(n * C));
        reflected.data<double>()[k * C + l] = (x[k * C + l] + x[(n - k) % n * C + (C - l) % C]) / 2;
      }
    for (const double d : {distance(found, expected), distance(twice, reflected)}) {
      f.expect(d <= 1e-12, n, " tokens: the result differs by ", d);
      worst = std::max(worst, d);
    }
  }
  f.measured("to ", worst);
}

namespace {

// The result and the gradients of queries and values of f(q, v), for the inputs of the limits.
Outcome shared_keys(const Inputs& x, const std::function<Variable(const Variables&)>& f) {
  const Variable q(x.q, true), v(x.v, true);
  const Variable out = f({q, v});
  backward(out, x.cotangent);
  return {out.value(), q.grad(), Tensor::zeros(x.q.shape(), DType::f64), v.grad(), {}};
}

}  // namespace

void reformer_limits(Findings& f) {
  const Inputs x;
  for (const bool causal : {false, true})
    for (const int64_t w : {N, int64_t{3}}) {
      const auto variant =
          make_variant("reformer", {{"buckets", int64_t{1}}, {"rounds", int64_t{2}}, {"window", w}},
                       made(causal));
      const auto softmax = make_variant("softmax", {}, made(causal));
      // Not itself, except the first token causally, which has no other.
      Tensor keep = Tensor::zeros({N, N}, DType::u8);
      for (int64_t i = 0; i < N; ++i)
        for (int64_t j = 0; j < N; ++j)
          keep.data<uint8_t>()[i * N + j] =
              (i != j && std::abs(i - j) <= w) || (causal && i == 0 && j == 0);
      const Outcome own = shared_keys(x, [&](const Variables& in) {
        return variant->forward(in[0], Variable(x.k), in[1], {}, {});
      });
      const Outcome other = shared_keys(x, [&](const Variables& in) {
        return softmax->forward(in[0], rms_norm(in[0], {}, 1e-6), in[1], {.keep = keep}, {});
      });
      const std::string what = concat_message("one bucket, window ", w, causal ? ", causal" : "");
      double worst = 0;
      for (const auto& [a, b] : {std::pair(own.out, other.out), std::pair(own.dq, other.dq),
                                 std::pair(own.dv, other.dv)})
        worst = std::max(worst, distance(a, b));
      f.expect(worst <= 1e-12, what, " and softmax differ by ", worst);
      f.measured(what, " to ", worst);
    }
  // Rounds with the same buckets find the same keys, which count once.
  const OptionSet once{{"buckets", int64_t{4}}, {"rounds", int64_t{1}}, {"window", int64_t{2}}};
  OptionSet thrice = once;
  thrice[1].second = int64_t{3};
  const auto one_round = make_variant("reformer", once, made(true)),
             rounds = make_variant("reformer", thrice, made(true));
  const Tensor R = one_round->state_dict().at("rotations");  // (H, 1, 2, D)
  set(*rounds, {{"rotations", R.expand({H, 3, 2, D}).contiguous()}});
  equal(f, "three equal rounds and one", *rounds, *one_round, 1e-13);
}

void eva_limits(Findings& f) {
  for (const bool causal : {false, true}) {
    const auto softmax = make_variant("softmax", {}, made(causal));
    const auto eva = [&](int64_t window, int64_t chunk) {
      return make_variant("eva", {{"window", window}, {"chunk", chunk}}, made(causal));
    };
    const std::string suffix = causal ? ", causal" : "";
    equal(f, "a window of N and softmax" + suffix, *eva(N, 4), *softmax, 1e-12);
    equal(f, "chunks of one token and softmax" + suffix, *eva(4, 1), *softmax, 1e-12);
    Inputs x;
    for (int64_t i = 1; i < N; ++i)
      copy_into(x.k.slice(1, i, i + 1), x.k.slice(1, 0, 1).contiguous());
    const double d = distance(forward(*eva(8, 4), x.q, x.k, x.v), forward(*softmax, x.q, x.k, x.v));
    f.expect(d <= 1e-12, "equal keys", suffix, ": eva and softmax differ by ", d);
    f.measured("equal keys", suffix, " to ", d);
  }
}

void clustered_limits(Findings& f) {
  const auto softmax = make_variant("softmax", {}, made());
  for (const int64_t topk : {int64_t{0}, int64_t{5}, N}) {
    const int64_t clusters = topk == N ? 3 : N;
    equal(f, concat_message(clusters, " clusters, topk = ", topk, " and softmax"),
          *make_variant("clustered", {{"clusters", clusters}, {"topk", topk}}, made()), *softmax,
          1e-12);
  }
  const Inputs x;
  const auto single =
      make_variant("clustered", {{"clusters", int64_t{1}}, {"topk", int64_t{0}}}, made());
  const Tensor centre = broadcast_to(mean(Variable(x.q), {1}, true), x.q.shape()).value();
  const double d = distance(forward(*single, x.q, x.k, x.v), forward(*softmax, centre, x.k, x.v));
  f.expect(d <= 1e-12, "one cluster and softmax attention of the mean query differ by ", d);
  f.measured("one cluster to ", d);
}

// f(μ) = softmax_j(μ·y_j - |y_j|²/2) V, with μ and y = D^(-1/4) k.
void lara_one_landmark(Findings& f) {
  const Inputs x;
  const double scale = std::pow(static_cast<double>(D), -0.25);
  const auto mean_of = [](const Tensor& t) { return mean(Variable(t), {1}, true); };
  const Variable mu = affine(mean_of(x.q) + mean_of(x.k), scale);  // (2, 1, H, D)
  const Variable y = affine(Variable(x.k), scale);
  const Variable logits = sum(mu * y, {3}) - affine(sum(square(y), {3}), 0.5);  // (2, N, H)
  const Variable p = transpose(softmax(transpose(logits, 1, 2)), 1, 2);
  const Tensor expected =
      broadcast_to(sum(unsqueeze(p, 3) * Variable(x.v), {1}, true), x.v.shape()).value();
  for (const char* const weights : {"query", "balance"}) {
    const auto variant =
        make_variant("lara", {{"landmarks", int64_t{1}}, {"weights", weights}}, made());
    const double d = distance(forward(*variant, x.q, x.k, x.v), expected);
    f.expect(d <= 1e-12, weights, ": one landmark and f(μ) differ by ", d);
    f.measured(weights, " to ", d);
  }
}

void linformer_identity(Findings& f) {
  const auto variant = make_variant("linformer", {{"k", N}}, made());
  set(*variant, {{"projection_k", identity(N)}, {"projection_v", identity(N)}});
  equal(f, "k = N, E = F = I and softmax", *variant, *make_variant("softmax", {}, made()), 1e-12);
}

void linformer_pooling(Findings& f) {
  const int64_t k = 6, s = N / k;
  const auto pooled = make_variant("linformer", {{"k", k}, {"projection", "mean_pool"}}, made());
  const auto learned = make_variant("linformer", {{"k", k}, {"sharing", "kv"}}, made());
  Tensor means = Tensor::zeros({k, N}, DType::f64);
  for (int64_t c = 0; c < k; ++c)
    means.slice(0, c, c + 1).slice(1, c * s, (c + 1) * s).fill(1 / static_cast<double>(s));
  set(*learned, {{"projection_k", means}});
  equal(f, "E of block means and mean_pool", *learned, *pooled, 1e-12);
  const auto convolved =
      make_variant("linformer", {{"k", k}, {"projection", "conv"}, {"sharing", "kv"}}, made());
  set(*convolved, {{"projection_k", Tensor::full({1, s}, 1 / static_cast<double>(s), DType::f64)}});
  equal(f, "conv with weights 1 / stride and mean_pool", *convolved, *pooled, 1e-12);
}

// One block is softmax attention; so are blocks of one token, which are their own slots.
void linformer_local(Findings& f) {
  for (const bool causal : {false, true})
    for (const int64_t k : {int64_t{1}, N})
      for (const char* kind : {"mean_pool", "max_pool"})
        equal(
            f,
            concat_message(kind, k == 1 ? ", one block" : ", blocks of one token", " and softmax"),
            *make_variant("linformer", {{"k", k}, {"projection", kind}, {"local", true}},
                          made(causal)),
            *make_variant("softmax", {}, made(causal)), 1e-12);
}

void linear_kernels(Findings& f) {
  has_kernel(f, "taylor2: 1 + s + s²/2", "linear", {{"feature_map", "taylor2"}},
             [](int64_t, int64_t, const Row& q, const Row& k) {
               const double s = dot(q, k) / 2;  // sqrt(D) = 2
               return 1 + s + s * s / 2;
             });
  // cos a cos b + sin a sin b = cos(a - b)
  has_kernel(f, "cosformer: relu(q)·relu(k) cos(π (i - j) / 2M)", "linear",
             {{"feature_map", "cosformer"}}, [](int64_t i, int64_t j, const Row& q, const Row& k) {
               double s = 0;
               for (int64_t d = 0; d < D; ++d) s += std::max(q[d], 0.0) * std::max(k[d], 0.0);
               return s * std::cos(std::numbers::pi * static_cast<double>(i - j) /
                                   (2 * static_cast<double>(N)));
             });
  has_kernel(f, "elu + 1", "linear", {}, [](int64_t, int64_t, const Row& q, const Row& k) {
    const auto phi = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
    double s = 0;
    for (int64_t d = 0; d < D; ++d) s += phi(q[d]) * phi(k[d]);
    return s;
  });
  has_kernel(f, "dpfp", "linear", {{"feature_map", "dpfp"}, {"nu", int64_t{2}}},
             [](int64_t, int64_t, const Row& q, const Row& k) {
               const auto r = [](const Row& x, int64_t i) {
                 i %= 2 * D;
                 return std::max(i < D ? x[i] : -x[i - D], 0.0);
               };
               double s = 0;
               for (int64_t i = 0; i < 2 * D; ++i)
                 for (const int64_t j : {1, 2}) s += r(q, i) * r(q, i + j) * r(k, i) * r(k, i + j);
               return s;
             });
  has_kernel(f, "rebased: (norm(q)·norm(k))²", "linear", {{"feature_map", "rebased"}},
             [](int64_t, int64_t, Row q, Row k) {
               for (Row* x : {&q, &k}) {
                 double mean = 0, variance = 1e-5;
                 for (const double a : *x) mean += a / D;
                 for (const double a : *x) variance += (a - mean) * (a - mean) / D;
                 for (double& a : *x) a = (a - mean) / std::sqrt(variance);
               }
               return dot(q, k) * dot(q, k);
             });
  const auto learned = make_variant("linear", {{"feature_map", "t2r"}, {"features", D}}, made());
  Tensor W = Tensor::empty({H, D, D}, DType::f64);
  for (int64_t h = 0; h < H; ++h) copy_into(W.select(0, h), identity(D));
  set(*learned, {{"weight", W}});
  equal(f, "t2r with W = I and relu", *learned,
        *make_variant("linear", {{"feature_map", "relu"}}, made()), 1e-12);
}

void rff_limits(Findings& f) {
  const OptionSet options{{"features", 32}, {"kernel", "gaussian"}};
  const auto variant = make_variant("rff", options, made());
  set(*variant, {{"features", Tensor::zeros({32, D}, DType::f64)}});
  const Inputs x;
  const double d = distance(forward(*variant, x.q, x.k, x.v),
                            broadcast_to(mean(Variable(x.v), {1}, true), x.v.shape()).value());
  f.expect(d <= 1e-12, "W = 0: the result differs from uniform attention by ", d);
  // Many features: the Gaussian kernel e^(-|q - k|² / (2 sqrt(D) sigma²)).
  OptionSet many = options;
  many[0].second = int64_t{20000};
  many.emplace_back("sigma", 2.0);
  const auto wide = make_variant("rff", many, made());
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  Tensor expected = Tensor::empty({N, N}, DType::f64);
  for (int64_t i = 0; i < N; ++i) {
    double sum = 0;
    double* const w = expected.data<double>() + i * N;
    for (int64_t j = 0; j < N; ++j) {
      double square = 0;
      for (int64_t c = 0; c < D; ++c)
        square += std::pow(q.at({0, i, 0, c}) - k.at({0, j, 0, c}), 2);
      sum += w[j] = std::exp(-square / (2 * 2 * 4));
    }
    for (int64_t j = 0; j < N; ++j) w[j] /= sum;
  }
  const double error = relative_error(weights(*wide, q, k), expected);
  f.measured("20,000 features and the Gaussian kernel: ", error);
  f.expect(error <= 0.02, "with 20,000 features the weights differ from the Gaussian kernel's by ",
           error);
}

void gaussian_limits(Findings& f) {
  // Keys of equal norms: e^(-|q - k|²/2) equals e^(q·k) up to factors of the query.
  Inputs x;
  double* k = x.k.data<double>();
  for (int64_t row = 0; row < 2 * N * H; ++row, k += D) {
    double square = 0;
    for (int64_t d = 0; d < D; ++d) square += k[d] * k[d];
    for (int64_t d = 0; d < D; ++d) k[d] *= 1.5 / std::sqrt(square);
  }
  for (const bool causal : {false, true}) {
    const auto gaussian = make_variant("gaussian", {}, made(causal));
    const auto softmax = make_variant("softmax", {}, made(causal));
    const double d = distance(forward(*gaussian, x.q, x.k, x.v), forward(*softmax, x.q, x.k, x.v));
    f.measured(causal ? "causal, " : "", "keys of equal norms and softmax to ", d);
    f.expect(d <= 1e-12, "with keys of equal norms the result differs from softmax attention by ",
             d);
  }
  has_kernel(f, "e^(-|q - k|² / (2 sqrt D sigma²))", "gaussian", {{"sigma", 1.5}},
             [](int64_t, int64_t, const Row& q, const Row& key) {
               double square = 0;
               for (int64_t d = 0; d < D; ++d) square += (q[d] - key[d]) * (q[d] - key[d]);
               return std::exp(-square / (2 * 2 * 1.5 * 1.5));
             });
}

// If all 2N rows are landmarks and gamma is 0, the approximation is exact.
void skyformer_limits(Findings& f) {
  equal(f, "all landmarks, gamma = 0 and the exact kernel",
        *make_variant("skyformer", {{"landmarks", 2 * N}, {"gamma", 0.0}, {"inverse", "exact"}},
                      made()),
        *make_variant("gaussian", {{"normalized", false}}, made()), 1e-7);
}

// The weight of query i and key j is the sum over d of softmax_d(q_i) e^k_jd / sum_j' e^k_j'd.
void efficient_weights(Findings& f) {
  for (const bool causal : {false, true}) {
    const Inputs x;
    const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
    Tensor expected = Tensor::zeros({N, N}, DType::f64);
    for (int64_t i = 0; i < N; ++i) {
      const int64_t seen = causal ? i + 1 : N;
      double total = 0;
      for (int64_t d = 0; d < D; ++d) total += std::exp(q.at({0, i, 0, d}));
      for (int64_t d = 0; d < D; ++d) {
        double keys = 0;
        for (int64_t j = 0; j < seen; ++j) keys += std::exp(k.at({0, j, 0, d}));
        for (int64_t j = 0; j < seen; ++j)
          expected.data<double>()[i * N + j] +=
              std::exp(q.at({0, i, 0, d})) / total * std::exp(k.at({0, j, 0, d})) / keys;
      }
    }
    const double error =
        distance(weights(*make_variant("efficient", {}, made(causal)), q, k), expected);
    f.expect(error <= 1e-12, causal ? "causal " : "", "weights differ by ", error);
    f.measured(causal ? "causal " : "", "weights to ", error);
  }
}

// The variants whose state decays, without norm and gate: their results are linear in v.
const OptionSet plain_retnet{{"norm", false}, {"gate", false}};
double decay_of_head(int64_t h) { return 1 - std::exp2(-5 - static_cast<double>(h)); }

void retention_weights(Findings& f) {
  const Inputs x;
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  for (const int64_t fastest : {5, 40}) {  // 1 - 2^-40: no decay
    OptionSet options = plain_retnet;
    options.emplace_back("fastest", fastest);
    Tensor expected = Tensor::zeros({N, N}, DType::f64);
    for (int64_t i = 0; i < N; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        double s = 0;
        for (int64_t d = 0; d < D; ++d) s += q.at({0, i, 0, d}) * k.at({0, j, 0, d});
        expected.data<double>()[i * N + j] =
            s / 2 * (fastest == 5 ? std::pow(decay_of_head(0), i - j) : 1);
      }
    const double error = distance(weights(*make_variant("retnet", options, made(true)), q, k),
                                  expected),
                 most = fastest == 5 ? 1e-13 : 1e-10;
    f.expect(error <= most, "fastest = ", fastest, ": weights differ by ", error);
    f.measured("fastest = ", fastest, " to ", error);
  }
  // Every head has a decay of its own.
  const Tensor out = forward(*make_variant("retnet", plain_retnet, made(true)), x.q, x.k, x.v);
  double worst = 0;
  for (int64_t h = 0; h < H; ++h)
    for (int64_t i = 0; i < N; ++i)
      for (int64_t e = 0; e < D; ++e) {
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          double s = 0;
          for (int64_t d = 0; d < D; ++d) s += x.q.at({0, i, h, d}) * x.k.at({0, j, h, d});
          sum += s / 2 * std::pow(decay_of_head(h), i - j) * x.v.at({0, j, h, e});
        }
        worst = std::max(worst, std::abs(out.at({0, i, h, e}) - sum));
      }
  f.expect(worst <= 1e-12, "results of all heads differ by ", worst);
  f.measured("all heads to ", worst);
}

// σ(b)^(1/16) = γ of the head, for all of its channels and for every token.
void gla_limits(Findings& f) {
  const auto variant =
      make_variant("gla", {{"decay_rank", 3}, {"norm", false}, {"gate", false}}, made(true));
  Tensor bias = Tensor::empty({H * D}, DType::f64);
  for (int64_t c = 0; c < H * D; ++c) {
    const double p = std::pow(decay_of_head(c / D), 16);
    bias.data<double>()[c] = std::log(p / (1 - p));
  }
  set(*variant, {{"decay.weight_in", Tensor::zeros({3, H * D}, DType::f64)}, {"decay.bias", bias}});
  equal(f, "equal gates and retnet", *variant, *make_variant("retnet", plain_retnet, made(true)),
        1e-12);
}

void mamba2_limits(Findings& f) {
  const OptionSet options{{"skip", false}, {"norm", false}, {"gate", false}};
  const auto variant = make_variant("mamba2", options, made(true));
  // Head 0: e^(-a (Δ_(j+1) + … + Δ_i)) Δ_j q·k / sqrt(D), with Δ as the variant's projection of x,
  // which is q here, has it.
  const Inputs x;
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  const auto state = variant->state_dict();
  const auto of = [&](const char* name) { return state.at(name).to_vector<double>(); };
  const auto P = of("step.weight"), b = of("step_bias"), A = of("log_rate");
  Row steps;
  for (int64_t i = 0; i < N; ++i) {
    double t = b[0];
    for (int64_t c = 0; c < H * D; ++c) t += P[c] * q.at({0, i, c / D, c % D});
    steps.push_back(std::log1p(std::exp(t)));
  }
  Tensor expected = Tensor::zeros({N, N}, DType::f64);
  for (int64_t i = 0; i < N; ++i) {
    double passed = 0;
    for (int64_t j = i; j >= 0; passed += steps[j--]) {
      double s = 0;
      for (int64_t d = 0; d < D; ++d) s += q.at({0, i, 0, d}) * k.at({0, j, 0, d});
      expected.data<double>()[i * N + j] = s / 2 * steps[j] * std::exp(-std::exp(A[0]) * passed);
    }
  }
  const double error = distance(weights(*variant, q, k), expected);
  f.expect(error <= 1e-13, "weights differ by ", error);
  f.measured("weights to ", error);
  // Steps of 1 and the rates -log γ.
  Tensor rates = Tensor::empty({H}, DType::f64);
  for (int64_t h = 0; h < H; ++h) rates.data<double>()[h] = std::log(-std::log(decay_of_head(h)));
  set(*variant, {{"step.weight", Tensor::zeros({H, H * D}, DType::f64)},
                 {"step_bias", Tensor::full({H}, std::log(std::expm1(1.0)), DType::f64)},
                 {"log_rate", rates}});
  equal(f, "constant steps and retnet", *variant, *make_variant("retnet", plain_retnet, made(true)),
        1e-12);
}

// With an open gate, 1 - σ(b) for tiny σ(b), only the token itself counts; with one that is the same
// for all tokens and nearly closed, all tokens count alike, as without a gate.
void rfa_gates(Findings& f) {
  const OptionSet options{{"features", 32}, {"kernel", "rfa"}};
  OptionSet gated = options;
  gated.emplace_back("gate", true);
  const auto with = make_variant("rff", gated, made(true));
  const auto constant = [&](double bias) {
    set(*with, {{"gate.weight", Tensor::zeros({H, H * D}, DType::f64)},
                {"gate.bias", Tensor::full({H}, bias, DType::f64)}});
  };
  const Inputs x;
  constant(-40);
  const double own = distance(forward(*with, x.q, x.k, x.v), x.v);
  f.expect(own <= 1e-9, "with a gate that keeps nothing the result differs from v by ", own);
  f.measured("keeping nothing and v to ", own);
  constant(30);
  equal(f, "keeping all and no gate", *with, *make_variant("rff", options, made(true)), 1e-9);

  // Queries and keys of 0 have equal features, so that the gates g = σ(x·w + b) alone decide: sums
  // become g sum + (1 - g) v.
  set(*with, {{"gate.weight", normal({H, H * D}, 5)}, {"gate.bias", normal({H}, 6)}});
  const nn::StateDict state = with->state_dict();
  const Tensor tokens = normal({2, N, H * D}, 7), zero = Tensor::zeros(x.q.shape(), DType::f64);
  const Variable g = sigmoid(
      linear(Variable(tokens), Variable(state.at("gate.weight")), Variable(state.at("gate.bias"))));
  const Tensor found =
      with->forward({Variable(zero), Variable(zero), Variable(x.v), Variable(tokens)}, {}, {})
          .value();
  double worst = 0;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t d = 0; d < D; ++d) {
        double sum = 0, total = 0;
        for (int64_t i = 0; i < N; ++i) {
          const double keep = g.value().at({b, i, h});
          sum = keep * sum + (1 - keep) * x.v.at({b, i, h, d});
          total = keep * total + (1 - keep);
          worst = std::max(worst, std::abs(found.at({b, i, h, d}) - sum / total));
        }
      }
  f.expect(worst <= 1e-9, "gated means differ by ", worst);
  f.measured("gated means to ", worst);
}

void nystrom_limits(Findings& f) {
  const auto softmax = make_variant("softmax", {}, made());
  const auto with = [](const OptionSet& options) {
    OptionSet all{{"landmarks", N}, {"exact_below", 0}};
    all.insert(all.end(), options.begin(), options.end());
    return make_variant("nystrom", all, made());
  };
  // m = N: F = A = G = P, and P P⁺ P = P. Queries equal to keys, of norm 4, keep P far from
  // singular.
  Inputs x;
  double* q = x.q.data<double>();
  for (int64_t row = 0; row < 2 * N * H; ++row, q += D) {
    const double norm = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    for (int64_t d = 0; d < D; ++d) q[d] *= 4 / norm;
  }
  x.k = x.q;
  equal(f, "m = N, pseudo-inverse by SVD and softmax", *with({{"pinv", "svd"}}), *softmax, 1e-9, x);
  const double error =
      distance(forward(*with({{"pinv", "svd"}}), x.q, x.k, x.v), forward(*softmax, x.q, x.k, x.v));
  f.expect(error <= 1e-12, "m = N, SVD: the result differs from softmax by ", error);
  double before = 1e300;
  for (const int64_t iterations : {6, 10, 20}) {
    const double d = distance(forward(*with({{"pinv_iterations", iterations}}), x.q, x.k, x.v),
                              forward(*softmax, x.q, x.k, x.v));
    f.measured(iterations, " iterations to ", d);
    f.expect(d < before || d <= 1e-14, iterations, " iterations have the error ", d,
             ", fewer have ", before);
    before = d;
  }
  f.expect(before <= 1e-6, "after 20 iterations the result differs from softmax by ", before);
  // Learned landmarks that are the tokens.
  const auto learned = with({{"pinv", "svd"}, {"landmark_kind", "learned"}});
  const Tensor tokens = one(x.q, 0, N), values = one(x.v, 0, N);
  const Tensor landmarks = tokens.squeeze(0).transpose(0, 1).contiguous();
  set(*learned, {{"query_landmarks", landmarks}, {"key_landmarks", landmarks}});
  const double at_tokens = distance(forward(*learned, tokens, tokens, values),
                                    forward(*softmax, tokens, tokens, values));
  f.measured("learned landmarks at the tokens to ", at_tokens);
  f.expect(at_tokens <= 1e-12, "with learned landmarks at the tokens the result differs by ",
           at_tokens);
  // Exact attention for few tokens is reported.
  f.expect(!make_variant("nystrom", {{"landmarks", N}}, made())->algorithm(N).empty() &&
               with({})->algorithm(N).empty(),
           "algorithm() does not distinguish exact attention from landmarks");
}

void svd_limits(Findings& f) {
  const Inputs x;
  const auto softmax = make_variant("softmax", {}, made());
  for (const auto& [name, options] :
       {std::pair<const char*, OptionSet>{"r = N", {{"rank", N}, {"gradient", "exact"}}},
        {"energy 1 of values", {{"energy", 1.0}, {"energy_of", "values"}, {"gradient", "exact"}}}})
    equal(f, name, *make_variant("svd", options, made()), *softmax, 1e-9, x);
  // ‖P - P_r‖² is the sum of the squares of the singular values left out.
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  const Tensor P = weights(*softmax, q, k);
  const auto values = svd(P).s.to_vector<double>();
  double left = 0;
  for (int64_t r = N - 1; r >= 1; --r) {
    left += values[r] * values[r];
    const Tensor cut = weights(*make_variant("svd", {{"rank", r}}, made()), q, k);
    double error = 0;
    for (int64_t i = 0; i < N * N; ++i)
      error += std::pow(P.data<double>()[i] - cut.data<double>()[i], 2);
    f.expect(std::abs(error - left) <= 1e-10 * (1 + left), "rank ", r,
             ": expected the squared error ", left, ", that of the singular values left out, got ",
             error);
  }
}

void window_limits(Findings& f) {
  for (const bool causal : {false, true})
    for (const OptionSet& options :
         {OptionSet{{"window", N}}, OptionSet{{"window", 2}, {"global_tokens", N}}})
      equal(f,
            concat_message(options.size() == 1 ? "window" : "global tokens", " of N",
                           causal ? ", causal" : "", " and softmax"),
            *make_variant("window", options, made(causal)),
            *make_variant("softmax", {}, made(causal)), 1e-12);
  equal(f, "window 0 and none", *make_variant("window", {{"window", 0}}, made()),
        *make_variant("none", {}, made()), 1e-12);
}

void bigbird_limits(Findings& f) {
  for (const bool causal : {false, true})
    for (const auto& [what, more] : {std::pair("global", OptionSet{{"global_blocks", N}}),
                                     std::pair("neighbouring", OptionSet{{"window", N}}),
                                     std::pair("random", OptionSet{{"random_blocks", N}})}) {
      OptionSet options{{"block", 4}};
      for (const auto& [key, value] : {std::pair("window", int64_t{0}),
                                       {"global_blocks", int64_t{0}},
                                       {"random_blocks", int64_t{0}}})
        if (more.front().first != key) options.emplace_back(key, value);
      options.push_back(more.front());
      equal(f, concat_message("all blocks ", what, causal ? ", causal" : "", " and softmax"),
            *make_variant("bigbird", options, made(causal)),
            *make_variant("softmax", {}, made(causal)), 1e-12);
    }
}

// The features are those of the same state.
void scatterbrain_limits(Findings& f) {
  for (const bool causal : {false, true}) {
    equal(f, concat_message("a window of N", causal ? ", causal" : "", " and softmax"),
          *make_variant("scatterbrain", {{"window", N}}, made(causal)),
          *make_variant("softmax", {}, made(causal)), 1e-12);
    const auto none = make_variant("scatterbrain", {{"window", 0}, {"features", 16}}, made(causal));
    const auto performer = make_variant("performer", {{"features", 16}}, made(causal));
    set(*performer, {{"features", none->state_dict().at("features")}});
    equal(f, concat_message("a window of 0", causal ? ", causal" : "", " and performer"), *none,
          *performer, 1e-12);
  }
}

void controls(Findings& f) {
  has_kernel(f, "mean: equal weights", "mean", {},
             [](int64_t, int64_t, const Row&, const Row&) { return 1.0; });
  has_kernel(f, "none: itself", "none", {},
             [](int64_t i, int64_t j, const Row&, const Row&) { return i == j ? 1.0 : 0.0; });
}

// With orthonormal keys no key holds anything of another one, so nothing is corrected.
void deltanet_limits(Findings& f) {
  const auto variant =
      make_variant("deltanet", {{"silu", false}, {"norm", false}}, {.heads = 1, .causal = true});
  set(*variant, {{"beta.weight", Tensor::zeros({1, D}, DType::f64)}});  // β = 1/2
  // Long enough for the number that is added to squared lengths not to matter.
  const Tensor q = affine(Variable(normal({1, D, 1, D}, 1, DType::f64, 1)), 1e4).value();
  const Tensor k = affine(Variable(identity(D)), 1e4).value().reshape({1, D, 1, D});
  const Tensor found = weights(*variant, q, k);
  double worst = 0;
  for (int64_t i = 0; i < D; ++i) {
    double length = 0;
    for (int64_t l = 0; l < D; ++l) length += std::pow(q.at({0, i, 0, l}), 2);
    for (int64_t j = 0; j < D; ++j) {
      const double expected =
          j <= i ? q.at({0, i, 0, j}) / std::sqrt(length * static_cast<double>(D)) / 2 : 0;
      worst = std::max(worst, std::abs(found.at({i, j}) - expected));
    }
  }
  f.expect(worst <= 1e-9, "weights differ from those of linear attention by ", worst);
  f.measured("weights to ", worst);
}

void gated_deltanet_limits(Findings& f) {
  for (const bool silu : {false, true}) {
    const auto gated =
        make_variant("gated_deltanet", {{"gate", false}, {"silu", silu}}, made(true));
    set(*gated, {{"log_rate", Tensor::full({H}, -800, DType::f64)}});  // e^-800 is 0
    equal(f, concat_message("without decay", silu ? ", after silu" : ""), *gated,
          *make_variant("deltanet", {{"silu", silu}}, made(true)), 1e-12);
  }
}

void kda_limits(Findings& f) {
  const auto kda = make_variant("kda", {{"gate", false}, {"rank", 2}}, made(true)),
             gated = make_variant("gated_deltanet", {{"gate", false}}, made(true));
  const Tensor rates = normal({H}, 5), steps = normal({H}, 6);
  set(*kda, {{"decay_up.weight", Tensor::zeros({H * D, 2}, DType::f64)},
             {"log_rate", rates.unsqueeze(1)},
             {"step_bias", steps.unsqueeze(1).expand({H, D}).contiguous()}});
  set(*gated, {{"step.weight", Tensor::zeros({H, H * D}, DType::f64)},
               {"log_rate", rates},
               {"step_bias", steps}});
  equal(f, "equal decays and gated_deltanet", *kda, *gated, 1e-12);
}

void rwkv7_limits(Findings& f) {
  const OptionSet core{{"norm", false}, {"bonus", false}, {"gate", false}, {"rank", 2}};
  const auto rule = make_variant("rwkv7", core, made(true)),
             gla = make_variant(
                 "gla", {{"norm", false}, {"gate", false}, {"decay_rank", 2}, {"temperature", 1.0}},
                 made(true));
  // -e^(-1/2) σ(b) = log σ(c). A rate of 0 removes nothing.
  const Tensor b = normal({H, D}, 5);
  Tensor c = Tensor::zeros({H * D}, DType::f64);
  for (int64_t i = 0; i < H * D; ++i) {
    const double g = -std::exp(-0.5) / (1 + std::exp(-b.data<double>()[i]));
    c.data<double>()[i] = g - std::log(-std::expm1(g));
  }
  set(*rule, {{"decay_bias", b},
              {"rate_bias", Tensor::full({H, D}, -800, DType::f64)},
              {"replacement", Tensor::zeros({H, D}, DType::f64)}});
  set(*gla, {{"decay.weight_in", Tensor::zeros({2, H * D}, DType::f64)}, {"decay.bias", c}});
  equal(f, "without removal, and gla", *rule, *gla, 1e-12);

  // Keys of unit norm and equal ξ, 0.85 at first, with gradients: they depend on how keys get their
  // norm, so that only those of q and v are compared.
  const auto delta =
      make_variant("deltanet", {{"silu", false}, {"norm", false}, {"negative", true}}, made(true));
  set(*delta, {{"beta.weight", Tensor::zeros({H, H * D}, DType::f64)}});  // β = 1
  set(*rule, {{"decay_bias", Tensor::full({H, D}, -800, DType::f64)},
              {"rate_bias", Tensor::full({H, D}, 800, DType::f64)}});
  Inputs x;
  const auto unit = [](const Tensor& t) {
    const Variable v(t);
    return (v / sqrt(sum(square(v), {3}, true))).value();
  };
  x.q = unit(x.q);
  x.k = unit(x.k);
  const Outcome one = run(*rule, x.q, x.k, x.v, {}, x.cotangent),
                two = run(*delta, x.q, x.k, x.v, {}, x.cotangent);
  const double worst = std::max(distance(one.out, two.out), distance(one.dv, two.dv));
  f.expect(worst <= 1e-5, "unit keys and deltanet: expected a difference of at most 1e-5, got ",
           worst);
  f.measured("unit keys and deltanet to ", worst);

  // Equal channels and keys of one direction u: κ = ±u, and u's row of the state is multiplied by the
  // eigenvalue e^g - a, which is negative here.
  const auto line =
      make_variant("rwkv7", core, {.heads = 1, .dim = D, .max_length = N, .causal = true});
  const double g = -std::exp(-0.5) / (1 + std::exp(-0.4)), a = 1 / (1 + std::exp(-1.5));
  set(*line, {{"decay_bias", Tensor::full({1, D}, 0.4, DType::f64)},
              {"rate_bias", Tensor::full({1, D}, 1.5, DType::f64)},
              {"replacement", Tensor::full({1, D}, 0.5, DType::f64)}});
  // Large enough for the number that is added to squared lengths not to matter.
  const Tensor q = normal({1, N, 1, D}, 6),
               k = affine(Variable(normal({1, N, 1, 1}, 7).expand(q.shape())), 1e6).value();
  const Tensor found = weights(*line, q, k);
  double most = 0;
  for (int64_t i = 0; i < N; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double of_pair = 0;
      for (int64_t d = 0; d < D; ++d) of_pair += q.at({0, i, 0, d}) * k.at({0, j, 0, d}) / 2;
      const double expected = j <= i ? of_pair * (1 + (a - 1) * 0.5) *
                                           std::pow(std::exp(g) - a, static_cast<double>(i - j))
                                     : 0;
      most = std::max(most, std::abs(found.at({i, j}) - expected) / 1e6);
    }
  f.expect(most <= 1e-9, "keys of one direction: weights differ from their closed form by ", most);
  f.measured("keys of one direction to ", most);
}

// A filter of one tap, and a gate that is open.
void conv_limits(Findings& f) {
  const auto conv = make_variant("conv", {{"width", 1}}, made());
  set(*conv, {{"filter", Tensor::full({H * D, 1}, 1, DType::f64)},
              {"gate.weight", Tensor::zeros({H * D, H * D}, DType::f64)},
              {"gate.bias", Tensor::full({H * D}, 1, DType::f64)}});
  const Inputs x;
  const Tensor out = forward(*conv, x.q, x.k, x.v),
               none = forward(*make_variant("none", {}, made()), x.q, x.k, x.v);
  f.expect(distance(out, none) == 0, "one tap and an open gate: differs from none by ",
           distance(out, none));
  // A filter of the last tap but two shifts the tokens by two.
  const auto shift = make_variant("conv", {{"width", 4}}, made());
  Tensor filter = Tensor::zeros({H * D, 4}, DType::f64);
  filter.select(1, 1).fill(1);
  set(*shift, {{"filter", filter},
               {"gate.weight", Tensor::zeros({H * D, H * D}, DType::f64)},
               {"gate.bias", Tensor::full({H * D}, 1, DType::f64)}});
  const Tensor shifted = forward(*shift, x.q, x.k, x.v);
  f.expect(all_zero(shifted.slice(1, 0, 2)), "a shift by two: the first tokens are not 0");
  f.expect(distance(shifted.slice(1, 2, N), x.v.slice(1, 0, N - 2)) == 0,
           "a shift by two: differs from the values two tokens before");
}

}  // namespace longhand::attention::conformance
