// performer_evidence(). Choromanski et al. 2020 (arXiv 2009.14794), lemma 2, theorem 2; Rahimi &
// Recht 2007. Closed forms: analysis::softmax_variance(). Seeds are fixed for reproducibility.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "longhand/attention/analysis/kernel.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/features/random_features.h"

namespace longhand::attention::conformance {
namespace {

using Values = Row;
using analysis::Estimator;
using analysis::estimators;
using analysis::softmax_features;

struct Moments {
  double mean = 0, variance = 0, error = 0;  // error: standard error of the mean
};
Moments moments(const Values& x) {
  const auto n = static_cast<double>(x.size());
  Moments m;
  for (const double value : x) m.mean += value / n;
  for (const double value : x) m.variance += (value - m.mean) * (value - m.mean) / (n - 1);
  m.error = std::sqrt(m.variance / n);
  return m;
}

Moments squared_errors(Values x, double exact) {
  for (double& value : x) value = (value - exact) * (value - exact);
  return moments(x);
}

// Returns R / block estimates of e^(x·y), each from `block` rows of W (R, D). The features of row l
// are at l and, if there are two per row, also at R + l.
Values estimates(Estimator estimator, const Tensor& W, const Values& x, const Values& y,
                 int64_t block) {
  const int64_t R = W.size(0), D = W.size(1);
  Tensor phases;
  if (estimator == Estimator::trigonometric_bias) {
    phases = Tensor::empty({R}, DType::f64);
    fill_uniform(phases, Generator(77), 0, 2 * std::numbers::pi);
  }
  const auto features = [&](const Values& point) {
    return softmax_features(estimator, Tensor::from(point, {1, D}), W, phases).to_vector<double>();
  };
  const Values fx = features(x), fy = features(y);
  Values out(R / block);
  for (size_t i = 0; i < fx.size(); ++i)
    if (const size_t row = i % R / block; row < out.size())
      out[row] += fx[i] * fy[i] * static_cast<double>(R) / static_cast<double>(block);
  return out;
}

// |x|² = 0.6, |y|² = 0.5.
struct Points {
  Values x, y;
};
Points points(int64_t D) {
  Points p{Values(D, 0.0), Values(D, 0.0)};
  p.x[0] = std::sqrt(0.5);
  p.x[1] = std::sqrt(0.1);
  for (int64_t d = 0; d < D; ++d) p.y[d] = std::sqrt(0.5 / static_cast<double>(D));
  return p;
}

void closed_forms(Findings& f) {
  const int64_t D = 8, draws = 400000;
  const Points p = points(D);
  const double sm = std::exp(dot(p.x, p.y));
  const Tensor W = draw_gaussian(Generator(11), draws, D);
  for (const auto& [estimator, name] : estimators) {
    const Values all = estimates(estimator, W, p.x, p.y, 1);
    const Moments mean = moments(all);
    f.expect(std::abs(mean.mean - sm) <= 4 * mean.error, name, ": expected a mean of ", sm,
             " over ", draws, " estimates, got ", mean.mean, " +- ", mean.error);
    const double found = squared_errors(all, sm).mean,
                 expected = analysis::softmax_variance(estimator, p.x, p.y);
    f.measured(name, " mean/kernel ", mean.mean / sm, " error/formula ", found / expected);
    f.expect(std::abs(found / expected - 1) <= 0.05, name, ": expected the mean squared error ",
             expected, ", got ", found);
  }
}

using Draw = Tensor (*)(const Generator&, int64_t, int64_t, RowNorm);

// LAPACK's Q without correction by the signs of R's diagonal is not Haar-distributed: its estimates
// are biased by up to a third.
void unbiased(Findings& f, const char* how, Draw draw) {
  for (const int64_t D : {2, 4, 16}) {
    const int64_t rows = 240000 / D * D;
    const Tensor W = draw(Generator(12), rows, D, RowNorm::chi);
    Values first(D, 0.0), even(D, 1 / std::sqrt(static_cast<double>(D)));
    first[0] = 1;
    for (const Values& z : {first, even}) {
      // E e^(w·z - |z|²/2) = 1, for rows at every position in a block.
      const Values zero(D, 0.0);
      const Values all = estimates(Estimator::positive, W, z, zero, 1);
      for (const int64_t place : {int64_t{0}, D - 1}) {
        Values some;
        for (size_t l = place; l < all.size(); l += D) some.push_back(all[l]);
        const Moments m = moments(some);
        f.expect(std::abs(m.mean - 1) <= 4 * m.error, how, " draws, D = ", D, ", row ", place,
                 " of a block: expected a mean of 1 times the kernel, got ", m.mean, " +- ",
                 m.error);
      }
      const Moments m = moments(all);
      f.measured(how, " D=", D, " ", m.mean, "+-", m.error);
    }
  }
}

void orthogonal_unbiased(Findings& f) { unbiased(f, "orthogonal", draw_orthogonal); }
void givens_unbiased(Findings& f) { unbiased(f, "givens", draw_givens); }

void orthogonal_better(Findings& f) {
  const int64_t D = 8, rows = 400000;
  const Points p = points(D);
  const double sm = std::exp(dot(p.x, p.y));
  const Tensor W = draw_orthogonal(Generator(13), rows, D);
  for (const auto& [estimator, name] : std::span(estimators).first(2)) {
    const Moments found = squared_errors(estimates(estimator, W, p.x, p.y, D), sm);
    const double m = static_cast<double>(D),
                 iid = analysis::softmax_variance(estimator, p.x, p.y) / m;
    const double low = std::exp(-(dot(p.x, p.x) + dot(p.y, p.y)) / 2);
    // Theorem 2 of the paper, for positive features.
    const double bound = iid - 2 * (m - 1) / (m * (m + 2)) * (sm - low) * (sm - low);
    f.measured(name, ": orthogonal ", found.mean, ", independent ", iid);
    f.expect(found.mean + 4 * found.error < iid, name, ": expected an error below ", iid,
             ", that of independent rows, got ", found.mean);
    if (estimator == Estimator::positive)
      f.expect(found.mean <= bound + 4 * found.error, "expected an error of at most ", bound,
               ", the bound of theorem 2, got ", found.mean);
  }
  const double half = analysis::softmax_variance(Estimator::positive, p.x, p.y) / 2;
  f.expect(analysis::softmax_variance(Estimator::hyperbolic, p.x, p.y) <= half,
           "hyperbolic features have more than half the error of positive ones");
}

// Returns the largest difference between the empirical and the given cumulative distribution.
double kolmogorov_smirnov(Values samples, double (*cumulative)(double)) {
  std::sort(samples.begin(), samples.end());
  double worst = 0;
  const auto n = static_cast<double>(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const double c = cumulative(samples[i]);
    worst = std::max({worst, std::abs(c - static_cast<double>(i) / n),
                      std::abs(c - static_cast<double>(i + 1) / n)});
  }
  return worst;
}

// The distribution of |w|²: chi-squared with 4 degrees of freedom.
double chi_squared_4(double x) { return 1 - std::exp(-x / 2) * (1 + x / 2); }
double standard_normal(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

void optimal_better(Findings& f) {
  const int64_t D = 8, draws = 400000;
  const Tensor W = draw_gaussian(Generator(15), draws, D);
  for (const double scale : {1.0, 1.6}) {
    Points p = points(D);
    Values z(D);
    for (int64_t d = 0; d < D; ++d) {
      p.x[d] *= scale, p.y[d] *= scale;
      z[d] = p.x[d] + p.y[d];
    }
    const double n = static_cast<double>(D), sm = std::exp(dot(p.x, p.y)),
                 norms = dot(p.x, p.x) + dot(p.y, p.y), zz = dot(z, z),
                 A = optimal_coefficient(D, zz);
    Values estimates;
    for (int64_t l = 0; l < draws; ++l) {
      const double* const w = W.data<double>() + l * D;
      const Values row(w, w + D);
      estimates.push_back(std::exp(2 * A * dot(row, row) + std::sqrt(1 - 4 * A) * dot(row, z) +
                                   n / 2 * std::log1p(-4 * A) - norms / 2));
    }
    const Moments m = moments(estimates);
    const auto variance = [&](double a) {
      return std::exp(n * std::log1p(-4 * a) - n / 2 * std::log1p(-8 * a) +
                      2 * (1 - 4 * a) / (1 - 8 * a) * zz - norms) -
             sm * sm;
    };
    const double formula = variance(A),
                 positive = analysis::softmax_variance(Estimator::positive, p.x, p.y);
    f.measured("|x + y|² = ", zz, ": A = ", A, ", mean/kernel ", m.mean / sm, ", variance ",
               m.variance, ", formula ", formula, ", positive ", positive);
    f.expect(std::abs(m.mean - sm) <= 4 * m.error, "expected a mean of ", sm, ", got ", m.mean,
             " +- ", m.error);
    f.expect(std::abs(m.variance / formula - 1) <= 0.05, "expected the variance ", formula,
             ", got ", m.variance);
    f.expect(formula < 0.9 * positive, "expected a variance well below that of positive, ",
             positive, ", got ", formula);
    // The derivative at A is 0.
    for (const double other : {A - 0.01, A + 0.01})
      f.expect(formula < variance(other), "A = ", other, " has a smaller variance than A = ", A);
  }
}

void row_distribution(Findings& f) {
  const int64_t D = 4, rows = 8000;
  const double most = 2 / std::sqrt(static_cast<double>(rows));  // exceeded by chance in 1 of 1500
  for (const auto& [how, draw] : {std::pair<const char*, Draw>{"orthogonal", draw_orthogonal},
                                  {"givens", draw_givens},
                                  {"iid", draw_gaussian}}) {
    const Tensor W = draw(Generator(14), rows, D, RowNorm::chi);
    const double* w = W.data<double>();
    Values squares, entries, between;
    double within = 0;
    for (int64_t l = 0; l < rows; ++l) {
      const Values row(w + l * D, w + (l + 1) * D);
      squares.push_back(dot(row, row));
      entries.push_back(row[l % D]);
      for (int64_t other = l + 1; other < std::min(rows, (l / D + 1) * D); ++other) {
        const Values second(w + other * D, w + (other + 1) * D);
        within = std::max(
            within, std::abs(dot(row, second)) / std::sqrt(dot(row, row) * dot(second, second)));
      }
      if (l + D < rows) between.push_back(dot(row, Values(w + (l + D) * D, w + (l + D + 1) * D)));
    }
    const double norms = kolmogorov_smirnov(squares, chi_squared_4);
    const double normal = kolmogorov_smirnov(entries, standard_normal);
    f.measured(how, ": norms ", norms, ", entries ", normal);
    f.expect(norms <= most, how, " rows: |w|² is not chi-squared: expected a distance of at most ",
             most, ", got ", norms);
    f.expect(normal <= most, how, " rows: entries are not normal: expected a distance of at most ",
             most, ", got ", normal);
    if (draw != draw_gaussian)
      f.expect(within <= 1e-12, how, " rows of a block: expected a cosine of 0, got ", within);
    const Moments b = moments(between);
    f.expect(std::abs(b.mean) <= 4 * b.error, how,
             " rows of neighbouring blocks: expected a mean product of 0, got ", b.mean, " +- ",
             b.error);
  }
  const Tensor W = draw_orthogonal(Generator(15), 64, D, RowNorm::sqrt_d);
  for (int64_t l = 0; l < 64; ++l) {
    const double square = analysis::square_norm(W.select(0, l));
    f.expect(std::abs(square - 4) <= 1e-12, "with norm = sqrt_d: expected |w|² = D = 4, got ",
             square);
  }
}

// Redrawn features have the same distribution as before, and are independent of the earlier ones.
void redraws(Findings& f) {
  const int64_t D = 4, m = 64, draws = 60;
  const auto variant =
      make_variant("performer", {{"features", m}, {"redraw_interval", 1}}, {.heads = 1, .dim = D});
  Values entries, products;
  Tensor last;
  for (int64_t i = 0; i < draws; ++i) {
    const Tensor W = variant->state_dict().at("features").clone();
    const Values w = W.to_vector<double>();
    entries.insert(entries.end(), w.begin(), w.end());
    if (last.defined()) {
      const Values before = last.to_vector<double>();
      for (size_t j = 0; j < w.size(); ++j) products.push_back(w[j] * before[j]);
    }
    last = W;
    variant->after_step();
  }
  const double normal = kolmogorov_smirnov(entries, standard_normal);
  f.expect(normal <= 2 / std::sqrt(static_cast<double>(entries.size())),
           "entries of redrawn features are not normal: distance ", normal);
  const Moments p = moments(products);
  f.expect(std::abs(p.mean) <= 4 * p.error,
           "draws depend on earlier ones: expected a mean product of 0, got ", p.mean, " +- ",
           p.error);
}

// ---- attention ----------------------------------------------------------------------------------

void positive_rate(Findings& f) { rate(f, "performer", {{"draw", "iid"}}); }
void orthogonal_rate(Findings& f) { rate(f, "performer", {{"kernel", "hyperbolic"}}); }

// With channels of q multiplied by a factor and those of k divided by it, q·k and softmax attention
// stay the same, but the norms grow. Balanced channels undo that.
void balanced_better(Findings& f) {
  const Case even = small_case(0.5, 31);
  Case skewed = even;
  const int64_t D = even.q.size(3);
  skewed.q = even.q.clone(), skewed.k = even.k.clone();
  for (int64_t i = 0; i < even.q.numel(); ++i) {
    const double factor = i % D % 2 == 0 ? 3 : 1.0 / 3;
    skewed.q.data<double>()[i] *= factor;
    skewed.k.data<double>()[i] /= factor;
  }
  for (const char* kernel : {"positive", "optimal"}) {
    const auto error = [&](const Case& c, bool balance) {
      return attention_error("performer", {{"kernel", kernel}, {"balance", balance}}, 64, c);
    };
    const double plain = error(skewed, false), balanced = error(skewed, true),
                 before = error(even, true);
    f.measured(kernel, ": error ", balanced, " with balanced channels, ", plain, " without");
    f.expect(balanced < 0.7 * plain, kernel, ": expected balanced channels to lower the error of ",
             plain, ", got ", balanced);
    f.expect(std::abs(balanced - before) <= 1e-9 * before, kernel, ": expected the error ", before,
             " of balanced channels for any factors, got ", balanced);
  }
}

// A softmax over estimates of the kernel, as in some texts, estimates something else: its error
// does not decrease with the number of features.
void softmax_of_features(Findings& f) {
  const Case c = small_case(0.25, 21);
  const int64_t N = c.q.size(1), D = c.q.size(3);
  const auto rows = [&](const Tensor& x) {
    return affine(Variable(x.contiguous().reshape({N, D})), std::pow(static_cast<double>(D), -0.25))
        .value();
  };
  const auto error = [&](int64_t m) {
    const Tensor W = draw_orthogonal(Generator(31), m, D);
    const Variable fq(softmax_features(Estimator::positive, rows(c.q), W));
    const Variable fk(softmax_features(Estimator::positive, rows(c.k), W));
    const Variable out =
        matmul(softmax(matmul(fq, transpose(fk, 0, 1), 1 / std::sqrt(static_cast<double>(D)))),
               Variable(c.v.contiguous().reshape({N, D})));
    return relative_error(out.value().reshape(c.exact.shape()), c.exact);
  };
  const double few = error(16), many = error(4096),
               ours = attention_error("performer", {}, 4096, c);
  f.measured("softmax of features: ", few, " at 16 features, ", many, " at 4096; performer ", ours);
  f.expect(many > 0.5 * few && many > 3 * ours,
           "a softmax of features is a good estimate, so this check distinguishes nothing");
}

// Reference implementations add eps to features that underflow, so attention is uniform from 2
// N(0, 1) on.
void no_collapse(Findings& f) {
  const int64_t N = 128, D = 64;
  for (const double std : {1.0, 2.0, 3.0}) {
    const Case c = small_case(std, 41, N, D);
    const auto narrow = make_variant("performer", {{"features", 256}},
                                     {.heads = 1, .dim = D, .max_length = N, .dtype = DType::f32});
    const auto down = [](const Tensor& t) { return t.to(DType::f32); };
    const Tensor out = forward(*narrow, down(c.q), down(c.k), down(c.v)).to(DType::f64);
    f.context(concat_message("q and k of ", std, " N(0, 1)"));
    if (!f.expect(all_finite(out), "the result is not finite")) continue;
    const double from_uniform = relative_error(out, c.uniform);
    f.measured("at ", std, ": from uniform ", from_uniform, ", from exact ",
               relative_error(out, c.exact));
    f.expect(from_uniform >= 0.5,
             "expected a distance of at least 0.5 from uniform attention, got ", from_uniform);
  }
}

}  // namespace

std::vector<Evidence> performer_evidence() {
  return {{"closed-forms",
           "4 estimators: unbiased, with the mean squared errors of their formulas within 5 %",
           closed_forms},
          {"orthogonal-unbiased", "orthogonal draws are Haar: every row is unbiased",
           orthogonal_unbiased},
          {"givens-unbiased", "draws by Givens rotations: every row is unbiased", givens_unbiased},
          {"orthogonal-better",
           "orthogonal rows have smaller errors than independent ones, within the bound",
           orthogonal_better},
          {"optimal-better",
           "optimal features: unbiased, with a smaller variance than positive ones, that of its "
           "formula",
           optimal_better},
          {"balanced-better",
           "where queries are large and keys small, or the reverse, balanced channels have "
           "smaller errors",
           balanced_better},
          {"row-distribution",
           "norms chi, entries normal; orthogonal within a block, independent between blocks",
           row_distribution},
          {"redraws", "redrawn features are normal and independent of earlier ones", redraws},
          {"positive-rate", "the error decreases as m^-0.5: positive features, independent rows",
           positive_rate},
          {"orthogonal-rate", "the same for hyperbolic features, orthogonal rows", orthogonal_rate},
          {"softmax-of-features",
           "a softmax over features, as published in some texts, does not converge",
           softmax_of_features},
          {"no-collapse", "q and k up to 3 N(0, 1): results are finite and not uniform attention",
           no_collapse}};
}

}  // namespace longhand::attention::conformance
