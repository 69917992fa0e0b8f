// Estimates of memory, by steps without computations.
#include <cmath>
#include <functional>
#include <set>

#include "longhand/attention/model/transformer.h"
#include "longhand/attention/registry.h"
#include "longhand/train/config/memory.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;

namespace {

MemoryRequest request_of(const attention::TransformerConfig& model, int64_t batch_size = 1,
                         int64_t eval_batch_size = 0) {
  MemoryRequest out;
  out.model = model;
  out.train.loading.batch_size = batch_size;
  out.train.trainer.eval_batch_size = eval_batch_size;
  return out;
}

}  // namespace

TEST_CASE("memory: parameters are counted exactly, for every variant and shape of model") {
  for (const std::string& variant : attention::names()) {
    attention::TransformerConfig c;
    c.vocabulary = 11, c.classes = 5, c.max_length = 24, c.d_model = 12, c.heads = 2, c.layers = 3;
    c.d_mlp = 20;
    c.attention = variant;
    c.causal = attention::capabilities(variant).causal_only;
    const auto check = [&] {
      CAPTURE(variant, c.positions, c.pooling, c.norm, c.d_mlp, c.low_rank, c.kv_heads);
      const attention::Transformer model(nn::root(), c);
      CHECK(estimate_memory(request_of(c)).parameter_count ==
            static_cast<double>(model.parameter_count()));
    };
    check();
    c.pooling = c.causal ? "last" : "cls", c.norm = "post", c.norm_type = "rms_norm",
    c.head_hidden = 7;
    c.positions = "sinusoidal";
    if (!attention::capabilities(variant).fixed_length) check();
    c.d_mlp = 0, c.kv_heads = 1, c.low_rank = {2}, c.head_hidden = 0, c.pooling = "mean";
    check();
    c.per_token = true, c.tied_embeddings = true, c.classes = c.vocabulary;
    check();
    c.around = {.short_conv = 4, .head_norm = "layer_norm", .output_gate = "silu"};
    if (attention::capabilities(variant).uses_queries_and_keys) c.around.qk_norm = "rms_norm";
    check();
    if (variant == "linformer") {  // the first layer has the projection of all
      c.attention_options.set("sharing", std::string("layerwise"));
      check();
    }
  }
}

TEST_CASE("memory: any sizes give a finite estimate, which does not fall with any of them") {
  constexpr int64_t most = int64_t{1} << 30;
  attention::TransformerConfig c;
  c.vocabulary = c.classes = c.max_length = c.d_model = c.layers = c.d_mlp = most;
  c.heads = 1;
  MemoryRequest request = request_of(c, INT32_MAX, INT32_MAX);
  request.data = {9e18, 9e18};
  const MemoryEstimate estimate = estimate_memory(request);
  CHECK(std::isfinite(estimate.total()));
  CHECK(estimate.exceeds);
  CHECK_THROWS_WITH(check_memory(request), Catch::Contains("no single option"));

  attention::TransformerConfig small;
  small.vocabulary = 100, small.classes = 10, small.max_length = 64;
  MemoryRequest one = request_of(small, 8, 8);
  one.data = {.examples = 100, .bytes = 1000};
  const double least = estimate_memory(one).total();
  using Model = attention::TransformerConfig;
  for (int64_t Model::*const size : {&Model::vocabulary, &Model::classes, &Model::max_length,
                                     &Model::d_model, &Model::layers, &Model::d_mlp}) {
    MemoryRequest more = one;
    more.model.*size *= 2;
    CHECK(estimate_memory(more).total() >= least);
    more.model.*size *= 1 << 8;
    CHECK(estimate_memory(more).total() > least);
  }
  MemoryRequest more = one;
  more.train.loading.batch_size = 256;
  CHECK(estimate_memory(more).total() > least);
  more = one;
  more.data.bytes = 2000;
  CHECK(estimate_memory(more).total() == least + 1000);
}

TEST_CASE("memory: micro-batches and recomputation need less, averages more") {
  attention::TransformerConfig c;
  c.vocabulary = c.classes = 16, c.max_length = 256, c.layers = 4;
  const MemoryRequest whole = request_of(c, 64);
  const auto bytes = [](const MemoryRequest& r) { return estimate_memory(r).total(); };
  MemoryRequest other = whole;
  other.train.trainer.step.micro_batches = 4;
  CHECK(bytes(other) < 0.5 * bytes(whole));
  other = whole;
  other.train.trainer.step.recompute = true;
  CHECK(bytes(other) < 0.6 * bytes(whole));
  other = whole;
  other.train.trainer.ema_decay = 0.9;
  CHECK(bytes(other) > bytes(whole));
}

TEST_CASE("memory: what a refusal suggests fits, and a fifth more does not") {
  using Change = std::function<void(MemoryRequest&, int64_t)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"train.batch_size = ", [](MemoryRequest& r, int64_t v) { r.train.loading.batch_size = v; }},
      {" tokens in a sequence", [](MemoryRequest& r, int64_t v) { r.model.max_length = v; }},
      {"model.layers = ", [](MemoryRequest& r, int64_t v) { r.model.layers = v; }},
      {"model.d_model = ",
       [](MemoryRequest& r, int64_t v) {
         r.model.d_model = v;
         r.model.d_mlp = 2 * v;
       }},
      {" different tokens, numbered from 0",
       [](MemoryRequest& r, int64_t v) { r.model.vocabulary = v; }}};
  const auto tried = [&](MemoryRequest request, double share) {
    request.train.memory_limit =
        share * estimate_memory(request).total() / (int64_t{1} << 30) + 0.2;
    request.effective["model"]["d_mlp"] = {request.model.d_mlp, false};  // it follows d_model
    const std::string message = test::message_of<ConfigError>([&] { check_memory(request); });
    CAPTURE(message);
    std::set<std::string> suggested;
    for (const auto& [name, change] : changes) {
      const size_t at = message.find(name.ends_with("= ") ? "at most " + name : name);
      if (at == std::string::npos) continue;
      suggested.insert(name);
      // The number stands after "at most ", or after the name of an option.
      size_t begin = message.rfind("at most ", at) + 8;
      if (name.ends_with("= ")) begin += name.size();
      std::string digits;
      for (; std::isdigit(static_cast<unsigned char>(message[begin])) || message[begin] == ',';
           ++begin)
        if (message[begin] != ',') digits += message[begin];
      const int64_t value = std::stoll(digits);
      CAPTURE(name, value);
      MemoryRequest other = request;
      change(other, value);
      CHECK_NOTHROW(check_memory(other));
      const int64_t step = name == "model.d_model = " ? request.model.heads : 1;
      change(other, (value + value / 5) / step * step + step);
      CHECK_THROWS_AS(check_memory(other), ConfigError);
    }
    return suggested;
  };
  attention::TransformerConfig c;
  c.vocabulary = c.classes = 16, c.max_length = 1000, c.layers = 4;
  CHECK(tried(request_of(c, 5000), 0.5).size() >= 2);
  c.vocabulary = 4'000'000, c.classes = 2;
  CHECK(tried(request_of(c), 0.5).contains(" different tokens, numbered from 0"));
  c.vocabulary = 16, c.max_length = 16, c.d_model = 4096, c.d_mlp = 8192, c.heads = 4;
  CHECK(tried(request_of(c), 0.5).contains("model.d_model = "));
}
