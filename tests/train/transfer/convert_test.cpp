#include "longhand/train/transfer/convert.h"

#include <cmath>

#include "longhand/core/gemm.h"
#include "longhand/core/linalg.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/transfer/saved_model.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace {

const char* const toml = R"([model]
d_model = 16
heads = 4
kv_heads = 1
layers = 1
d_mlp = 24
vocabulary = 10
classes = 10
per_token = true
max_length = 8

[data]
task = "copy"
length = 8
count = 2
)";

/// A matrix (out, in) with these singular values.
Tensor with_spectrum(int64_t out, int64_t in, const std::vector<double>& values) {
  const auto n = std::ssize(values);
  Tensor a = Tensor::empty({out, n}, DType::f64), b = Tensor::empty({in, n}, DType::f64);
  fill_normal(a, Generator(1));
  fill_normal(b, Generator(2));
  Tensor u = qr(a).q, v = qr(b).q;
  for (int64_t i = 0; i < out; ++i)
    for (int64_t j = 0; j < n; ++j) u.data<double>()[i * n + j] *= values[j];
  Tensor to = Tensor::empty({out, in}, DType::f64);
  matmul_into(to, u, v.transpose(0, 1));
  return to.to(DType::f32);
}

/// A checkpoint of a model with random weights.
SavedModel saved() {
  SavedModel out{"test.h5", {}, Config::parse(toml, "test"), {}};
  out.checkpoint.config = toml;
  attention::Transformer model(nn::root(DType::f32, 3), read_model(out.config, nullptr));
  for (const auto& [name, tensor] : model.state_dict()) out.checkpoint.model[name] = tensor.clone();
  out.checkpoint.training.step = 5;
  return out;
}

const ConvertedLayer& layer(const Conversion& conversion, std::string_view name) {
  for (const ConvertedLayer& each : conversion.layers)
    if (each.layer.name == name) return each;
  FAIL(name);
  return conversion.layers[0];
}

}  // namespace

TEST_CASE("convert: energy picks the smallest rank that keeps it") {
  SavedModel model = saved();
  // Squares 16, 4, 1, 1/4: the first three hold 84/85 of the energy, 0.988.
  std::vector<double> values(16, 0);
  for (int i = 0; i < 4; ++i) values[i] = std::pow(2.0, 2 - i);
  model.checkpoint.model["blocks.0.mlp.fc1.weight"] = with_spectrum(24, 16, values);
  const double whole = 16 + 4 + 1 + 0.25;
  for (const auto& [energy, rank] : {std::pair{0.75, 1},
                                     {0.76, 2},
                                     {0.94, 2},
                                     {0.942, 3},
                                     {0.988, 3},
                                     {0.9885, 4},
                                     {0.999999, 4}}) {
    CAPTURE(energy);
    const Conversion conversion = convert_to_low_rank(model, {.energy = energy});
    const ConvertedLayer& fc1 = layer(conversion, "blocks.0.mlp.fc1");
    CHECK(fc1.chosen == rank);
    CHECK(fc1.layer.rank == rank);
    double kept = 0;
    for (int i = 0; i < rank; ++i) kept += values[i] * values[i];
    CHECK(fc1.energy == Approx(kept / whole));
    CHECK(fc1.error == Approx(std::sqrt(1 - kept / whole)).margin(1e-6));
  }
}

TEST_CASE(
    "convert: averaged weights are factored, other tensors stay, and layers that are smaller") {
  SavedModel model = saved();
  const Tensor average = with_spectrum(16, 16, {3, 2, 1});
  model.checkpoint.ema["blocks.0.attention.query.weight"] = average;
  model.checkpoint.optimizer["step"] = Tensor::scalar(3, DType::i64);
  const Conversion conversion = convert_to_low_rank(model, {.rank = 3});
  const Checkpoint& to = conversion.checkpoint;
  Tensor product = Tensor::empty({16, 16});
  matmul_into(product, to.model.at("blocks.0.attention.query.weight_out"),
              to.model.at("blocks.0.attention.query.weight_in"));
  for (int64_t i = 0; i < 256; ++i)
    CHECK(product.data<float>()[i] == Approx(average.data<float>()[i]).margin(1e-5));
  CHECK(to.optimizer.empty());
  CHECK(to.ema.empty());
  CHECK(to.training.step == 5);
  for (const auto& [name, tensor] : model.checkpoint.model) {
    if (name.find("attention.") != std::string::npos && name.ends_with(".weight")) continue;
    if (name.find("mlp.") != std::string::npos && name.ends_with(".weight")) continue;
    INFO(name);
    CHECK(identical(to.model.at(name), tensor));
  }
  // Keys and values are 4 x 16: rank 3 saves 4, rank 4 nothing.
  CHECK(conversion.after.low_rank == std::vector<int64_t>{3});
  const Conversion four = convert_to_low_rank(saved(), {.rank = 4});
  CHECK(four.after.low_rank == std::vector<int64_t>{4, 0, 0, 4, 4, 4});
  CHECK(layer(four, "blocks.0.attention.key").is_full());
  CHECK(layer(four, "blocks.0.attention.key").chosen == 4);
  CHECK(four.checkpoint.model.contains("blocks.0.attention.key.weight"));
  CHECK_THAT(four.checkpoint.config, Contains("low_rank = [4, 0, 0, 4, 4, 4]"));
  const int64_t saves = 2 * (256 - 4 * 32) + 2 * (24 * 16 - 4 * 40);
  CHECK(four.parameters_before - four.parameters_after == saves);
}

TEST_CASE("convert: what cannot be converted is refused, and says why") {
  const auto failure = [](const std::function<void()>& f) { return message_of<Error>(f); };
  SavedModel model = saved();
  CHECK_THAT(failure([&] { convert_to_low_rank(model, {.rank = 10}); }),
             Contains("no layer becomes smaller") && Contains("at most 9, for blocks.0.mlp.fc1"));
  CHECK_THAT(failure([&] { convert_to_low_rank(model, {.energy = 1}); }),
             Contains("no layer becomes smaller"));
  SavedModel twice{"twice.h5", convert_to_low_rank(model, {.rank = 2}).checkpoint, {}, {}};
  twice.config = Config::parse(twice.checkpoint.config, "twice");
  CHECK_THAT(failure([&] { convert_to_low_rank(twice, {.rank = 1}); }),
             Contains("twice.h5 has layers of low rank already: model.low_rank = [2"));
  model.checkpoint.model.at("blocks.0.mlp.fc2.weight").fill(NAN);
  CHECK_THAT(failure([&] { convert_to_low_rank(model, {.rank = 2}); }),
             Contains("test.h5: blocks.0.mlp.fc2.weight has values that are not finite"));
  model.checkpoint.model.erase("blocks.0.mlp.fc2.weight");
  CHECK_THAT(failure([&] { convert_to_low_rank(model, {.rank = 2}); }),
             Contains("blocks.0.mlp.fc2.weight is missing"));

  CHECK(LowRankRule::parse("16").rank == 16);
  CHECK(LowRankRule::parse("0.5").energy == 0.5);
  CHECK(LowRankRule::parse("1.0").energy == 1);
  for (const char* text : {"0", "-1", "0.0", "1.5", "nan", "half", "", "[1, 2]"}) {
    CAPTURE(text);
    CHECK_THAT(failure([&] { LowRankRule::parse(text); }), Contains("expected a rank"));
  }
}
