// The invariants: properties of every variant, whatever it computes.
#include <algorithm>
#include <limits>
#include <numbers>

#include "longhand/attention/conformance/tools.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/gradcheck.h"
#include "longhand/core/layouts.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand::attention::conformance {
namespace {

// A training pass, so that dropout is active; the same pass drops the same elements.
const nn::Pass training_pass{.training = true, .random = Generator(5)};

// Lengths of a batch: full, partial, one token, none.
const std::vector<int32_t> some_lengths{13, 6, 1, 0, 3};

void same(Findings& f, const std::string& what, const Tensor& a, const Tensor& b) {
  f.expect(identical(a, b), what, ": expected the same bits, got a difference of ", distance(a, b));
}

void each_same(Findings& f, const std::string& what, const Outcome& a, const Outcome& b) {
  for (size_t i = 0; i < Outcome::names.size(); ++i)
    same(f, concat_message(what, ": ", Outcome::names[i]), a.tensors()[i], b.tensors()[i]);
  f.expect(a.parameters.size() == b.parameters.size(), what,
           ": expected gradients of the same parameters");
  for (const auto& [name, gradient] : a.parameters)
    same(f, what + ": the gradient of " + name, gradient, b.parameters.at(name));
}

// The first tokens of one sequence, as a batch of one.
auto one_of(int64_t b, int64_t length) {
  return [=](const Tensor& x) { return one(x, b, length); };
}

Tensor in_f64(const Tensor& x) { return x.to(DType::f64); }

// Every layout for q, k, v and the gradient of the result, first the same for all, then a different
// one for each. 67 tokens are more than one tile of any kind.
void shapes(const Subject& s, Findings& f) {
  const int64_t B = 2, H = 2, D = 4;
  const auto layouts = all_layouts();
  for (const int64_t N : {1, 7, 67}) {
    const auto variant = s.make({.max_length = 67});
    const Sample x = sample({B, N, H, D});
    for (size_t round = 0; round < 2 * layouts.size(); ++round) {
      const auto laid_out = [&](const Tensor& t, size_t i) {
        return with_layout(t,
                           layouts[(round < layouts.size() ? round : round + i) % layouts.size()]);
      };
      const Sample y{laid_out(x.q, 0), laid_out(x.k, 5), laid_out(x.v, 7),
                     laid_out(x.cotangent, 3)};
      f.context(
          concat_message(N, " tokens, layout ", to_string(layouts[round % layouts.size()]),
                         round < layouts.size() ? " of all" : " of q, other layouts of k and v"));
      const Outcome strided = run(*variant, y);
      f.expect(strided.out.shape() == Shape{B, N, H, D}, "expected a result of shape ",
               Shape{B, N, H, D}, ", got ", strided.out.shape());
      f.expect(strided.out.is_contiguous(), "the result is not contiguous");
      each_near(f, "strided and contiguous inputs", strided,
                run(*variant, y.each([](const Tensor& t) { return t.contiguous(); })), 1e-10);
    }
  }
}

void padding(const Subject& s, Findings& f) {
  const auto variant = s.make();
  const auto& n = some_lengths;
  const auto B = static_cast<int64_t>(n.size()), N = int64_t{13};
  const Sample x = sample({B, N, 2, 4});
  const Mask mask = lengths(n);
  const auto filled = [&](double value) {
    return run(*variant, x.each([&](const Tensor& t) { return with_padding(t, mask, value); }),
               mask);
  };
  const Outcome zeros = filled(0);
  for (const double value : {1e9, -1e9, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()})
    each_same(f, concat_message("padding of ", value, " instead of 0"), filled(value), zeros);
  // Each sample alone and without its padding has the same result, gradients, and contribution to
  // the gradients of parameters.
  std::map<std::string, Tensor> sums;
  for (int64_t b = 0; b < B; ++b) {
    f.context(concat_message("a sample of ", n[b], " tokens padded to 13"));
    for (const Tensor& t : zeros.tensors())
      if (n[b] < N)
        f.expect(all_zero(t.slice(0, b, b + 1).slice(1, n[b], N)),
                 "the result or a gradient at padding is not 0");
    if (n[b] == 0) continue;
    const auto cut = one_of(b, n[b]);
    const Outcome alone = run(*variant, x.each(cut));
    each_near(f, "compared with the sample alone, without padding", zeros.each(cut), alone, 1e-11);
    for (const auto& [name, gradient] : alone.parameters) {
      Tensor& sum = sums[name];
      sum = sum.defined() ? (Variable(sum) + Variable(gradient)).value() : gradient;
    }
  }
  f.context("");
  for (const auto& [name, gradient] : sums)
    near(f, "the gradient of " + name + " in a padded batch", zeros.parameters.at(name), gradient,
         1e-11);
  // A padded sample alone and in a batch. 16 tokens divide into equal parts, 13 do not.
  const Sample w = sample({B, 16, 2, 4});
  const Outcome together = run(*variant, w, mask);
  for (int64_t b = 0; b < B; ++b) {
    const auto alone = one_of(b, 16);
    each_near(f, concat_message("a padded sample of ", n[b], " tokens, in a batch and alone"),
              together.each(alone), run(*variant, w.each(alone), lengths({n[b]})), 1e-11);
  }
  // Lengths with any strides are read correctly.
  for (const Layout layout : all_layouts()) {
    const Mask strided{.lengths = with_layout(mask.lengths, layout)};
    each_same(f, "lengths in layout " + to_string(layout) + " and contiguous",
              run(*variant, x, strided, training_pass),
              run(*variant, x, {.lengths = strided.lengths.contiguous()}, training_pass));
  }
  // Lengths without padding are the same as no lengths.
  const Sample y = sample({2, 9, 2, 4});
  each_same(f, "full lengths and no lengths", run(*variant, y, lengths({9, 9})), run(*variant, y));
}

void batch(const Subject& s, Findings& f) {
  const auto variant = s.make();
  // The last of three samples, whose norms are the same, or much larger or smaller than the others:
  // this detects constants shared by the batch.
  struct Case {
    const char* what;
    double own, others, tolerance;
  };
  for (const Case& c : {Case{"a sample in a batch and alone", 1, 1, 1e-12},
                        Case{"a sample in a batch of large ones and alone", 1, 20, 1e-12},
                        Case{"a large sample in a batch of small ones and alone", 100, 1, 1e-9}}) {
    Sample x = sample({3, 11, 2, 4});
    for (Tensor* t : {&x.q, &x.k})
      for (int64_t i = 0; i < t->numel(); ++i)
        t->data<double>()[i] *= i < 2 * 11 * 8 ? c.others : c.own;
    const auto last = one_of(2, 11);
    each_near(f, c.what, run(*variant, x).each(last), run(*variant, x.each(last)), c.tolerance);
  }
}

void nothing_to_attend(const Subject& s, Findings& f) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto variant = s.make({.dtype = dtype});
    const Sample x = sample({2, 9, 2, 4}, dtype);
    for (const std::vector<int32_t>& n : {std::vector{0, 0}, {0, 9}, {2, 0}}) {
      f.context(concat_message("lengths ", n[0], " and ", n[1]));
      const Outcome o = run(*variant, x, lengths(n));
      for (const Tensor& t : o.tensors()) {
        f.expect(all_finite(t), "the result or a gradient is not finite");
        for (int64_t b = 0; b < 2; ++b)
          if (n[b] == 0)
            f.expect(all_zero(t.slice(0, b, b + 1)), "an empty sequence does not give 0");
      }
      for (const auto& [name, gradient] : o.parameters)
        f.expect(all_finite(gradient), "the gradient of ", name, " is not finite");
    }
    if (!variant->capabilities().any_mask) continue;
    f.context("a query that keeps no key");
    Tensor keep = Tensor::full({9, 9}, 1, DType::u8);
    keep.slice(0, 4, 5).fill(0);
    const Outcome o = run(*variant, x, {.keep = keep});
    f.expect(all_zero(o.out.slice(1, 4, 5)) && all_zero(o.dq.slice(1, 4, 5)),
             "the result or its gradient is not 0");
    for (const Tensor& t : o.tensors()) f.expect(all_finite(t), "something is not finite");
  }
}

void causality(const Subject& s, Findings& f) {
  if (!s.causal) {
    const Capabilities can = s.capabilities();
    if (can.causal) return;
    f.expect(!can.causal_reason.empty(), "expected a causal_reason, as it cannot be causal");
    f.expect_throws<ConfigError>([&] { Subject{s.name, s.options, true}.make(); }, "being causal");
    return;
  }
  const int64_t N = 150;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto variant = s.make({.max_length = N, .dtype = dtype});
    const Sample x = sample({1, N, 2, 4}, dtype);
    const Outcome before = run(*variant, x);
    for (const int64_t j : {1, 63, 64, 65, 100, 128, 149}) {
      f.context(concat_message("if token ", j, " of ", dtype, " changes"));
      // Large changes, which move every maximum and sum over them.
      Sample y = x.each([](const Tensor& t) { return t.clone(); });
      for (Tensor* t : {&y.q, &y.k, &y.v})
        copy_into(t->slice(1, j, j + 1), normal({1, 1, 2, 4}, 77, dtype, 6));
      Outcome after = run(*variant, y);
      same(f, "the results before it", after.out.slice(1, 0, j).contiguous(),
           before.out.slice(1, 0, j).contiguous());
      f.expect(distance(after.out.slice(1, j, N), before.out.slice(1, j, N)) > 1e-3,
               "the results from it on do not change");
      // Gradients of the rows before j do not reach tokens from j on.
      y.cotangent.slice(1, j, N).fill(0);
      after = run(*variant, y);
      for (const Tensor* t : {&after.dq, &after.dk, &after.dv})
        f.expect(all_zero(t->slice(1, j, N)),
                 "results before it give gradients to tokens from it on");
      f.expect(!all_zero(after.dv.slice(1, 0, j)), "tokens before it get no gradient");
      // Finite values of any size: 0 times them is 0. Infinite values would give NaN.
      y = {x.q, x.k, x.v.clone(), x.cotangent};
      y.v.slice(1, j, j + 1).fill(dtype == DType::f32 ? 1e30 : 1e300);
      same(f, "the results before a huge value",
           forward(*variant, y.q, y.k, y.v).slice(1, 0, j).contiguous(),
           before.out.slice(1, 0, j).contiguous());
    }
  }
}

void prefixes(const Subject& s, Findings& f) {
  if (!s.causal || s.capabilities().causal_only) return;
  const int64_t N = 131;
  const auto causal = s.make({.max_length = N});
  const auto full = Subject{s.name, s.options, false}.make({.max_length = N});
  full->load_state_dict(causal->state_dict());
  const Sample x = sample({2, N, 2, 4});
  const Tensor all = forward(*causal, x);
  for (const int64_t n : {1, 2, 63, 64, 65, 127, 128, 129, 131}) {
    const Tensor out = forward(*full, x.each([&](const Tensor& t) { return t.slice(1, 0, n); }));
    near(f, concat_message("row ", n - 1, " and the last row of the non-causal prefix"),
         all.slice(1, n - 1, n), out.slice(1, n - 1, n), 1e-10);
  }
}

void permutation(const Subject& s, Findings& f) {
  if (s.causal || s.capabilities().positional) return;
  const int64_t N = 12;
  const auto variant = s.make();
  const Sample x = sample({1, N, 2, 4});
  const auto shuffled = [&](const Tensor& t) {
    Tensor out = t.clone();
    for (int64_t i = 0; i < N; ++i)
      copy_into(out.slice(1, i, i + 1), t.slice(1, (5 * i + 3) % N, (5 * i + 3) % N + 1));
    return out;
  };
  each_near(f, "tokens in another order", run(*variant, x.each(shuffled)),
            run(*variant, x).each(shuffled), 1e-11);
}

void values(const Subject& s, Findings& f) {
  const auto variant = s.make();
  const Sample x = sample({2, 13, 2, 4});
  const Tensor w = normal({2, 13, 2, 4}, 50);
  const Mask mask = lengths({13, 8});
  const auto out = [&](const Variable& v) {
    return variant->forward(inputs_of(*variant, Variable(x.q), Variable(x.k), v), mask, {});
  };
  const NoGrad no_grad;
  if (variant->capabilities().linear)
    near(f, "the result for 2 v - w / 2 and the results for v and w",
         out(2 * Variable(x.v) - 0.5 * Variable(w)).value(),
         (2 * out(Variable(x.v)) - 0.5 * out(Variable(w))).value(), 1e-11);
  if (!variant->capabilities().averages) return;
  const Tensor ones = out(Variable(Tensor::full({2, 13, 2, 4}, 1, DType::f64))).value();
  for (const int64_t b : {0, 1})
    near(f, "the result for v = 1", one(ones, b, b ? 8 : 13),
         Tensor::full({1, b ? 8 : 13, 2, 4}, 1, DType::f64), 1e-12);
}

// Checks gradients of q, k and v by central differences.
void check_inputs(Findings& f, Variant& variant, const Sample& x, int64_t max_elements,
                  const Mask& mask = {}, const nn::Pass& pass = training_pass) {
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) {
        return variant.forward(inputs_of(variant, in[0], in[1], in[2]), mask, pass);
      },
      {x.q, x.k, x.v}, {.max_elements = max_elements});
  f.expect(report.ok, report);
}

// Checks gradients of parameters by central differences of <cotangent, result>.
void check_parameters(Findings& f, Variant& variant, const Sample& x, const Mask& mask) {
  run(variant, x, mask, training_pass);
  const auto c = x.cotangent.to_vector<double>();
  const auto value = [&] {
    return dot(forward(variant, x, mask, training_pass).to_vector<double>(), c);
  };
  for (auto& [name, parameter] : variant.named_parameters()) {
    if (!f.expect(parameter.grad().defined(), name, " gets no gradient")) continue;
    const auto analytic = parameter.grad().to_vector<double>();
    const auto count = static_cast<int64_t>(analytic.size());
    for (int64_t i = 0; i < count; i += std::max<int64_t>(1, count / 40)) {
      constexpr double step = 1e-5;
      double& element = parameter.mutable_value().data<double>()[i];
      const double before = element;
      element = before + step;
      const double above = value();
      element = before - step;
      const double numeric = (above - value()) / (2 * step);
      element = before;
      f.expect(std::abs(analytic[i] - numeric) <= 1e-7 + 1e-5 * std::abs(numeric), name,
               " element ", i, ": expected the gradient ", numeric, " by central differences, got ",
               analytic[i]);
    }
  }
}

void gradients(const Subject& s, Findings& f) {
  const auto variant = s.make({.dim = 3});
  for (const int64_t N : {1, 6, 9}) {
    const Mask mask =
        N == 6 ? Mask{} : lengths({static_cast<int32_t>(N), static_cast<int32_t>(N / 2)});
    const Sample x = sample({2, N, 2, 3});
    f.context(concat_message(N, " tokens"));
    check_inputs(f, *variant, x, 40, mask);
    check_parameters(f, *variant, x, mask);
  }
  if (!s.causal) return;
  // More than the first block of a scan.
  f.context("140 tokens");
  check_inputs(f, *s.make({.heads = 1, .dim = 3, .max_length = 140}), sample({1, 140, 1, 3}), 12);
}

void queries_and_keys(const Subject& s, Findings& f) {
  const auto variant = s.make();
  const Sample x = sample({2, 13, 2, 4});
  const Mask mask = lengths({13, 8});
  // Separate tokens, not the queries.
  const Variable tokens =
      variant->capabilities().uses_x ? Variable(normal({2, 13, 8}, 60)) : Variable();
  const auto without = [&] {
    return variant->forward({{}, {}, Variable(x.v), tokens}, mask, {}).value();
  };
  if (variant->capabilities().uses_queries_and_keys) {
    f.expect_throws<ShapeError>(without, "forward() with undefined q and k");
    if (variant->capabilities().uses_keys) return;
    const Tensor other = normal({2, 13, 2, 4}, 60);
    same(f, "the results for different keys, which are not read",
         forward(*variant, x.q, other, x.v, mask), forward(*variant, x, mask));
    return;
  }
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable out = variant->forward({q, k, v, tokens}, mask, {});
  backward(out, x.cotangent);
  for (const Variable& leaf : {q, k})
    f.expect(!leaf.grad().defined() || all_zero(leaf.grad()), "queries or keys get a gradient");
  same(f, "the results with queries and keys and without", without(), out.value());
}

void cross_lengths(const Subject& s, Findings& f) {
  const auto variant = s.make();
  const Sample x{normal({2, 3, 2, 4}, 1), normal({2, 9, 2, 4}, 2), normal({2, 9, 2, 4}, 3), {}};
  if (s.causal || !variant->capabilities().cross_lengths) {
    f.expect_throws<ShapeError>([&] { forward(*variant, x); },
                                "forward() with 3 queries and 9 keys");
    return;
  }
  check_inputs(f, *variant, x, 20, {}, {});
  if (variant->capabilities().positional || !variant->capabilities().separate_queries) return;
  near(f, "a query next to others and alone", forward(*variant, x).slice(1, 2, 3),
       forward(*variant, x.q.slice(1, 2, 3), x.k, x.v), 1e-12);
}

void thread_counts(const Subject& s, Findings& f) {
  const int64_t N = 200;
  const auto variant = s.make({.heads = 3, .dim = 16, .max_length = N, .dtype = DType::f32});
  const Sample x = sample({3, N, 3, 16}, DType::f32);
  const Mask mask = lengths({200, 77, 131});
  struct Restore {
    int before = threads();
    ~Restore() { set_threads(before); }
  } restore;
  set_threads(1);
  const Outcome first = run(*variant, x, mask);
  for (const int n : {2, 3, 4, 8}) {
    set_threads(n);
    each_same(f, concat_message("1 and ", n, " threads"), run(*variant, x, mask), first);
  }
}

// Returns max |a - b| / max |b| over one column of the values.
double column_error(const Tensor& a, const Tensor& b, int64_t column) {
  const auto x = a.select(3, column).to_vector<double>(),
             y = b.select(3, column).to_vector<double>();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(x[i] - y[i]) <= worst)) worst = std::abs(x[i] - y[i]);
    largest = std::max(largest, std::abs(y[i]));
  }
  // Values below the range of f32 are 0 in f32.
  return largest > std::numeric_limits<float>::min() ? worst / largest : worst;
}

// Adds 2 cos(π d n / N) to channel d of token n.
void add_waves(Tensor& x) {
  const int64_t N = x.size(1), D = x.size(3);
  for (int64_t i = 0; i < N * D; ++i)
    x.data<float>()[i] +=
        static_cast<float>(2 * std::cos(std::numbers::pi * static_cast<double>(i % D * (i / D)) /
                                        static_cast<double>(N)));
}

// One different token among equal ones, with the only nonzero value in column 0: this tests sums of
// equal terms, whose rounding errors all have the same sign, and one weight divided by such a sum.
// Landmarks of equal tokens would be equal, so tokens differ if queries are not separate: N(0, 1)
// around waves, so that means of many tokens differ too, and matrices of landmarks are well
// conditioned, since inverses multiply errors.
void long_sums(const Subject& s, Findings& f) {
  const int64_t D = 4;
  const double most = 1e-5;
  const Capabilities can = s.capabilities();
  // The longest that is still cheap: the error grows with the length.
  std::unique_ptr<Variant> wide;
  int64_t N = 0, queries = 0;
  for (const int64_t length : {1024, 4096, 16384, 65536}) {
    const int64_t rows = can.cross_lengths && !s.causal ? 16 : length;
    auto longer = s.make({.heads = 1, .dim = D, .max_length = length});
    const Work takes = longer->work(rows, length);
    const double operations = takes.forward.flops + 30 * takes.forward.exponentials;
    if (operations > 3e9 || takes.bytes > 1e8) break;
    wide = std::move(longer), N = length, queries = rows;
    if (wide->parameter_count() > 256 * N) break;  // parameters of pairs of tokens
  }
  if (!wide) return;
  const auto narrow = s.make({.heads = 1, .dim = D, .max_length = N, .dtype = DType::f32});
  wide->load_state_dict(narrow->state_dict());
  Tensor q = normal({1, queries, 1, D}, 1, DType::f32);
  Tensor k = Tensor::full({1, N, 1, D}, 0.2f, DType::f32);
  if (!can.separate_queries || can.signed_weights) k = normal({1, N, 1, D}, 2, DType::f32, 1);
  if (!can.separate_queries)
    for (Tensor* t : {&q, &k}) add_waves(*t);
  Tensor v = Tensor::full({1, N, 1, D}, 0.7f, DType::f32);
  v.select(3, 0).fill(0);
  for (Tensor* t : {&k, &v}) t->select(1, 1).fill(0.9f);
  const Tensor lo = forward(*narrow, q, k, v);
  const Tensor hi = forward(*wide, in_f64(q), in_f64(k), in_f64(v));
  double worst = 0;
  for (const int64_t column : {0, 1}) {
    // Over the last rows: in a single one, a signed weight may be near 0.
    const auto last = [&](const Tensor& t) { return s.causal ? t.slice(1, N - 16, N) : t; };
    const double error = column_error(last(lo), last(hi), column);
    f.expect(error <= most, N, " tokens: expected a difference of f32 and f64 of at most ", most,
             " in column ", column, ", got ", error);
    worst = std::max(worst, error);
  }
  f.measured("error ", worst, " for ", N, " tokens");
}

void precision(const Subject& s, Findings& f) {
  const int64_t most = 131;
  const auto narrow = s.make({.max_length = most, .dtype = DType::f32});
  const auto wide = s.make({.max_length = most});
  wide->load_state_dict(narrow->state_dict());
  for (const int64_t N : {1, 2, 7, 64, 65, 131}) {
    f.context(concat_message(N, " tokens"));
    const Sample x = sample({2, N, 2, 4}, DType::f32);
    const Mask mask = lengths({static_cast<int32_t>(N), static_cast<int32_t>((N + 1) / 2)});
    const Outcome lo = run(*narrow, x, mask), hi = run(*wide, x.each(in_f64), mask);
    f.expect(lo.out.dtype() == DType::f32, "expected a result of f32, got ", lo.out.dtype());
    for (size_t i = 0; i < Outcome::names.size(); ++i)
      near(f, concat_message(Outcome::names[i], " in f32 and f64"), lo.tensors()[i],
           hi.tensors()[i], i == 0 ? 4e-5 : 4e-4);
    for (const auto& [name, gradient] : lo.parameters)
      near(f, "the gradient of " + name + " in f32 and f64", gradient, hi.parameters.at(name),
           4e-4);
  }
}

// Clears the rows (B, N, H, .) of `b` that are 0 in `a`, and returns how many were not.
int64_t clear_vanished(const Tensor& a, Tensor& b) {
  const int64_t width = a.size(3);
  const auto x = a.to_vector<double>();
  double* row = b.data<double>();
  int64_t count = 0;
  for (auto begin = x.begin(); begin != x.end(); begin += width, row += width) {
    const auto is_zero = [](double value) { return value == 0; };
    if (!std::all_of(begin, begin + width, is_zero) || std::all_of(row, row + width, is_zero))
      continue;
    std::fill_n(row, width, 0.0);
    ++count;
  }
  return count;
}

void large_norms(const Subject& s, Findings& f) {
  // Scores with a standard deviation of up to 160,000 sqrt(D): exponents outside any dtype's range,
  // unless a maximum is subtracted. At D = 64, features of the softmax kernel underflow first.
  const int64_t N = 100, D = 64;
  const auto narrow = s.make({.heads = 1, .dim = D, .max_length = N, .dtype = DType::f32});
  const auto wide = s.make({.heads = 1, .dim = D, .max_length = N});
  wide->load_state_dict(narrow->state_dict());
  const auto finite = [&](const Outcome& o, const char* dtype) {
    f.expect(all_finite(o.out), "the result in ", dtype, " is not finite");
    f.expect(all_finite(o.dq) && all_finite(o.dk) && all_finite(o.dv), "a gradient in ", dtype,
             " is not finite");
  };
  for (const double std : {1.0, 3.0, 10.0, 40.0, 100.0, 400.0, -1.0}) {
    Sample x = sample({1, N, 1, D}, DType::f32, 1, std);
    f.context(concat_message("q and k of ", std, " N(0, 1)"));
    if (std < 0) {  // features such as elu(x) + 1 are all small there, and still count
      f.context("q and k of N(0, 1) - 20");
      for (Tensor* t : {&x.q, &x.k})
        for (int64_t i = 0; i < t->numel(); ++i) t->data<float>()[i] -= 20;
    }
    const Outcome lo = run(*narrow, x), hi = run(*wide, x.each(in_f64));
    finite(lo, "f32");
    finite(hi, "f64");
    if (std >= 10) finite(run(*narrow, x, lengths({7})), "f32, of 7 tokens and padding,");
    const bool counts = narrow->state_dict().contains("nonpositive_normalizers");
    Tensor expected = hi.out.contiguous().clone();
    const int64_t rows = clear_vanished(lo.out, expected);
    // A rounding error of f32 in an exponent changes its exponential, at 400 entirely.
    if (std <= (counts ? 40 : 3) && !s.capabilities().signed_weights)
      near(f, "the result in f32 and f64", lo.out, expected, 1e-2);
    if (rows == 0 || std > (counts ? 100 : 3) || (!counts && !s.capabilities().averages)) continue;
    if (!f.expect(counts, rows, " rows of f32 are 0, and nothing counts them")) continue;
    const auto counted = [&] {
      return narrow->state_dict().at("nonpositive_normalizers").to_vector<int64_t>()[0];
    };
    const int64_t first = counted();
    run(*narrow, x, {}, nn::Pass::train(Generator(1)));
    f.expect(counted() - first >= rows, rows, " rows of f32 are 0, but only ", counted() - first,
             " are counted");
    f.measured(rows, " of ", N, " rows of f32 vanish at ", std, " N(0, 1)");
  }
}

void decoding(const Subject& s, Findings& f) {
  const int64_t B = 2, N = 131, H = 2, D = 4;
  const auto variant = s.make({.max_length = N});
  if (!s.causal || !variant->capabilities().decodes) {
    f.expect_throws<ConfigError>([&] { variant->decoder(B); }, "decoder()");
    f.expect(variant->state_bytes(N) == 0, "expected state_bytes() to be 0 without a decoder");
    return;
  }
  const Sample x = sample({B, N, H, D});
  const Tensor all = forward(*variant, x);
  const auto decoder = variant->decoder(B);
  for (int64_t i = 0; i < N; ++i) {
    const auto token = [&](const Tensor& t) { return t.select(1, i); };
    near(f, concat_message("token ", i, ", decoded and in the whole sequence"),
         decoder->step(token_of(*variant, token(x.q), token(x.k), token(x.v))), token(all), 1e-10);
    if (i == 0 || i == 64 || i == N - 1)
      f.expect(decoder->bytes() == B * variant->state_bytes(i + 1), "after ", i + 1, " tokens of ",
               B, " sequences: expected ", B,
               " times state_bytes() = ", variant->state_bytes(i + 1), " bytes, got ",
               decoder->bytes());
  }
  // Enough tokens for operations to divide one sequence among several tasks.
  const Needs needs = variant->capabilities().needs;
  if (needs != Needs::state && needs != Needs::sums) return;
  constexpr int64_t many = 4100;
  const auto alone = s.make({.heads = 1, .max_length = many});
  const Sample y = sample({1, many, 1, D});
  const Tensor rows = forward(*alone, y);
  const auto state = alone->decoder(1);
  for (int64_t i = 0; i < many; ++i) {
    const auto token = [&](const Tensor& t) { return t.select(1, i); };
    const Tensor out = state->step(token_of(*alone, token(y.q), token(y.k), token(y.v)));
    if (i + 16 >= many)
      near(f, concat_message("token ", i, " of ", many, ", decoded and in the whole sequence"), out,
           token(rows), 1e-8);
  }
}

void groups(const Subject& s, Findings& f) {
  const int64_t B = 2, N = 9, H = 4, G = 2, D = 4;
  const auto grouped = s.make({.heads = H, .kv_heads = G});
  const auto all = s.make({.heads = H});
  const Tensor q = normal({B, N, H, D}, 1), k = normal({B, N, G, D}, 2),
               v = normal({B, N, G, D}, 3), cotangent = normal({B, N, H, D}, 4);
  const auto for_each_head = [&](const Tensor& x) {
    Tensor out = Tensor::empty({B, N, H, D}, DType::f64);
    for (int64_t h = 0; h < H; ++h) copy_into(out.select(2, h), x.select(2, h * G / H));
    return out;
  };
  const auto by_group = [&](const Tensor& x) {
    return sum(reshape(Variable(x), {B, N, G, H / G, D}), {3}).value();
  };
  const Mask mask = lengths({9, 5});
  const Outcome few = run(*grouped, {q, k, v, cotangent}, mask);
  Outcome many = run(*all, {q, for_each_head(k), for_each_head(v), cotangent}, mask);
  many.dk = by_group(many.dk);
  many.dv = by_group(many.dv);
  each_near(f, "2 key heads for 4 query heads, and the same keys repeated", few, many, 1e-11);
}

bool equal(const nn::StateDict& a, const nn::StateDict& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && identical(x.second, y.second);
  });
}

void state(const Subject& s, Findings& f) {
  const auto variant = s.make();
  const Sample x = sample({2, 13, 2, 4});
  // Passes, in training or not, redraw nothing (gradient accumulation has several); they may count
  // metrics.
  nn::StateDict before = variant->state_dict();
  for (auto& [name, tensor] : before) tensor = tensor.clone();
  const Tensor first = forward(*variant, x);
  f.expect(equal(before, variant->state_dict()), "a pass in evaluation changes the state");
  for (int i = 0; i < 3; ++i) run(*variant, x, {}, training_pass);
  const auto counted = variant->metrics();
  for (const auto& [name, tensor] : variant->state_dict())
    f.expect(counted.count(name) || identical(tensor, before.at(name)), "training passes change ",
             name);
  same(f, "the results before and after training passes", forward(*variant, x), first);
  same(f, "the same pass again", run(*variant, x, {}, training_pass).out,
       run(*variant, x, {}, training_pass).out);
  // The same seed gives the same variant, in both precisions.
  f.expect(equal(before, s.make()->state_dict()),
           "the same seed gives different parameters or buffers");
  const auto narrow = s.make({.dtype = DType::f32});
  for (const auto& [name, tensor] : narrow->state_dict())
    f.expect(identical(tensor, before.at(name).to(tensor.dtype())), name,
             " is initialised differently in f32 and f64");
  // A state saved after some steps continues identically in a variant of another seed. The 998
  // steps after 1003 include a multiple of 1000, but would not if steps were counted from the
  // resume.
  const auto step = [](Variant& v, int steps) {
    for (int i = 0; i < steps; ++i) v.after_step();
  };
  step(*variant, 1003);
  const auto resumed = s.make({.seed = 1234});
  resumed->load_state_dict(variant->state_dict());
  step(*variant, 998);
  step(*resumed, 998);
  f.expect(equal(variant->state_dict(), resumed->state_dict()),
           "the state continues differently after it was saved and loaded");
  same(f, "the results of the original and the resumed variant", forward(*resumed, x),
       forward(*variant, x));
  if (!variant->capabilities().random) {
    const auto other = s.make({.seed = 1234});
    other->load_state_dict(before);
    same(f, "the results for two seeds, of a variant that declares it is not random",
         forward(*other, x), first);
  }
}

void masks(const Subject& s, Findings& f) {
  const auto variant = s.make();
  const Sample x = sample({1, 6, 2, 4});
  const Mask keep{.keep = Tensor::full({6, 6}, 1, DType::u8)};
  const Mask bias{.bias = Variable(Tensor::zeros({6, 6}, DType::f64))};
  if (variant->capabilities().any_mask) {
    const Tensor plain = forward(*variant, x);
    near(f, "a keep of all keys and no mask", forward(*variant, x, keep), plain, 1e-12);
    near(f, "a bias of 0 and no bias", forward(*variant, x, bias), plain, 1e-12);
    if (!variant->capabilities().separate_queries) return;
    Tensor some = Tensor::full({6, 6}, 1, DType::u8);
    some.slice(1, 4, 6).fill(0);
    near(f, "a keep of the first keys, and the first keys alone",
         forward(*variant, x, {.keep = some}).slice(1, 0, 4),
         forward(*variant, x.each(one_of(0, 4))), 1e-11);
    return;
  }
  f.expect_throws<ConfigError>([&] { forward(*variant, x, keep); }, "Mask::keep");
  f.expect_throws<ConfigError>([&] { forward(*variant, x, bias); }, "Mask::bias");
}

// Probabilities are dropped, or the option dropout is refused: ignoring it would train a different
// model than the configuration specifies.
void dropout(const Subject& s, Findings& f) {
  const auto with = [&](double p) {
    Subject other = s;
    other.options.emplace_back("dropout", p);
    return other.make({.max_length = 64});
  };
  std::unique_ptr<Variant> variant;
  try {
    variant = with(0.5);
  } catch (const ConfigError&) {
    return;
  }
  f.expect_throws<ConfigError>([&] { with(1); }, "dropout = 1");
  const Sample x = sample({2, 64, 2, 4});
  const auto out = [&](bool training, uint64_t seed) {
    return forward(*variant, x, {}, {.training = training, .random = Generator(seed)});
  };
  const Tensor kept = forward(*s.make({.max_length = 64}), x);
  same(f, "the results in evaluation, with dropout and without", out(false, 1), kept);
  f.expect(distance(out(true, 1), kept) > 1e-3, "nothing is dropped in training");
  same(f, "the same pass again", out(true, 1), out(true, 1));
  f.expect(!identical(out(true, 1), out(true, 2)), "different passes drop the same elements");
  if (!variant->capabilities().linear) return;
  // E out = out without dropout: kept elements are divided by the probability of being kept.
  constexpr int draws = 400;
  Tensor mean = Tensor::zeros(kept.shape(), DType::f64);
  for (int i = 0; i < draws; ++i) {
    const Tensor one = out(true, 100 + i);
    for (int64_t j = 0; j < mean.numel(); ++j)
      mean.data<double>()[j] += one.data<double>()[j] / draws;
  }
  const double error = relative_error(mean, kept), single = relative_error(out(true, 1), kept);
  f.measured("the mean of ", draws, " passes differs by ", error, ", one pass by ", single);
  f.expect(error <= 1.3 * single / std::sqrt(draws), "the mean of ", draws,
           " passes differs from the result without dropout by ", error, ", one pass by ", single);
}

// Eckart and Young: no matrix of rank r is nearer to P than its r largest singular triplets.
void rank_oracle(const Subject& s, Findings& f) {
  const int64_t N = 40;
  const auto variant = s.make({.heads = 1, .dim = 4, .max_length = N});
  const int64_t rank = variant->rank(N);
  if (rank >= N || !variant->capabilities().linear) return;
  const Tensor q = normal({1, N, 1, 4}, 1, DType::f64, 1),
               k = normal({1, N, 1, 4}, 2, DType::f64, 1);
  const auto softmax = make_variant("softmax", {}, {.heads = 1, .max_length = N});
  const Tensor P = weights(*softmax, q, k), A = weights(*variant, q, k);
  const auto values = svd(P).s.to_vector<double>();
  const auto own = svd(A).s.to_vector<double>();
  double least = 0, error = 0;
  for (int64_t i = rank; i < N; ++i) {
    least += values[i] * values[i];
    f.expect(own[i] <= 1e-10 * own[0], "expected rank ", rank, ", got the singular value ", own[i],
             " at ", i + 1);
  }
  for (int64_t i = 0; i < N * N; ++i)
    error += std::pow(A.data<double>()[i] - P.data<double>()[i], 2);
  f.measured("rank ", rank, ": error ", std::sqrt(error), ", least possible ", std::sqrt(least));
  f.expect(error >= least * (1 - 1e-9), "expected an error of at least ", std::sqrt(least),
           ", that of the SVD of rank ", rank, ", got ", std::sqrt(error));
}

void exactness(const Subject& s, Findings& f) {
  const auto variant = s.make();
  if (!variant->capabilities().exact) return;
  const Sample x = sample({2, 13, 2, 4});
  const Mask mask = lengths({13, 8});
  Tensor expected = Tensor::zeros({2, 13, 2, 4}, DType::f64);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < (b ? 8 : 13); ++i)
      for (int64_t h = 0; h < 2; ++h) {
        double total = 0;
        std::vector<double> row(4, 0.0);
        for (int64_t j = 0; j < (b ? 8 : 13) && (!s.causal || j <= i); ++j) {
          double score = 0;
          for (int64_t d = 0; d < 4; ++d) score += x.q.at({b, i, h, d}) * x.k.at({b, j, h, d});
          const double w = std::exp(score / 2);
          total += w;
          for (int64_t d = 0; d < 4; ++d) row[d] += w * x.v.at({b, j, h, d});
        }
        for (int64_t d = 0; d < 4; ++d)
          expected.select(0, b).select(0, i).select(0, h).slice(0, d, d + 1).fill(row[d] / total);
      }
  near(f, "the result and softmax attention by plain loops", forward(*variant, x, mask), expected,
       1e-12);
}

void work(const Subject& s, Findings& f) {
  const auto variant = s.make({.max_length = 1024});
  const Work one = variant->work(256, 256), four = variant->work(1024, 1024);
  const auto grows = [&](const char* what, double few, double many) {
    f.expect(few >= 0, what, " are negative");
    f.expect(many >= few, what, " decrease with more tokens");
  };
  grows("forward flops", one.forward.flops, four.forward.flops);
  grows("backward flops", one.backward.flops, four.backward.flops);
  grows("forward exponentials", one.forward.exponentials, four.forward.exponentials);
  grows("backward exponentials", one.backward.exponentials, four.backward.exponentials);
  grows("bytes", one.bytes, four.bytes);
  f.measured(four.forward.flops, " flops, ", four.forward.exponentials, " exponentials and ",
             four.bytes, " bytes for 1,024 tokens");
}

}  // namespace

const std::vector<Check>& invariant_checks() {
  static const std::vector<Check> checks{
      {{"shapes", "inputs of any strides give the same result, which is contiguous"}, shapes},
      {{"padding", "U1, U2: the contents of padding, even NaN, change no bit and get no gradient"},
       padding},
      {{"batch", "U3: a sample does not depend on its batch"}, batch},
      {{"nothing-to-attend", "U4: a query that may attend to nothing gives 0, never NaN"},
       nothing_to_attend},
      {{"causality",
        "U5: later tokens, if finite, change no bit of earlier results and get no gradient from "
        "them; or causal use is refused, with a reason"},
       causality},
      {{"prefixes", "U5: a causal row is the last row of its prefix"}, prefixes},
      {{"permutation", "U6: without positions, the order of tokens does not matter"}, permutation},
      {{"values", "U7: linear in v; the average of equal values is that value"}, values},
      {{"gradients", "U8: of q, k, v and parameters, by central differences in f64"}, gradients},
      {{"queries-and-keys", "queries and keys get a gradient, or may be omitted"},
       queries_and_keys},
      {{"cross-lengths", "U9: different numbers of queries and keys work or are refused"},
       cross_lengths},
      {{"threads", "U10: 1, 2, 3, 4 and 8 threads give the same bits"}, thread_counts},
      {{"precision", "f32 agrees with f64, from 1 token to more than one block"}, precision},
      {{"long-sums",
        "f32 sums over equal tokens and one other, up to 65,536, are within 1e-5 of f64"},
       long_sums},
      {{"large-norms",
        "q and k up to 400 N(0, 1), D = 64: f32 and f64 are finite; rows that vanish are counted; "
        "up to 3 N(0, 1), f32 agrees with f64"},
       large_norms},
      {{"decoding", "decoding token by token gives the rows of the whole sequence"}, decoding},
      {{"groups", "key and value heads may be shared by groups of query heads"}, groups},
      {{"state", "passes draw nothing; a saved state continues with the same bits"}, state},
      {{"masks", "masks and biases of pairs are applied or refused"}, masks},
      {{"dropout", "probabilities are dropped in training, without bias; or the option is refused"},
       dropout},
      {{"rank-oracle", "no variant of rank r is nearer to softmax attention than the SVD"},
       rank_oracle},
      {{"exactness", "exact variants equal softmax attention by plain loops"}, exactness},
      {{"work", "flops, exponentials and bytes grow with the length"}, work},
  };
  return checks;
}

}  // namespace longhand::attention::conformance
