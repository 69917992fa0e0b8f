#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options linformer(int64_t k, const std::string& sharing) {
  Options options("attention");
  options.set("k", k);
  options.set("sharing", sharing);
  return options;
}

Tensor identity(int64_t n) {
  Tensor t = Tensor::zeros({n, n}, DType::f64);
  for (int64_t i = 0; i < n; ++i) t.data<double>()[i * n + i] = 1;
  return t;
}

}  // namespace

TEST_CASE("linformer with k = N and E = F = I is softmax") {
  const std::string sharing = GENERATE(as<std::string>(), "none", "headwise", "kv");
  const int64_t N = 11;
  const auto variant = make_variant("linformer", {.max_length = N}, linformer(N, sharing));
  const Tensor eye = identity(N);
  for (auto& [name, tensor] : variant->state_dict()) copy_into(tensor, eye.expand(tensor.shape()));
  const auto softmax = make_variant("softmax", {.max_length = N});
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3), c = normal({2, N, 2, 4}, 4);
  const Outcome a = run_variant(*variant, q, k, v, {}, c),
                b = run_variant(*softmax, q, k, v, {}, c);
  CHECK(near(a.out, b.out, 1e-14));
  CHECK(near(a.dq, b.dq, 1e-14));
  CHECK(near(a.dk, b.dk, 1e-14));
  CHECK(near(a.dv, b.dv, 1e-14));
}

TEST_CASE("linformer: sharing decides what there is to learn") {
  const int64_t H = 2, k = 5, L = 16;
  const auto shapes = [&](const std::string& sharing) {
    std::map<std::string, Shape> out;
    const auto variant = make_variant("linformer", {}, linformer(k, sharing));
    for (const auto& [name, p] : variant->named_parameters()) out[name] = p.shape();
    return out;
  };
  CHECK(shapes("none") ==
        std::map<std::string, Shape>{{"projection_k", {H, k, L}}, {"projection_v", {H, k, L}}});
  CHECK(shapes("headwise") ==
        std::map<std::string, Shape>{{"projection_k", {k, L}}, {"projection_v", {k, L}}});
  CHECK(shapes("kv") == std::map<std::string, Shape>{{"projection_k", {k, L}}});
}

TEST_CASE("linformer: E for every head, all equal, is one E for all, gradients summed") {
  const auto each = make_variant("linformer", {}, linformer(5, "none"));
  const auto shared = make_variant("linformer", {}, linformer(5, "headwise"));
  auto from = shared->state_dict();
  for (auto& [name, tensor] : each->state_dict())
    copy_into(tensor, from.at(name).expand(tensor.shape()));
  const Tensor q = normal({2, 9, 2, 4}, 1), k = normal({2, 9, 2, 4}, 2),
               v = normal({2, 9, 2, 4}, 3), c = normal({2, 9, 2, 4}, 4);
  const Mask mask = lengths({9, 5});
  const Outcome a = run_variant(*each, q, k, v, mask, c),
                b = run_variant(*shared, q, k, v, mask, c);
  CHECK(near(a.out, b.out, 1e-14));
  for (const auto& [name, gradient] : b.parameters) {
    const Tensor summed = sum(Variable(a.parameters.at(name)), {0}).value();
    CHECK(near(summed, gradient, 1e-13));
    // Columns beyond the sequence learn nothing.
    CHECK(all_zero(gradient.slice(1, 9, 16)));
    CHECK_FALSE(all_zero(gradient.slice(1, 8, 9)));
  }
}

TEST_CASE("linformer: keys and values may share one E, gradients added up") {
  const auto tied = make_variant("linformer", {}, linformer(5, "kv"));
  const auto two = make_variant("linformer", {}, linformer(5, "headwise"));
  const Tensor E = tied->state_dict().at("projection_k");
  for (auto& [name, tensor] : two->state_dict()) copy_into(tensor, E);
  const Tensor q = normal({2, 9, 2, 4}, 1), k = normal({2, 9, 2, 4}, 2),
               v = normal({2, 9, 2, 4}, 3), c = normal({2, 9, 2, 4}, 4);
  const Outcome a = run_variant(*tied, q, k, v, {}, c), b = run_variant(*two, q, k, v, {}, c);
  CHECK(near(a.out, b.out, 1e-14));
  const Variable both =
      Variable(b.parameters.at("projection_k")) + Variable(b.parameters.at("projection_v"));
  CHECK(near(a.parameters.at("projection_k"), both.value(), 1e-13));
}

TEST_CASE("linformer: longer than it was made for is refused") {
  const auto variant = make_variant("linformer", {.max_length = 8});
  const Variable x(normal({1, 9, 2, 4}, 1));
  CHECK_THROWS_WITH(variant->forward(x, x, x, {}, {}),
                    Catch::Contains("9") && Catch::Contains("8"));
}

TEST_CASE("linformer: k is at most the default of 256 and the length") {
  const auto k_of = [](int64_t length) {
    const auto variant = make_variant("linformer", {.max_length = length}, Options("attention"));
    return variant->named_parameters()[0].second.size(0);
  };
  CHECK(k_of(16) == 16);
  CHECK(k_of(300) == 256);
}
