// What every variant promises, whatever it computes: loops over names(), so that a new variant is
// included by being registered.
#include <limits>
#include <set>

#include "longhand/core/parallel.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

// Before any test adds one of its own.
const std::vector<std::string> library = names();

// Every variant, and causal ones as such too.
void for_each_variant(const std::function<void(const std::string&, bool causal)>& f) {
  for (const std::string& name : library)
    for (const bool causal : {false, true}) {
      if (causal && !traits(name).causal) continue;
      DYNAMIC_SECTION(name << (causal ? " causal" : "")) { f(name, causal); }
    }
}

struct Inputs {
  Tensor q, k, v, cotangent;
};
Inputs inputs(const Shape& shape, DType dtype = DType::f64, uint64_t seed = 1) {
  return {normal(shape, seed, dtype), normal(shape, seed + 1, dtype),
          normal(shape, seed + 2, dtype, 1), normal(shape, seed + 3, dtype, 1)};
}

// A batch of every kind of length.
const std::vector<int32_t> some_lengths{13, 6, 1, 0, 3};

}  // namespace

TEST_CASE("variants: shapes, dense results, any strides") {
  for_each_variant([](const std::string& name, bool causal) {
    const int64_t B = 2, N = 7, H = 2, D = 4;
    const auto variant = make_variant(name, {.causal = causal});
    const Tensor fused = normal({B, N, 3, H, D}, 3);
    const Tensor cotangent = normal({B, N, H, D}, 4);
    const auto part = [&](int64_t i) { return fused.select(2, i); };
    const Outcome strided = run_variant(*variant, part(0), part(1), part(2), {}, cotangent);
    CHECK(strided.out.shape() == Shape{B, N, H, D});
    CHECK(strided.out.is_contiguous());
    const Outcome dense = run_variant(*variant, part(0).contiguous(), part(1).contiguous(),
                                      part(2).contiguous(), {}, cotangent);
    CHECK(near(strided.out, dense.out, 1e-12));
    CHECK(near(strided.dq, dense.dq, 1e-12));
    CHECK(near(strided.dk, dense.dk, 1e-12));
    CHECK(near(strided.dv, dense.dv, 1e-12));
    // Heads outside of tokens, the other way round in memory.
    const auto by_head = [&](int64_t i) {
      return part(i).permute({0, 2, 1, 3}).contiguous().permute({0, 2, 1, 3});
    };
    const Outcome turned = run_variant(*variant, by_head(0), by_head(1), by_head(2), {}, cotangent);
    CHECK(turned.out.is_contiguous());
    CHECK(near(turned.out, dense.out, 1e-12));
    CHECK(near(turned.dk, dense.dk, 1e-12));
  });
}

TEST_CASE("variants: gradients of q, k, v and parameters") {
  for_each_variant([](const std::string& name, bool causal) {
    const auto variant = make_variant(name, {.heads = 2, .dim = 3, .causal = causal});
    for (const bool padded : {false, true})
      for (const int64_t N : {1, 6, 9}) {
        const Mask mask =
            padded ? lengths({static_cast<int32_t>(N), static_cast<int32_t>(N / 2)}) : Mask{};
        const Inputs x = inputs({2, N, 2, 3});
        INFO("N " << N << " padded " << padded);
        const GradcheckReport report = gradcheck(
            [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
            {x.q, x.k, x.v});
        INFO(report);
        CHECK(report.ok);
        check_parameters(*variant, [&] {
          return variant->forward(Variable(x.q), Variable(x.k), Variable(x.v), mask, {});
        });
      }
  });
}

TEST_CASE("variants: padding changes nothing and gets no gradient") {
  for_each_variant([](const std::string& name, bool causal) {
    const auto variant = make_variant(name, {.causal = causal});
    const auto& n = some_lengths;
    const int64_t B = static_cast<int64_t>(n.size()), N = 13;
    const Inputs x = inputs({B, N, 2, 4});
    const Mask mask = lengths(n);
    const Outcome zeros =
        run_variant(*variant, with_padding(x.q, mask, 0), with_padding(x.k, mask, 0),
                    with_padding(x.v, mask, 0), mask, x.cotangent);
    for (const double value : {1e9, -1e9, std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity()}) {
      INFO("padding holds " << value);
      const Outcome filled =
          run_variant(*variant, with_padding(x.q, mask, value), with_padding(x.k, mask, value),
                      with_padding(x.v, mask, value), mask, with_padding(x.cotangent, mask, value));
      CHECK(identical(filled.out, zeros.out));
      CHECK(identical(filled.dq, zeros.dq));
      CHECK(identical(filled.dk, zeros.dk));
      CHECK(identical(filled.dv, zeros.dv));
      CHECK(filled.parameters.size() == zeros.parameters.size());
      for (const auto& [parameter, gradient] : filled.parameters)
        CHECK(identical(gradient, zeros.parameters.at(parameter)));
    }
    // Alone and cut to its length, each sample gives the same: result, gradients, and what it adds
    // to those of the parameters.
    std::map<std::string, Tensor> sums;
    for (int64_t b = 0; b < B; ++b) {
      INFO("sample " << b << " of length " << n[b]);
      for (const Tensor* t : {&zeros.out, &zeros.dq, &zeros.dk, &zeros.dv})
        if (n[b] < N) CHECK(all_zero(t->slice(0, b, b + 1).slice(1, n[b], N)));
      if (n[b] == 0) continue;
      const Outcome alone = run_variant(*variant, one(x.q, b, n[b]), one(x.k, b, n[b]),
                                        one(x.v, b, n[b]), {}, one(x.cotangent, b, n[b]));
      CHECK(near(one(zeros.out, b, n[b]), alone.out, 1e-11));
      CHECK(near(one(zeros.dq, b, n[b]), alone.dq, 1e-11));
      CHECK(near(one(zeros.dk, b, n[b]), alone.dk, 1e-11));
      CHECK(near(one(zeros.dv, b, n[b]), alone.dv, 1e-11));
      for (const auto& [parameter, gradient] : alone.parameters) {
        Tensor& sum = sums[parameter];
        if (!sum.defined()) sum = Tensor::zeros(gradient.shape(), DType::f64);
        for (int64_t i = 0; i < sum.numel(); ++i)
          sum.data<double>()[i] += gradient.data<double>()[i];
      }
    }
    CHECK(sums.size() == zeros.parameters.size());
    for (const auto& [parameter, gradient] : sums)
      CHECK(near(gradient, zeros.parameters.at(parameter), 1e-11));
  });
}

TEST_CASE("variants: a sample does not depend on its batch") {
  for_each_variant([](const std::string& name, bool causal) {
    const auto variant = make_variant(name, {.causal = causal});
    Inputs x = inputs({3, 11, 2, 4});
    const Outcome together = run_variant(*variant, x.q, x.k, x.v, {}, x.cotangent);
    // The others are much larger: constants shared by the batch would show.
    for (Tensor* t : {&x.q, &x.k})
      for (int64_t i = 0; i < 2 * 11 * 8; ++i) t->data<double>()[i] *= 20;
    const Outcome other = run_variant(*variant, x.q, x.k, x.v, {}, x.cotangent);
    CHECK(near(one(other.out, 2, 11), one(together.out, 2, 11), 1e-12));
    CHECK(near(one(other.dk, 2, 11), one(together.dk, 2, 11), 1e-12));
    const Outcome alone = run_variant(*variant, one(x.q, 2, 11), one(x.k, 2, 11), one(x.v, 2, 11),
                                      {}, one(x.cotangent, 2, 11));
    CHECK(near(one(together.out, 2, 11), alone.out, 1e-12));
    CHECK(near(one(together.dk, 2, 11), alone.dk, 1e-12));
  });
}

TEST_CASE("variants: empty sequences give exactly 0 and no NaN") {
  for_each_variant([](const std::string& name, bool causal) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto variant = make_variant(name, {.causal = causal, .dtype = dtype});
      const Inputs x = inputs({2, 9, 2, 4}, dtype);
      for (const Mask& mask : {lengths({0, 0}), lengths({0, 9}), lengths({2, 0})}) {
        const Outcome o = run_variant(*variant, x.q, x.k, x.v, mask, x.cotangent);
        const auto n = mask.lengths.to_vector<int32_t>();
        for (const Tensor* t : {&o.out, &o.dq, &o.dk, &o.dv}) {
          CHECK(all_finite(*t));
          for (int64_t b = 0; b < 2; ++b)
            if (n[b] == 0) CHECK(all_zero(t->slice(0, b, b + 1)));
        }
        for (const auto& [parameter, gradient] : o.parameters) {
          CHECK(all_finite(gradient));
          if (n[0] + n[1] == 0) CHECK(all_zero(gradient));
        }
      }
    }
  });
}

TEST_CASE("variants: causal ones do not see the future, in any bit") {
  for (const std::string& name : library) {
    if (!traits(name).causal) continue;
    DYNAMIC_SECTION(name) {
      const int64_t N = 150;
      for (const DType dtype : {DType::f32, DType::f64}) {
        const auto variant = make_variant(name, {.max_length = N, .causal = true, .dtype = dtype});
        const Inputs x = inputs({1, N, 2, 4}, dtype);
        const Outcome before = run_variant(*variant, x.q, x.k, x.v, {}, x.cotangent);
        for (const int64_t j : {1, 63, 64, 65, 100, 128, 149}) {
          INFO("token " << j << " changes, " << dtype);
          // Large changes, which move every maximum and sum that looks at them.
          Inputs y{x.q.clone(), x.k.clone(), x.v.clone(), x.cotangent.clone()};
          for (Tensor* t : {&y.q, &y.k, &y.v})
            copy_into(t->slice(1, j, j + 1), normal({1, 1, 2, 4}, 77, dtype, 6));
          Outcome after = run_variant(*variant, y.q, y.k, y.v, {}, y.cotangent);
          CHECK(identical(after.out.slice(1, 0, j).contiguous(),
                          before.out.slice(1, 0, j).contiguous()));
          CHECK_FALSE(near(after.out.slice(1, j, N), before.out.slice(1, j, N), 1e-3));
          // What rows before j give back reaches nothing from j on.
          y.cotangent.slice(1, j, N).fill(0);
          after = run_variant(*variant, y.q, y.k, y.v, {}, y.cotangent);
          for (const Tensor* t : {&after.dq, &after.dk, &after.dv}) {
            CHECK(all_zero(t->slice(1, j, N)));
            // A single key has weight 1, whatever it is; and some look at no content at all.
            if ((j > 1 && !all_zero(before.dk)) || t == &after.dv)
              CHECK_FALSE(all_zero(t->slice(1, 0, j)));
          }
        }
      }
    }
  }
}

TEST_CASE("variants: causal ones give each prefix its own result") {
  for (const std::string& name : library) {
    if (!traits(name).causal) continue;
    DYNAMIC_SECTION(name) {
      const int64_t N = 131;
      const auto causal = make_variant(name, {.max_length = N, .causal = true});
      const auto full = make_variant(name, {.max_length = N});
      const Inputs x = inputs({2, N, 2, 4});
      const Outcome all = run_variant(*causal, x.q, x.k, x.v, {}, x.cotangent);
      for (const int64_t n : {1, 2, 63, 64, 65, 127, 128, 129, 131}) {
        INFO("prefix of " << n);
        const auto prefix = [&](const Tensor& t) { return t.slice(1, 0, n); };
        const Variable out = full->forward(Variable(prefix(x.q)), Variable(prefix(x.k)),
                                           Variable(prefix(x.v)), {}, {});
        CHECK(near(all.out.slice(1, n - 1, n), out.value().slice(1, n - 1, n), 1e-11));
      }
    }
  }
}

TEST_CASE("variants: those that cannot be causal say why") {
  for (const std::string& name : library) {
    if (traits(name).causal) continue;
    INFO(name);
    CHECK_FALSE(traits(name).causal_reason.empty());
    CHECK_THROWS_WITH(make_variant(name, {.causal = true}),
                      Catch::Contains(name) && Catch::Contains("causal") &&
                          Catch::Contains(traits(name).causal_reason));
  }
}

TEST_CASE("variants: order of tokens does not matter where no position enters") {
  for (const std::string& name : library) {
    if (traits(name).positional) continue;
    DYNAMIC_SECTION(name) {
      const int64_t N = 12;
      const auto variant = make_variant(name);
      const Inputs x = inputs({1, N, 2, 4});
      std::vector<int64_t> order(N);
      for (int64_t i = 0; i < N; ++i) order[i] = (5 * i + 3) % N;
      const auto shuffled = [&](const Tensor& t) {
        Tensor out = t.clone();
        for (int64_t i = 0; i < N; ++i)
          copy_into(out.slice(1, i, i + 1), t.slice(1, order[i], order[i] + 1));
        return out;
      };
      const Outcome a = run_variant(*variant, x.q, x.k, x.v, {}, x.cotangent);
      const Outcome b = run_variant(*variant, shuffled(x.q), shuffled(x.k), shuffled(x.v), {},
                                    shuffled(x.cotangent));
      CHECK(near(b.out, shuffled(a.out), 1e-12));
      CHECK(near(b.dk, shuffled(a.dk), 1e-12));
    }
  }
}

TEST_CASE("variants: results are linear in v, and averages where weights sum to 1") {
  for_each_variant([](const std::string& name, bool causal) {
    const auto variant = make_variant(name, {.causal = causal});
    const Inputs x = inputs({2, 13, 2, 4});
    const Tensor w = normal({2, 13, 2, 4}, 50);
    const Mask mask = lengths({13, 8});
    const auto out = [&](const Variable& v) {
      return variant->forward(Variable(x.q), Variable(x.k), v, mask, {});
    };
    const Variable mixed = out(2 * Variable(x.v) - 0.5 * Variable(w));
    const Variable parts = 2 * out(Variable(x.v)) - 0.5 * out(Variable(w));
    CHECK(near(mixed.value(), parts.value(), 1e-11));
    if (!traits(name).averages) return;
    const Tensor ones = out(Variable(Tensor::full({2, 13, 2, 4}, 1, DType::f64))).value();
    CHECK(near(one(ones, 0, 13), Tensor::full({1, 13, 2, 4}, 1, DType::f64), 1e-12));
    CHECK(near(one(ones, 1, 8), Tensor::full({1, 8, 2, 4}, 1, DType::f64), 1e-12));
  });
}

TEST_CASE("variants: other numbers of keys than queries work or throw") {
  for (const std::string& name : library) {
    DYNAMIC_SECTION(name) {
      const auto variant = make_variant(name);
      const Tensor q = normal({2, 3, 2, 4}, 1), k = normal({2, 9, 2, 4}, 2),
                   v = normal({2, 9, 2, 4}, 3);
      if (!traits(name).cross_lengths) {
        CHECK_THROWS_AS(variant->forward(Variable(q), Variable(k), Variable(v), {}, {}),
                        ShapeError);
        continue;
      }
      const GradcheckReport report = gradcheck(
          [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], {}, {}); },
          {q, k, v});
      INFO(report);
      CHECK(report.ok);
      // A query does not know of the other queries, unless the weights of all are cut together.
      if (name == "svd") continue;
      const Tensor all = variant->forward(Variable(q), Variable(k), Variable(v), {}, {}).value();
      const Tensor last =
          variant->forward(Variable(q.slice(1, 2, 3)), Variable(k), Variable(v), {}, {}).value();
      CHECK(near(all.slice(1, 2, 3), last, 1e-12));
    }
  }
}

TEST_CASE("variants: the same bits on one thread and on three") {
  for_each_variant([](const std::string& name, bool causal) {
    const int64_t N = 200;
    const auto variant = make_variant(
        name, {.heads = 3, .dim = 16, .max_length = N, .causal = causal, .dtype = DType::f32});
    const Inputs x = inputs({3, N, 3, 16}, DType::f32);
    const Mask mask = lengths({200, 77, 131});
    const int before = threads();
    set_threads(1);
    const Outcome a = run_variant(*variant, x.q, x.k, x.v, mask, x.cotangent);
    set_threads(3);
    const Outcome b = run_variant(*variant, x.q, x.k, x.v, mask, x.cotangent);
    set_threads(before);
    CHECK(identical(a.out, b.out));
    CHECK(identical(a.dq, b.dq));
    CHECK(identical(a.dk, b.dk));
    CHECK(identical(a.dv, b.dv));
    for (const auto& [parameter, gradient] : a.parameters)
      CHECK(identical(gradient, b.parameters.at(parameter)));
  });
}

TEST_CASE("variants: f32 agrees with f64") {
  for_each_variant([](const std::string& name, bool causal) {
    const Made made{.max_length = 70, .causal = causal};
    Made narrow = made;
    narrow.dtype = DType::f32;
    const auto a = make_variant(name, narrow), b = make_variant(name, made);
    nn::StateDict state = a->state_dict();
    b->load_state_dict(state);
    const Inputs x = inputs({2, 70, 2, 4}, DType::f32);
    const Mask mask = lengths({70, 33});
    const Outcome lo = run_variant(*a, x.q, x.k, x.v, mask, x.cotangent);
    const Outcome hi = run_variant(*b, x.q.to(DType::f64), x.k.to(DType::f64), x.v.to(DType::f64),
                                   mask, x.cotangent.to(DType::f64));
    CHECK(lo.out.dtype() == DType::f32);
    CHECK(near(lo.out, hi.out, 2e-5));
    CHECK(near(lo.dq, hi.dq, 2e-4));
    CHECK(near(lo.dk, hi.dk, 2e-4));
    CHECK(near(lo.dv, hi.dv, 2e-4));
    for (const auto& [parameter, gradient] : lo.parameters)
      CHECK(near(gradient, hi.parameters.at(parameter), 2e-4));
  });
}

TEST_CASE("variants: full lengths are the same as none") {
  for_each_variant([](const std::string& name, bool causal) {
    const auto variant = make_variant(name, {.causal = causal});
    const Inputs x = inputs({2, 9, 2, 4});
    const Outcome a = run_variant(*variant, x.q, x.k, x.v, {}, x.cotangent);
    const Outcome b = run_variant(*variant, x.q, x.k, x.v, lengths({9, 9}), x.cotangent);
    CHECK(identical(a.out, b.out));
    CHECK(identical(a.dk, b.dk));
  });
}

TEST_CASE("variants: dropout is for those with probabilities") {
  const std::set<std::string> with_probabilities{"softmax", "linformer", "window", "random"};
  for (const std::string& name : library) {
    DYNAMIC_SECTION(name) {
      Options options = small_options(name);
      options.set("dropout", 0.5);
      if (!with_probabilities.count(name)) {
        CHECK_THROWS_WITH(make_variant(name, {}, options),
                          Catch::Contains(name + " has no attention probabilities to drop"));
        options.set("dropout", 0.0);
        CHECK_NOTHROW(make_variant(name, {}, options));
        continue;
      }
      const auto variant = make_variant(name, {.max_length = 64}, options);
      const Inputs x = inputs({2, 64, 2, 4});
      const auto out = [&](bool training, uint64_t seed) {
        const nn::Pass pass{training, Generator(seed)};
        return variant->forward(Variable(x.q), Variable(x.k), Variable(x.v), {}, pass).value();
      };
      const Tensor kept = make_variant(name, {.max_length = 64})
                              ->forward(Variable(x.q), Variable(x.k), Variable(x.v), {}, {})
                              .value();
      CHECK(identical(out(false, 1), kept));
      CHECK_FALSE(near(out(true, 1), kept, 1e-3));
      CHECK(identical(out(true, 1), out(true, 1)));
      CHECK_FALSE(identical(out(true, 1), out(true, 2)));
      options.set("dropout", 1.0);
      CHECK_THROWS_AS(make_variant(name, {}, options), ConfigError);
    }
  }
}

TEST_CASE("variants: wrong shapes and lengths are refused") {
  const auto variant = make_variant("softmax");
  const auto v = [](const Shape& shape, DType dtype = DType::f64) {
    return Variable(Tensor::zeros(shape, dtype));
  };
  const Shape good{2, 5, 2, 4};
  const auto forward = [&](const Variable& q, const Variable& k, const Variable& w,
                           const Mask& mask = {}) { return variant->forward(q, k, w, mask, {}); };
  CHECK_NOTHROW(forward(v(good), v(good), v(good)));
  CHECK_THROWS_AS(forward(v({2, 5, 8}), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 5, 3, 4}), v({2, 5, 3, 4}), v({2, 5, 3, 4})), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 5, 2, 3}), v({2, 5, 2, 3}), v({2, 5, 2, 3})), ShapeError);
  CHECK_THROWS_AS(forward(v({1, 5, 2, 4}), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v({2, 4, 2, 4})), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 0, 2, 4}), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v(good, DType::f32), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), lengths({5, 6})), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), lengths({5, -1})), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), lengths({5})), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 3, 2, 4}), v(good), v(good), lengths({5, 5})), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), {Tensor::zeros({2}, DType::i64)}), ShapeError);
  const auto masked = [&](const Mask& mask, const std::string& name = "softmax") {
    const auto one = make_variant(name);
    one->forward(v(good), v(good), v(good), mask, {});
  };
  CHECK_NOTHROW(masked({.keep = Tensor::full({5, 5}, 1, DType::u8)}));
  CHECK_THROWS_AS(masked({.keep = Tensor::full({5, 5}, 1, DType::i32)}), ShapeError);
  CHECK_THROWS_AS(masked({.keep = Tensor::full({5, 4}, 1, DType::u8)}), ShapeError);
  CHECK_THROWS_AS(masked({.bias = v({2, 3, 5, 5})}), ShapeError);
  CHECK_THROWS_AS(masked({.bias = v({5, 5}, DType::f32)}), ShapeError);
  CHECK_THROWS_AS(masked({.keep = Tensor::full({5, 5}, 1, DType::u8)}, "performer"), ConfigError);
  CHECK_THROWS_AS(masked({.bias = v({5, 5})}, "nystrom"), ConfigError);
  const auto causal = make_variant("softmax", {.causal = true});
  CHECK_THROWS_AS(causal->forward(v({2, 3, 2, 4}), v(good), v(good), {}, {}), ShapeError);
}

TEST_CASE("variants: fewer heads of keys and values serve groups of queries' heads") {
  for_each_variant([](const std::string& name, bool causal) {
    const int64_t B = 2, N = 9, H = 4, G = 2, D = 4;
    const auto grouped = make_variant(name, {.heads = H, .kv_heads = G, .causal = causal});
    const auto all = make_variant(name, {.heads = H, .causal = causal});
    const Tensor q = normal({B, N, H, D}, 1), k = normal({B, N, G, D}, 2),
                 v = normal({B, N, G, D}, 3), cotangent = normal({B, N, H, D}, 4);
    const auto for_each_head = [&](const Tensor& x) {
      Tensor out = Tensor::empty({B, N, H, D}, DType::f64);
      for (int64_t h = 0; h < H; ++h) copy_into(out.select(2, h), x.select(2, h * G / H));
      return out;
    };
    const Mask mask = lengths({9, 5});
    const Outcome few = run_variant(*grouped, q, k, v, mask, cotangent);
    const Outcome many = run_variant(*all, q, for_each_head(k), for_each_head(v), mask, cotangent);
    CHECK(near(few.out, many.out, 1e-12));
    CHECK(near(few.dq, many.dq, 1e-12));
    const auto by_group = [&](const Tensor& x) {
      return sum(reshape(Variable(x), {B, N, G, H / G, D}), {3}).value();
    };
    CHECK(near(few.dk, by_group(many.dk), 1e-12));
    CHECK(near(few.dv, by_group(many.dv), 1e-12));
  });
  CHECK_THROWS_AS(make_variant("softmax", {.heads = 4, .kv_heads = 3}), ConfigError);
}
