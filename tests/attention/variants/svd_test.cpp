#include "longhand/core/linalg.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

constexpr int64_t N = 12, H = 2;

// Returns the weights of a variant, (B, H, N, N): its results for values that are unit vectors.
Tensor weights_of(attention::Variant& variant, const Tensor& q, const Tensor& k,
                  const Mask& mask = {}) {
  Tensor v = Tensor::zeros({q.size(0), N, H, N}, DType::f64);
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t j = 0; j < N; ++j) v.select(0, b).select(0, j).slice(1, j, j + 1).fill(1);
  return variant.forward(Variable(q), Variable(k), Variable(v), mask, {})
      .value()
      .permute({0, 2, 1, 3});
}

double square_norm(const Tensor& t) {
  double sum = 0;
  for (const double x : t.to_vector<double>()) sum += x * x;
  return sum;
}

Tensor minus(const Tensor& a, const Tensor& b) { return (Variable(a) - Variable(b)).value(); }

// The head dimension equals the number of tokens, so that values can be unit vectors.
Tensor queries(uint64_t seed) { return normal({3, N, H, N}, seed, DType::f64, 1); }
const std::vector<int32_t> some_lengths{12, 7, 2};

std::unique_ptr<attention::Variant> make(const std::string& name, const Settings& settings) {
  return make_variant(name, {.heads = H, .dim = N, .max_length = N}, options_of(settings));
}

}  // namespace

TEST_CASE("svd: the error is that of the best matrix of rank r, and others have larger errors") {
  const int64_t r = GENERATE(1, 3, 7);
  const auto softmax = make("softmax", {}), svd_variant = make("svd", {{"rank", r}});
  const Tensor q = queries(1), k = queries(2);
  const Mask mask = lengths(some_lengths);
  const Tensor P = weights_of(*softmax, q, k, mask), Pr = weights_of(*svd_variant, q, k, mask);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t h = 0; h < H; ++h) {
      const int64_t n = some_lengths[b];
      const auto part = [&](const Tensor& t) {
        return t.select(0, b).select(0, h).slice(0, 0, n).slice(1, 0, n);
      };
      const auto s = svd(part(P)).s.to_vector<double>();
      double rest = 0;
      for (int64_t i = r; i < n; ++i) rest += s[i] * s[i];
      const Tensor difference = minus(part(P), part(Pr));
      CHECK(square_norm(difference) == Approx(rest).epsilon(1e-9).margin(1e-25));
      CHECK(svd(difference).s.at({0}) == Approx(r < n ? s[r] : 0).epsilon(1e-9).margin(1e-13));
      const auto left = svd(part(Pr)).s.to_vector<double>();
      for (int64_t i = r; i < n; ++i) CHECK(left[i] <= 1e-13);
      // 0 at padding.
      CHECK(all_zero(Pr.select(0, b).select(0, h).slice(1, n, N)));
    }
  // Other variants of that rank.
  const Tensor full = weights_of(*softmax, q, k), best = weights_of(*svd_variant, q, k);
  const double least = square_norm(minus(full, best));
  for (const auto& [name, settings] :
       std::map<std::string, Settings>{{"linformer", {{"k", r}, {"projection", "mean_pool"}}},
                                       {"nystrom", {{"landmarks", r}}},
                                       {"performer", {{"features", r}}}}) {
    const double error = square_norm(minus(full, weights_of(*make(name, settings), q, k)));
    INFO(name << " at rank " << r << ": " << error << ", at best " << least);
    CHECK(error > least);
  }
}

TEST_CASE("svd of full rank is softmax, with any mask") {
  const auto softmax = make("softmax", {});
  const auto full = make("svd", {{"rank", N}, {"gradient", GENERATE("projector", "exact")}});
  const Tensor q = queries(1), k = queries(2), v = queries(3), c = queries(4);
  Tensor keep = Tensor::full({3, 1, N, N}, 1, DType::u8);
  keep.select(0, 0).slice(1, 2, 3).fill(0);  // attends to nothing
  keep.select(0, 1).slice(2, 3, 6).fill(0);
  const Mask mask{.lengths = lengths(some_lengths).lengths,
                  .keep = keep,
                  .bias = Variable(normal({H, N, N}, 5))};
  for (const Mask& m : {Mask{}, lengths(some_lengths), mask}) {
    const Outcome a = run_variant(*full, q, k, v, m, c), b = run_variant(*softmax, q, k, v, m, c);
    CHECK(near(a.out, b.out, 1e-13));
    CHECK(near(a.dq, b.dq, 1e-12));
    CHECK(near(a.dk, b.dk, 1e-12));
    CHECK(near(a.dv, b.dv, 1e-12));
    if (m.keep.defined()) CHECK(all_zero(a.out.select(0, 0).slice(0, 2, 3)));
  }
  CHECK(full->algorithm(N).find("softmax") == 0);
  CHECK(full->algorithm(N + 1).empty());
}

TEST_CASE("svd: the rank that reaches an energy") {
  const double energy = GENERATE(0.5, 0.9, 0.999, 1.0);
  const std::string of = GENERATE("squares", "values");
  const auto variant = make("svd", {{"energy", energy}, {"energy_of", of}});
  const Tensor q = queries(1), k = queries(2);
  CHECK(variant->metrics().empty());
  const Tensor Pr = weights_of(*variant, q, k);
  const Tensor P = weights_of(*make("softmax", {}), q, k);
  double ranks = 0, energies = 0;
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t h = 0; h < H; ++h) {
      const auto s = svd(P.select(0, b).select(0, h)).s.to_vector<double>();
      double total = 0, sum = 0, rest = 0;
      for (const double x : s) total += of == "squares" ? x * x : x;
      size_t r = 0;
      for (; r < s.size() && sum < energy * total; ++r) sum += of == "squares" ? s[r] * s[r] : s[r];
      for (size_t i = r; i < s.size(); ++i) rest += s[i] * s[i];
      ranks += static_cast<double>(r) / 6;
      energies += sum / total / 6;
      CHECK(square_norm(minus(P, Pr).select(0, b).select(0, h)) ==
            Approx(rest).epsilon(1e-9).margin(1e-25));
    }
  CHECK(variant->metrics().at("rank") == Approx(ranks).epsilon(1e-12));
  CHECK(variant->metrics().at("energy") == Approx(energies).epsilon(1e-12));
  CHECK(energies >= energy - 1e-12);
}

TEST_CASE("svd: rows may be scaled to sum to 1") {
  const auto plain = make("svd", {{"rank", int64_t{3}}});
  const auto scaled = make("svd", {{"rank", int64_t{3}}, {"renormalize", true}});
  CHECK_FALSE(plain->capabilities().averages);
  CHECK(scaled->capabilities().averages);
  const Tensor q = queries(1), k = queries(2);
  const Mask mask = lengths(some_lengths);
  const Tensor a = weights_of(*plain, q, k, mask), b = weights_of(*scaled, q, k, mask);
  const Tensor sums = sum(Variable(a), {3}, true).value();
  for (int64_t s = 0; s < 3; ++s)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < some_lengths[s]; ++i)
        for (int64_t j = 0; j < some_lengths[s]; ++j)
          CHECK(b.at({s, h, i, j}) ==
                Approx(a.at({s, h, i, j}) / sums.at({s, h, i, 0})).epsilon(1e-10).margin(1e-12));
  CHECK(all_finite(b));
}

TEST_CASE("svd: the gradient with U_r held constant") {
  const auto variant = make("svd", {{"rank", int64_t{3}}});
  const Tensor q = queries(1), k = queries(2), v = queries(3), c = queries(4);
  const Outcome o = run_variant(*variant, q, k, v, {}, c);
  const Variable vq(q, true), vk(k, true), vv(v, true);
  const auto by_head = [](const Variable& x) { return transpose(x, 1, 2); };
  const Variable P = softmax(
      matmul(by_head(vq), transpose(by_head(vk), 2, 3), 1 / std::sqrt(static_cast<double>(N))));
  Tensor projector = Tensor::empty({3, H, N, N}, DType::f64);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t h = 0; h < H; ++h) {
      const Variable u(svd(P.value().select(0, b).select(0, h)).u.slice(1, 0, 3));
      copy_into(projector.select(0, b).select(0, h), matmul(u, transpose(u, 0, 1)).value());
    }
  const Variable out = by_head(matmul(Variable(projector), matmul(P, by_head(vv))));
  backward(out, c);
  CHECK(near(o.out, out.value(), 1e-13));
  CHECK(near(o.dq, vq.grad(), 1e-12));
  CHECK(near(o.dk, vk.grad(), 1e-12));
  CHECK(near(o.dv, vv.grad(), 1e-12));
  const auto exact = make("svd", {{"rank", int64_t{3}}, {"gradient", "exact"}});
  CHECK_FALSE(near(run_variant(*exact, q, k, v, {}, c).dq, o.dq, 1e-3));
}

TEST_CASE("svd: the exact gradient") {
  const int64_t rank = GENERATE(1, 2, 4, 6);
  const bool scaled = GENERATE(false, true);
  const auto variant =
      make_variant("svd", {.dim = 3},
                   options_of({{"rank", rank}, {"gradient", "exact"}, {"renormalize", scaled}}));
  const Shape shape{3, 6, 2, 3};
  const Tensor q = normal(shape, 1, DType::f64, 1.5), k = normal(shape, 2, DType::f64, 1.5),
               v = normal(shape, 3);
  for (const Mask& mask : {Mask{}, lengths({6, 3, 1})}) {
    const GradcheckReport report = gradcheck(
        [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
        {q, k, v});
    INFO("rank " << rank << " " << report);
    CHECK(report.ok);
  }
  // Fewer queries than keys, and more.
  for (const int64_t n : {2, 5}) {
    const Tensor some = normal({3, 9, 2, 3}, 4, DType::f64, 1.5).slice(1, 0, n);
    const GradcheckReport report = gradcheck(
        [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], {}, {}); },
        {n == 2 ? some : q, n == 2 ? k : some, n == 2 ? v : normal({3, 5, 2, 3}, 5)});
    INFO("rank " << rank << ", " << n << " " << report);
    CHECK(report.ok);
  }
}

TEST_CASE("svd: incompatible options are refused") {
  CHECK_THROWS_WITH(make("svd", {{"rank", int64_t{3}}, {"energy", 0.9}}),
                    Catch::Contains("energy") && Catch::Contains("rank"));
  CHECK_THROWS_AS(make("svd", {{"energy", 1.5}}), ConfigError);
  CHECK_THROWS_AS(make("svd", {{"rank", int64_t{0}}}), ConfigError);
  CHECK_THROWS_WITH(make("svd", {{"energy_of", "values"}}),
                    Catch::Contains("applies only with energy above 0"));
}
