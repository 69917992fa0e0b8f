#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "longhand/autograd/variable.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// Returns t (B, H, N, D) as a view (B, N, H, D) of the dtype.
Tensor by_token(const Tensor& t, DType dtype) { return t.to(dtype).permute({0, 2, 1, 3}); }

// If all of `expected` is 0, `got` is compared absolutely.
void compare(const std::string& what, const Tensor& got, const Tensor& expected, double tolerance) {
  const auto numbers = expected.to_vector<double>(), found = got.to_vector<double>();
  const bool zero = std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 0; });
  const auto size = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const double error = zero ? std::abs(*std::max_element(found.begin(), found.end(), size))
                            : relative_error(got, expected);
  INFO(what << ": relative error " << error << ", expected at most " << tolerance);
  CHECK(error <= tolerance);
}

// The options of a case beside those of its variant.
struct CoreOptions {
  std::string type{};
  bool causal = false;
  int64_t max_length = 1;

  void describe(OptionVisitor& v) {
    v.text("type", type, "the variant");
    v.boolean("causal", causal, "whether a token attends to no later one");
    v.integer("max_len", max_length, {1}, "most tokens of a sequence");
  }
};

void check_core(const Golden& golden, DType dtype, double tolerance) {
  const Tensor& shape_of = golden.at("q");
  attention::Config config;
  config.heads = shape_of.size(1);
  config.head_dim = shape_of.size(3);
  const auto core = read_options(golden.config, CoreOptions{.max_length = shape_of.size(2)});
  config.causal = core.causal;
  config.max_length = core.max_length;
  config.options = golden.config;
  for (const Field& field : schema_of<CoreOptions>()) config.options.erase(field.name);
  const auto variant = attention::make(core.type, nn::root(dtype), config);  // reads the others

  // The state of the variant and the parameters in the file must be the same.
  auto own = variant->state_dict();
  const auto params = golden.group("params");
  for (const auto& [name, value] : params) {
    INFO("params/" << name);
    REQUIRE(own.count(name) == 1);
    REQUIRE(own.at(name).shape() == value.shape());
    copy_into(own.at(name), value);
  }
  for (const auto& [name, parameter] : variant->named_parameters()) {
    INFO("parameter " << name << " is not in the file");
    CHECK(params.count(name) == 1);
  }
  if (own.count("features")) CHECK(params.count("features") == 1);

  attention::Mask mask;
  if (golden.has("key_keep")) mask.lengths = lengths_of(golden.at("key_keep"));
  const Variable q(by_token(golden.at("q"), dtype), true), k(by_token(golden.at("k"), dtype), true),
      v(by_token(golden.at("v"), dtype), true);
  const Variable x = golden.has("x") ? Variable(golden.at("x").to(dtype), true) : Variable();
  const Variable out = variant->forward({q, k, v, x}, mask, {});
  backward(out, by_token(golden.at("grad_out"), dtype));

  // Nothing arrives at operands that a variant does not read.
  const auto gradient = [](const Variable& of) {
    return of.grad().defined() ? of.grad() : Tensor::zeros(of.shape(), of.dtype());
  };
  compare("out", out.value(), by_token(golden.at("out"), DType::f64), tolerance);
  compare("grad_q", gradient(q), by_token(golden.at("grad_q"), DType::f64), tolerance);
  if (variant->capabilities().uses_keys)
    compare("grad_k", gradient(k), by_token(golden.at("grad_k"), DType::f64), tolerance);
  else
    CHECK_FALSE((golden.has("grad_k") || k.grad().defined()));
  compare("grad_v", gradient(v), by_token(golden.at("grad_v"), DType::f64), tolerance);
  if (x.defined()) compare("grad_x", gradient(x), golden.at("grad_x"), tolerance);
  auto grads = golden.group("grad_params");
  for (const auto& [name, parameter] : variant->named_parameters()) {
    INFO("grad_params/" << name);
    REQUIRE(grads.count(name) == 1);
    REQUIRE(parameter.grad().defined());
    compare("grad_params/" + name, parameter.grad(), grads.at(name), tolerance);
    grads.erase(name);
  }
  INFO("grad_params of something that is not trained");
  CHECK(grads.empty());
}

// Whether a case is of the folder gated, which LONGHAND_GOLDEN_DIR may name: scan_test.cpp reads it.
bool is_recurrence(const Golden& golden) {
  return golden.has("log_decay") || golden.has("beta") || golden.has("a") ||
         std::get<std::string>(golden.config.find("type")->value) == "retnet";
}

}  // namespace

TEST_CASE("golden attention cores agree") {
  for (const auto& path : golden_files()) {
    DYNAMIC_SECTION(path.stem().string()) {
      const Golden golden = read_golden(path);
      if (golden.kind != "attention" || is_recurrence(golden)) continue;
      INFO("source: " << golden.source);
      SECTION("f64") { check_core(golden, DType::f64, 1e-9); }
      SECTION("f32") { check_core(golden, DType::f32, 2e-4); }
    }
  }
}

TEST_CASE("golden cases with unknown or missing contents fail") {
  Golden golden;
  for (const auto& path : golden_files())
    if (golden.kind != "attention") golden = read_golden(path);
  if (golden.kind != "attention") return;
  SECTION("another option") {
    golden.config.set("wiggle", int64_t{3});
    CHECK_THROWS_WITH(check_core(golden, DType::f64, 1e-9), Catch::Contains("wiggle"));
  }
  SECTION("another variant") {
    golden.config.set("type", std::string("wiggle"));
    CHECK_THROWS_WITH(check_core(golden, DType::f64, 1e-9), Catch::Contains("wiggle"));
  }
  SECTION("no result") {
    golden.tensors.erase("out");
    CHECK_THROWS_WITH(check_core(golden, DType::f64, 1e-9), Catch::Contains("out"));
  }
}

TEST_CASE("golden folders that are missing or empty fail") {
  namespace fs = std::filesystem;
  const char* const given = std::getenv("LONGHAND_GOLDEN_DIR");
  const std::string before = given ? given : "";
  const fs::path folder =
      fs::temp_directory_path() / ("longhand-golden-" + std::to_string(getpid()));
  setenv("LONGHAND_GOLDEN_DIR", folder.c_str(), 1);
  CHECK_THROWS_AS(golden_files(), DataError);
  fs::create_directory(folder);
  CHECK_THROWS_AS(golden_files(), DataError);
  std::ofstream(folder / "broken.h5") << "no HDF5";
  REQUIRE(golden_files().size() == 1);
  CHECK_THROWS_AS(read_golden(golden_files()[0]), DataError);
  fs::remove_all(folder);
  if (given)
    setenv("LONGHAND_GOLDEN_DIR", before.c_str(), 1);
  else
    unsetenv("LONGHAND_GOLDEN_DIR");
}

TEST_CASE("golden comparisons can fail") {
  const Tensor a = Tensor::from(std::vector<double>{1, -4, 2}, {3});
  CHECK(relative_error(a, a) == 0);
  CHECK(relative_error(Tensor::from(std::vector<double>{1, -4, 2.5}, {3}), a) ==
        Approx(0.125).epsilon(1e-12));
  const Tensor nan = Tensor::from(std::vector<double>{1, NAN, 2}, {3});
  CHECK_FALSE(relative_error(nan, a) <= 1e9);
  CHECK_FALSE(relative_error(a, nan) <= 1e9);
  CHECK_THROWS_AS(lengths_of(Tensor::from(std::vector<uint8_t>{1, 0, 1}, {1, 3})), DataError);
}
