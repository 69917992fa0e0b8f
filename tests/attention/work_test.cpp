// The work that variants report, and the multiply-adds that they compute.
#include "longhand/core/measure/multiply_adds.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

// Sizes that blocks divide, so that nothing is computed for lanes without a token.
constexpr int64_t N = 768, H = 2, D = 32;

// Multiply-adds computed, as multiples of those that work() reports: without gradients and with
// them. They differ because blocks of causal queries compute products with all keys of the block, and
// because nystrom computes the iterates of its inverse again for gradients, which is not counted;
// log_linear computes pairs of blocks of 32 tokens, and their products again for the gradients; moba fills
// up the rows of a block to 48; and mesa ends before it has taken all of its steps.
struct Case {
  std::string name;
  Settings options{};
  bool causal = false;
  double forward = 1, both = 1;
  int64_t tokens = N;
};
constexpr double tolerance = 0.02;  // relative

const std::vector<Case> cases{
    {"softmax"},
    {"softmax", {}, true, (N + 48.0) / N, (N + 48.0) / N},
    {"linformer", {{"k", int64_t{96}}}},
    {"performer", {{"features", int64_t{64}}}},
    {"performer", {{"features", int64_t{64}}}, true, 1.049, 1.054},
    // One block, which keeps its features.
    {"performer", {{"features", int64_t{64}}}, true, 1.049, 1.236, 96},
    {"nystrom", {{"landmarks", int64_t{96}}}, false, 1.02, 1.18},
    {"linear"},
    {"linear", {}, true, 1.107, 1.179},
    {"retnet", {}, true, 1.068, 1.114},
    {"gla", {}, true, 1.058, 1.096},
    {"mamba2", {}, true, 1.067, 1.112},
    {"log_linear", {}, true, 1.013, 1.047},
    {"rff", {{"features", int64_t{64}}}},
    {"rff",
     {{"features", int64_t{64}}, {"kernel", std::string("rfa")}, {"gate", true}},
     true,
     1.047,
     1.026},
    {"mamba3", {}, true, 1.063, 1.105},
    {"deltanet", {}, true, 1.052, 1.061},
    {"gated_deltanet", {}, true, 1.038, 1.048},
    {"kda", {}, true, 1.031, 1.040},
    {"gdn2", {}, true, 1.031, 1.040},
    {"rwkv7", {}, true, 1.047, 1.057},
    {"mesa", {}, true, 0.487, 0.498},
    {"gaussian"},
    {"gaussian", {}, true, (N + 48.0) / N, (N + 48.0) / N},
    {"sigmoid"},
    {"sigmoid", {}, true, (N + 48.0) / N, (N + 48.0) / N},
    {"differential"},
    {"path", {}, true},
    {"moba", {{"block", int64_t{48}}, {"blocks", int64_t{3}}}, true, 1.274, 1.292},
    {"bigbird", {{"block", int64_t{48}}}},
    {"eva", {{"window", int64_t{96}}, {"chunk", int64_t{16}}}},
    {"synthesizer"},
    {"synthesizer", {}, true, (N + 48.0) / N, (N + 48.0) / N},
    {"aft", {{"kind", std::string("full")}}},
};

}  // namespace

TEST_CASE("work: the flops of a variant are those of the products it computes") {
  const Case c = GENERATE(from_range(cases));
  const auto variant = make_variant(
      c.name,
      {.heads = H, .dim = D, .max_length = c.tokens, .causal = c.causal, .dtype = DType::f32},
      options_of(c.options));
  const auto leaf = [&](uint64_t seed) {
    return Variable(normal({1, c.tokens, H, D}, seed, DType::f32, 0.5), true);
  };
  const Variable q = leaf(1), k = leaf(2), v = leaf(3);
  const Work work = variant->work(c.tokens, c.tokens);
  const MultiplyAdds counted;
  const Variable out =
      variant->forward(attention::conformance::inputs_of(*variant, q, k, v), {}, {});
  const double forward = 2 * static_cast<double>(counted.count());
  backward(out, normal({1, c.tokens, H, D}, 4, DType::f32));
  const double both = 2 * static_cast<double>(counted.count());
  INFO(c.name << (c.causal ? ", causal" : "") << ": forward " << forward / work.forward.flops
              << ", with gradients " << both / (work.forward.flops + work.backward.flops));
  CHECK(forward / work.forward.flops == Approx(c.forward).epsilon(tolerance));
  CHECK(both / (work.forward.flops + work.backward.flops) == Approx(c.both).epsilon(tolerance));
}
