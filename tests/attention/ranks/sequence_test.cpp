// Sequences cut over ranks: every variant computes what it computes with whole sequences.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "longhand/attention/model/transformer.h"
#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "tests/support/catch.h"
#include "tests/support/thread_ranks.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

struct Step {
  Tensor logits;        // (B, N, classes), or (B, classes)
  double loss = 0;      // the sum over all ranks
  nn::StateDict grads;  // of all parameters, the sums over all ranks
  nn::StateDict state;  // parameters and buffers afterwards, of rank 0
  int64_t bytes = 0;    // that rank 0 has sent
  std::string unequal;  // a buffer that differs between ranks; empty: none
};

// A batch of B = 3 sequences of N tokens, of which the second ends within a part and the third leaves
// parts without tokens.
struct Batch {
  int64_t N = 12;
  bool with_padding = true, per_token = true;

  std::vector<int32_t> lengths() const {
    const auto n = static_cast<int32_t>(N);
    return with_padding ? std::vector<int32_t>{n, n / 2 + 1, 1} : std::vector<int32_t>{n, n, n};
  }
  Tensor tokens() const { return numbers(N, 11, 1); }
  Tensor targets() const {
    if (!per_token) return numbers(1, 5, 2).select(1, 0).contiguous();
    Tensor out = numbers(N, 5, 2);
    for (int64_t b = 0; b < 3; ++b)
      out.select(0, b).slice(0, lengths()[static_cast<size_t>(b)], N).fill(-100);
    return out;
  }
  double targets_count() const {
    double count = 0;
    for (const int32_t n : lengths()) count += n;
    return per_token ? count : 3;
  }

 private:
  static Tensor numbers(int64_t length, int32_t below, uint64_t seed) {
    RandomStream random{Generator(seed)};
    Tensor out = Tensor::empty({3, length}, DType::i32);
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data<int32_t>()[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(below)));
    return out;
  }
};

// The tokens or targets of a part of x (B, N); behind the end, -100 is an ignored target and 0 a token.
Tensor own_tokens(const Tensor& x, const SequencePart& part, double behind) {
  const Tensor all = Tensor::full({x.size(0), part.padded()}, behind, x.dtype());
  copy_into(all.slice(1, 0, x.size(1)), x);
  return all.slice(1, part.begin, part.begin + part.tokens()).contiguous();
}

// Steps of training on P ranks; the last one is returned. Nothing but redraws changes in between.
Step train(const TransformerConfig& config, const Batch& batch, int P, DType dtype,
           bool recompute = false, uint64_t steps = 2) {
  Step out;
  std::mutex mutex;
  std::vector<Tensor> logits(static_cast<size_t>(P));
  run_ranks(P, [&](Communicator& ranks) {
    const auto own = SequencePart::of(ranks, batch.N);
    const SequencePart& part = *own;
    Transformer model(nn::root(dtype, 3), config);
    const Tensor lengths = batch.with_padding ? Tensor::from(batch.lengths(), {3}) : Tensor();
    for (uint64_t step = 0; step < steps; ++step) {
      nn::Pass pass = nn::Pass::train(Generator(5).fork(step));
      pass.recompute = recompute;
      pass = over_part(pass, own);
      model.zero_grad();
      const Traffic before = ranks.traffic();
      const Variable y = model.forward(own_tokens(batch.tokens(), part, 0), lengths, pass);
      const Tensor targets =
          batch.per_token ? own_tokens(batch.targets(), part, -100) : batch.targets();
      Variable loss = cross_entropy(y, targets, {.normalizer = batch.targets_count()});
      if (!batch.per_token) loss = loss / static_cast<double>(P);
      backward(loss);
      const std::lock_guard lock(mutex);
      if (step + 1 < steps) {
        model.after_step();
        continue;
      }
      if (ranks.rank() == 0) out.bytes = (ranks.traffic() - before).bytes;
      out.loss += loss.value().item();
      logits[static_cast<size_t>(ranks.rank())] = y.value();
      for (const auto& [name, parameter] : model.named_parameters()) {
        const Tensor g = parameter.grad().defined() ? parameter.grad().contiguous()
                                                    : Tensor::zeros(parameter.shape(), dtype);
        Tensor& sum = out.grads[name];
        sum = sum.defined() ? (Variable(sum) + Variable(g)).value() : g.clone();
      }
      for (const auto& [name, value] : model.state_dict()) {
        Tensor& first = out.state[name];
        if (!first.defined()) first = value.clone();
        if (!identical(first, value)) out.unequal = name;
      }
    }
  });
  if (!batch.per_token) {
    out.logits = logits[0];
    return out;
  }
  Variables parts;
  for (const Tensor& x : logits) parts.emplace_back(x);
  out.logits = concat(parts, 1).value().slice(1, 0, batch.N);
  return out;
}

// The largest difference, in units of the largest element of b (at least `least`).
double distance(const Tensor& a, const Tensor& b, double least) {
  if (!(a.shape() == b.shape())) return INFINITY;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double most = 0, size = least;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - y[i]);
    most = d <= most ? most : d;  // NaN passes on
    size = std::max(size, std::abs(y[i]));
  }
  return most / size;
}

void check_equal(const Step& cut, const Step& whole, const Batch& batch, double tolerance) {
  CHECK(cut.unequal.empty());
  for (int64_t b = 0; b < 3; ++b) {
    const auto real = [&](const Tensor& logits) {
      return batch.per_token ? logits.select(0, b)
                                   .slice(0, 0, batch.lengths()[static_cast<size_t>(b)])
                                   .contiguous()
                             : logits.select(0, b).contiguous();
    };
    INFO("logits of sequence " << b);
    CHECK(distance(real(cut.logits), real(whole.logits), 1) <= tolerance);
  }
  CHECK(std::abs(cut.loss - whole.loss) <= tolerance * std::abs(whole.loss));
  for (const auto& [name, g] : whole.grads) {
    INFO("gradient of " << name);
    CHECK(distance(cut.grads.at(name), g, 1e-3) <= tolerance);
  }
  for (const auto& [name, value] : whole.state) {
    INFO("state " << name);
    CHECK(identical(cut.state.at(name), value));
  }
}

TransformerConfig small(const std::string& variant, const OptionSet& options, bool causal) {
  TransformerConfig config;
  config.vocabulary = 11, config.classes = 5, config.per_token = true, config.max_length = 14;
  config.d_model = 16, config.heads = 4, config.d_mlp = 12, config.layers = 1;
  config.causal = causal;
  config.dropout = 0.2;
  config.attention = variant;
  for (const auto& [key, value] : options) config.attention_options.set(key, value);
  return config;
}

std::string text(const OptionSet& options) {
  std::ostringstream out;
  for (const auto& [key, value] : options)
    std::visit(
        [&, key = key](const auto& v) {
          if constexpr (requires { out << v; })
            out << key << " = " << v << ", ";
          else
            out << key << ", ";
        },
        value);
  return out.str();
}

// Calls f(config) for every variant with every option set of its conformance suite, causal and not.
template <class F>
void for_all_variants(F f) {
  for (const std::string& name : names())
    for (const OptionSet& options : spec(name).cases)
      for (const bool causal : {false, true}) {
        TransformerConfig config = small(name, options, causal);
        const Capabilities can = capabilities(name, config.attention_config(0));
        if (causal ? !can.causal : can.causal_only) continue;
        INFO(name << (causal ? ", causal: " : ": ") << text(options));
        f(config);
      }
}

// Of inverses by the SVD, in double precision whatever the model: they multiply errors.
double tolerance_of(const TransformerConfig& config) {
  return config.attention_options.has("pinv") && config.attention == "nystrom" ? 1e-7 : 1e-11;
}

void check_on(const std::vector<int>& sizes, const TransformerConfig& config, const Batch& batch,
              bool recompute = false) {
  const Step whole = train(config, batch, 1, DType::f64);
  for (const int P : sizes) {
    INFO(P << " ranks");
    check_equal(train(config, batch, P, DType::f64, recompute), whole, batch, tolerance_of(config));
  }
}

}  // namespace

TEST_CASE("sequences over ranks: every variant, with padding and dropout") {
  for_all_variants([](const TransformerConfig& config) { check_on({4}, config, {}); });
}

TEST_CASE("sequences over ranks: every variant, without padding") {
  for_all_variants(
      [](const TransformerConfig& config) { check_on({3}, config, {.with_padding = false}); });
}

TEST_CASE("sequences over ranks: every variant, of lengths that ranks do not divide") {
  for_all_variants([](TransformerConfig config) {
    config.max_length = 9;
    check_on({5}, config, {.N = 9, .with_padding = false});
    // Of 4 ranks, the last one has padding alone.
    check_on({2, 4}, config, {.N = 9});
  });
}

TEST_CASE("sequences over ranks: whole heads have the bits of one process") {
  for_all_variants([](const TransformerConfig& config) {
    const auto variant = make(config.attention, nn::root(), config.attention_config(0));
    const SequencePath path = sequence_path(*variant, 2);
    if (path != SequencePath::heads && path != SequencePath::local) return;
    const Batch batch{.with_padding = false};
    const Tensor whole = train(config, batch, 1, DType::f32, false, 1).logits;
    for (const int P : {2, 4})
      CHECK(identical(train(config, batch, P, DType::f32, false, 1).logits, whole));
  });
}

TEST_CASE("sequences over ranks: in f32") {
  for_all_variants([](const TransformerConfig& config) {
    const Batch batch;
    const Tensor whole = train(config, batch, 1, DType::f32, false, 1).logits,
                 cut = train(config, batch, 2, DType::f32, false, 1).logits;
    for (int64_t b = 0; b < 3; ++b) {
      const auto real = [&](const Tensor& x) {
        return x.select(0, b).slice(0, 0, batch.lengths()[static_cast<size_t>(b)]).contiguous();
      };
      CHECK(distance(real(cut), real(whole), 1) <= 2e-5);
    }
  });
}

TEST_CASE("sequences over ranks: shared keys, more ranks than heads") {
  for (const char* const name :
       {"softmax", "performer", "window", "gaussian", "forgetting", "none"})
    for (const int64_t kv_heads : {1, 2}) {
      INFO(name << ", " << kv_heads << " heads of keys");
      TransformerConfig config = small(name, {}, true);
      if (config.attention == "softmax" || config.attention == "forgetting")
        config.attention_options.set("window", int64_t{7});
      if (config.attention == "softmax") {
        config.attention_options.set("bias", std::string("alibi"));
        config.attention_options.set("dropout", 0.2);
      }
      config.kv_heads = kv_heads;
      check_on({2, 4, 5, 6}, config, {});
    }
}

TEST_CASE("sequences over ranks: positions and what is around a variant") {
  for (const bool causal : {false, true}) {
    for (const char* const positions : {"sinusoidal", "rotary", "alibi", "none"}) {
      INFO(positions);
      TransformerConfig config = small("softmax", {}, causal);
      config.positions = positions;
      if (config.positions == "alibi") config.attention_options.set("bias", std::string("alibi"));
      config.around = {
          .short_conv = 4, .qk_norm = "rms_norm", .head_norm = "rms_norm", .output_gate = "silu"};
      check_on({2, 4}, config, {});
    }
    TransformerConfig post = small("linear", {}, causal);
    post.norm = "post", post.norm_type = "rms_norm", post.tied_embeddings = false;
    post.around.short_conv = 9;  // longer than a part
    check_on({4}, post, {});
  }
}

TEST_CASE("sequences over ranks: layers of several variants, recomputed") {
  TransformerConfig config = small("softmax", {}, true);
  config.layers = 4;
  config.layer_attention = {"conv", "performer", "softmax", "gla"};
  config.layer_options.assign(4, Options("attention"));
  check_on({2, 4}, config, {});
  check_on({2, 4}, config, {}, true);
}

TEST_CASE("sequences over ranks: pooling") {
  for (const char* const pooling : {"mean", "last"})
    for (const bool with_padding : {false, true}) {
      INFO(pooling);
      TransformerConfig config = small("softmax", {}, false);
      config.per_token = false, config.pooling = pooling;
      check_on({2, 4}, config, {.with_padding = with_padding, .per_token = false});
    }
}

TEST_CASE("sequences over ranks: reconstruction") {
  for (const bool with_padding : {false, true}) {
    TransformerConfig config = small("softmax", {}, false);
    config.reconstruct = true;
    check_on({2, 4}, config, {.with_padding = with_padding});
  }
}

TEST_CASE("sequences over ranks: rows of logits, on some ranks none") {
  const Batch batch;
  const TransformerConfig config = small("softmax", {}, false);
  Transformer whole(nn::root(DType::f64, 3), config);
  const Tensor logits = whole.forward(batch.tokens(), {}, {}).value();
  run_ranks(4, [&](Communicator& ranks) {
    const auto part = SequencePart::of(ranks, batch.N);
    const nn::Pass pass = over_part({}, part);
    Transformer model(nn::root(DType::f64, 3), config);
    const bool has = ranks.rank() == 1;
    const Tensor rows =
        Tensor::from(has ? std::vector<int32_t>{2, 5} : std::vector<int32_t>{}, {has ? 2 : 0});
    const Variable y = model.forward(own_tokens(batch.tokens(), *part, 0), {}, pass, rows);
    check(y.shape() == Shape{rows.numel(), 5}, "shape");
    backward(sum(y));
    if (!has) return;
    // Token 2 of sequence 0 and token 1 of sequence 1 in this part.
    check(distance(y.value().select(0, 0), logits.select(0, 0).select(0, 6), 1) < 1e-12 &&
              distance(y.value().select(0, 1), logits.select(0, 1).select(0, 5), 1) < 1e-12,
          "rows");
  });
}

TEST_CASE("sequences over ranks: what cannot be cut is refused") {
  const auto error = [](TransformerConfig config, auto change) {
    std::string message;
    run_ranks(2, [&](Communicator& ranks) {
      Transformer model(nn::root(DType::f32, 3), config);
      nn::Pass pass = over_part({}, SequencePart::of(ranks, 12));
      Tensor tokens = Tensor::zeros({1, 6}, DType::i32);
      change(pass, tokens);
      std::string what;
      try {
        model.forward(tokens, {}, pass);
      } catch (const Error& e) {
        what = e.what();
      }
      if (ranks.rank() == 0) message = what;
    });
    return message;
  };
  TransformerConfig config = small("softmax", {}, false);
  const auto nothing = [](nn::Pass&, Tensor&) {};
  config.per_token = false, config.pooling = "cls";
  CHECK(error(config, nothing).find("use \"mean\" or \"last\"") != std::string::npos);
  config.per_token = true;
  CHECK(error(config, [](nn::Pass&, Tensor& t) {
          t = Tensor::zeros({1, 5}, DType::i32);
        }).find("rank 0 of 2 expected 6 of 12 tokens, got 5") != std::string::npos);
  config.max_length = 11;
  CHECK(error(config, nothing).find("exceeds the model's max_length 11") != std::string::npos);
  run_ranks(2, [&](Communicator& ranks) {
    const auto variant = make("softmax", nn::root(), {.heads = 2, .head_dim = 4, .max_length = 8});
    const nn::Pass pass = over_part({}, SequencePart::of(ranks, 8));
    const Variable x(Tensor::zeros({1, 4, 2, 4}));
    try {
      variant->forward(x, x, x, {.keep = Tensor::full({8, 8}, 1, DType::u8)}, pass);
    } catch (const Error& e) {
      return;
    }
    throw Error("keep was accepted");
  });
}

TEST_CASE("sequences over ranks: an empty one, and nystrom without exact attention") {
  Config config{.heads = 2, .head_dim = 4, .max_length = 8};
  config.options.set("landmarks", int64_t{2});
  config.options.set("exact_below", int64_t{0});
  Tensor x = Tensor::empty({2, 8, 2, 4}, DType::f64);
  fill_normal(x, Generator(1));
  const Mask mask{.lengths = Tensor::from(std::vector<int32_t>{8, 0}, {2})};
  const auto result = [&](const Tensor& tokens, const nn::Pass& pass) {
    const auto variant = make("nystrom", nn::root(DType::f64), config);
    return variant->forward(Variable(tokens), Variable(tokens), Variable(tokens), mask, pass)
        .value();
  };
  const Tensor whole = result(x, {});
  run_ranks(2, [&](Communicator& ranks) {
    const auto part = SequencePart::of(ranks, 8);
    const auto own = [&](const Tensor& of) {
      return of.slice(1, part->begin, part->begin + part->tokens()).contiguous();
    };
    const Tensor out = result(own(x), over_part({}, part));
    check(distance(out, own(whole), 1) <= 1e-12, "rank ", ranks.rank(), " differs");
  });
}

TEST_CASE("sequences over ranks: a grid with data-parallel ranks") {
  // 4 ranks: two groups, each with batches of its own, cut over two ranks.
  const TransformerConfig config = small("performer", {}, true);
  const Batch batch{.with_padding = false};
  run_ranks(4, [&](Communicator& ranks) {
    const auto group = ranks.split(ranks.rank() / 2);
    const Generator random = Generator(5).fork(static_cast<uint64_t>(ranks.rank() / 2));
    const auto loss_of = [&](Communicator& of) {
      const auto part = SequencePart::of(of, batch.N);
      Transformer model(nn::root(DType::f64, 3), config);
      const nn::Pass pass = over_part(nn::Pass::train(random), part);
      const auto own = [&](const Tensor& x) {
        return x.slice(1, part->begin, part->begin + part->tokens()).contiguous();
      };
      const Variable loss =
          cross_entropy(model.forward(own(batch.tokens()), {}, pass), own(batch.targets()),
                        {.normalizer = batch.targets_count()});
      backward(loss);
      return loss.value().contiguous().clone();
    };
    Tensor loss = loss_of(*group);
    group->sum(loss);
    check(std::abs(loss.item() - loss_of(alone()).item()) < 1e-12, "the loss of a group");
    Tensor all = loss.clone();
    ranks.sum(all);
    check(std::abs(all.item() - 4 * loss.item()) > 1e-6, "groups drop the same");
  });
}

TEST_CASE("sequences over ranks: bytes grow with the tokens only where those are exchanged") {
  for_all_variants([](TransformerConfig config) {
    config.d_model = 64, config.max_length = 48;
    const auto measured = [&](int64_t N, int P) {
      const Batch batch{.N = N, .with_padding = false};
      return static_cast<double>(train(config, batch, P, DType::f64, false, 1).bytes);
    };
    const auto variant = make(config.attention, nn::root(DType::f64), config.attention_config(0));
    for (const int P : {3, 4}) {
      const SequencePath path = sequence_path(*variant, P);
      if (path == SequencePath::parts) continue;
      const double few = measured(24, P), many = measured(48, P);
      INFO(P << " ranks, " << name_of(path) << ": " << few << " and " << many << " bytes");
      const bool linear = path == SequencePath::heads || path == SequencePath::gathered ||
                          path == SequencePath::keys || path == SequencePath::ring;
      // The counts of normalisers do not grow with the tokens: 16 bytes for each side of scatterbrain.
      CHECK(std::abs(many - (linear ? 2 * few : few)) <= 32 * (P - 1));
    }
  });
}
