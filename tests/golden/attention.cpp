// Attention cores that are variants.
#include "longhand/autograd/variable.h"
#include "tests/golden/readers.h"
#include "tests/support/catch.h"

namespace longhand::test {
namespace {

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

}  // namespace

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

void read_core(const Golden& golden) {
  check_core(golden, DType::f64, 1e-9);
  check_core(golden, DType::f32, 2e-4);
}

}  // namespace longhand::test
