// Linformer: softmax attention to k mixtures of the tokens. Wang et al. 2020 (arXiv 2006.04768),
// eq. 7, with E, F (k, M) learned:
//
//   O = softmax(Q (E K)ᵀ / sqrt(D)) (F V)
//
// Alternatively (section 4) the tokens are split into blocks of s = ceil(max_length / k), and slot
// c holds the mean of block c, the maximum of each channel, or a convolution sum_j w_j x_(c s + j)
// with one learned filter of s taps, that is, E with one row shared by all blocks.
//
// With `local`, a query attends to the tokens of its own block themselves, and to the slots of all
// other blocks, in one softmax:
//
//   o_i = (sum_(j in block b) e^s_ij v_j + sum_(c != b) e^t_ic ṽ_c) / (the same without values)
//
// with s_ij = q_i·k_j / sqrt(D) and t_ic = q_i·k̃_c / sqrt(D). If causal, j <= i and c < b: the
// slots of earlier blocks are complete and hold no later token.
//
// Keys and values at padding are set to 0 after their biases are added, so padding adds nothing to
// E K and F V. With the linear projection no slot is masked: one that mixes only padding has key 0
// and score 0. With the others, slots of blocks without real tokens are masked. Shorter sequences
// use the first columns of E.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "longhand/attention/bases/blocks.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/block_decoder.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/core/dry_run.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

// E or F: a trained parameter, or a frozen buffer.
class Projection {
 public:
  Projection(const nn::Scope& scope, const Shape& shape, const nn::Init& init, bool frozen) {
    if (!frozen) {
      trained_.emplace(scope, shape, init);
      return;
    }
    Tensor value = Tensor::empty(shape, scope.dtype);
    init(value, scope.random);
    kept_.emplace(scope, value);
  }
  Variable value() const { return trained_ ? Variable(*trained_) : Variable(kept_->value()); }

 private:
  std::optional<nn::Parameter> trained_;
  std::optional<nn::Buffer> kept_;
};

nn::Init init_of(const std::string& name, int64_t k) {
  if (name == "uniform") return nn::init::uniform(1 / std::sqrt(static_cast<double>(k)));
  if (name == "normal") return nn::init::normal(0.02);
  return nn::init::xavier_uniform(name == "xavier" ? 1 : std::sqrt(0.5));
}

struct LinformerOptions {
  std::vector<int64_t> k{256};
  std::string projection = "linear", order = "values", sharing = "headwise", init = "xavier";
  bool freeze = false, local = false;
  double dropout = 0;

  static LinformerOptions defaults(const Config& config) {
    return {.k = {std::min<int64_t>(256, config.max_length)}};
  }

  bool mixes_tokens() const { return order == "inputs"; }
  bool pools() const { return projection == "mean_pool" || projection == "max_pool"; }

  void describe(OptionVisitor& v) {
    v.integers("k", k, {1, 1 << 20}, "number of mixtures: one value, or one per layer",
               "256, at most max_length");
    v.choice("projection", projection, {"linear", "mean_pool", "max_pool", "conv"},
             "how mixtures are computed");
    v.choice("order", order, {"values", "inputs"},
             "what is mixed: projected keys and values, or tokens before projection");
    v.when(projection != "linear" && order == "values",
           "a projection of blocks and order = \"values\"", [&] {
             v.boolean("local", local,
                       "whether queries attend to the tokens of their own block directly, instead "
                       "of to its slot; this form may be causal");
           });
    v.when(!pools(), "projection = \"linear\" or \"conv\"", [&] {
      v.choice("sharing", sharing, {"none", "headwise", "kv", "layerwise"},
               "how E and F are shared: not at all, among heads, also between keys and values, or "
               "also among layers");
      v.choice(
          "init", init, {"xavier", "xavier_half", "uniform", "normal"},
          "initialisation of E and F; uniform: within 1/sqrt(k), normal: standard deviation 0.02");
      v.boolean("freeze", freeze,
                "whether E and F keep their initial values instead of being trained");
      v.require(
          !mixes_tokens() || sharing != "none", "sharing",
          "expected headwise, kv or layerwise: order \"inputs\" compresses tokens before they are "
          "split into heads");
      v.require(sharing != "layerwise" ||
                    std::all_of(k.begin(), k.end(), [&](int64_t each) { return each == k[0]; }),
                "k", "layers that share one projection must share one k");
    });
    describe_dropout(v, dropout);
  }

  void check(const Config& config) const {
    if (k.size() == 1) return;
    config.options.require(
        !config.layers || k.size() == static_cast<size_t>(config.layers), "k",
        concat_message("expected one number, or one for each of ", config.layers, " layers"));
    config.options.require(
        static_cast<size_t>(config.layer) < k.size(), "k",
        concat_message("expected one number, or one per layer, got no number for layer ",
                       config.layer));
  }

  Capabilities capabilities() const {
    return {
        .averages = pools(),
        .linear = projection != "max_pool",
        .positional = true,
        .causal = local,
        .causal_reason =
            "E mixes future tokens into every slot; local = true, with another "
            "projection than linear, can be causal",
        .decodes = local,
        .cross_lengths = !local,
        .fixed_length = true,
        .shortens = mixes_tokens(),
        // E and F of a part give a partial sum of the mixtures. Other slots may cross parts.
        .needs = !local && (projection == "linear" || mixes_tokens()) ? Needs::sums : Needs::tokens,
        .time = local ? "N (k + s) D" : "N k D",
        .memory = local ? "N (k + s)" : "k D + N"};
  }
};

class Linformer final : public Variant {
 public:
  Linformer(const nn::Scope& scope_, const Config& config, const LinformerOptions& options)
      : Variant(scope_, config),
        options_(options),
        k_(options.k[options.k.size() == 1 ? 0 : static_cast<size_t>(config.layer)]),
        block_((config.max_length + k_ - 1) / k_) {
    if (options.pools()) return;
    if (options.sharing == "layerwise" && config.first) {
      owner_ = dynamic_cast<const Linformer*>(config.first);
      config.options.require(owner_ != nullptr, "sharing",
                             "layer 0 is of another variant and has no projection to share");
      return;
    }
    const nn::Init init = init_of(options.init, k_);
    Shape shape = options_.projection == "linear" ? Shape{k_, config.max_length} : Shape{1, block_};
    if (options.sharing == "none") shape = shape.with_axis(0, config.heads);
    projection_k_.emplace(scope("projection_k"), shape, init, options.freeze);
    if (options.sharing == "none" || options.sharing == "headwise")
      projection_v_.emplace(scope("projection_v"), shape, init, options.freeze);
  }

  Sources sources(const Variable& x, const Mask& mask, const nn::Pass& pass) override {
    if (!options_.mixes_tokens()) return {x, x};
    // Slots of blocks may begin at any token, so all tokens are gathered here.
    const bool gathers = pass.join && options_.projection != "linear";
    const nn::Pass own = gathers ? nn::Pass{} : pass;
    Variable tokens = gathers ? whole_sequence(x, *pass.join, pass.tokens.of) : x;
    // Drops the tokens past the end of sequences, for which E has no columns.
    if (own.join) tokens = slice(x, 1, 0, std::min(x.size(1), own.tokens.of - first_token(own)));
    const int64_t N = tokens.size(1);
    tokens = unsqueeze(tokens, 2);  // (B, N, 1, d)
    const Tensor lengths = lengths_from(mask.lengths, own.tokens.first, N);
    if (lengths.defined()) tokens = where(real_tokens(lengths, N), tokens, 0.0);
    const Variable keys = squeeze(compress(tokens, lengths, false, own), 2);
    return {keys, two_projections() ? squeeze(compress(tokens, lengths, true, own), 2) : keys};
  }

  int64_t rank(int64_t tokens) const override {
    return options_.mixes_tokens() || options_.local ? tokens : slots_of(tokens);
  }
  std::string algorithm(int64_t tokens) const override {
    if (!options_.local || tokens > block_) return {};
    return concat_message("softmax: ", tokens, " tokens are in one block of ", block_);
  }
  std::string advice(int64_t tokens) const override {
    if (options_.local && slots_of(tokens) + block_ >= tokens)
      return concat_message(
          "attention.k = ", k_, " gives blocks of ", block_, " tokens: with ", slots_of(tokens),
          " slots that is no less than the ", tokens,
          " tokens of the longest sequence, and costs more than softmax; a k near "
          "the root of the length costs least");
    if (slots_of(tokens) < tokens) return {};
    return concat_message(
        "attention.k = ", k_, " is at least the length of the longest sequence, ", tokens,
        ": linformer then costs more than softmax; reduce k, for example to ",
        std::max<int64_t>(tokens / 4, 1), ", or use attention.type = \"softmax\"");
  }
  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    const auto slots = [this](const Inputs& block) {
      return std::pair(compress(block.k, {}, false, {}), compress(block.v, {}, true, {}));
    };
    return make_block_decoder(batch, config(), {.block = block_, .of = slots});
  }
  // Counts E K, F V and attention to the slots; the backward pass has two products for each.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double slots = static_cast<double>(slots_of(keys)),
                 seen = slots + (options_.local ? static_cast<double>(block_) : 0),
                 pairs = H * N * seen,
                 projections = options_.mixes_tokens() && !two_projections() ? 1 : 2,
                 per_token = options_.projection == "linear" ? 2 * slots
                             : options_.projection == "conv" ? 2
                                                             : 1,
                 flops = projections * per_token * M * H * D + 4 * pairs * D;
    if (options_.local) return {{flops, pairs}, {2 * flops}, 2 * pairs * bytes};
    return {
        {flops, pairs}, {2 * flops + 2 * pairs * D, pairs}, bytes * (2 * slots * H * D + N * H)};
  }

 private:
  // Softmax attention to the tokens of a query's own block and to the slots of the other blocks.
  Variable attend_locally(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) const {
    const int64_t B = inputs.q.size(0), N = inputs.q.size(1), H = inputs.q.size(2),
                  D = inputs.q.size(3), s = block_, blocks = slots_of(N);
    const auto by_block = [&](const Variable& x) {  // (B, H, blocks, s, D)
      return permute(in_blocks(x, s), {0, 3, 1, 2, 4});
    };
    const auto slots = [&](const Variable& x, bool values) {  // (B, H, 1, blocks, D)
      return unsqueeze(transpose(compress(x, mask.lengths, values, pass), 1, 2), 2);
    };
    const auto scores = [&](const Variable& q, const Variable& k) {
      return matmul(q, transpose(k, 3, 4), config().softmax_scale());
    };
    const Variable q = by_block(inputs.q), v = by_block(inputs.v), values = slots(inputs.v, true),
                   all = concat({scores(q, by_block(inputs.k)), scores(q, slots(inputs.k, false))},
                                4),
                   p = dropout(softmax(masked_scores(visible(mask.lengths, N), all)),
                               weight_dropout(options_.dropout, pass));
    const Variable out = matmul(slice(p, 4, 0, s), v) + matmul(slice(p, 4, s, s + blocks), values);
    return slice(reshape(permute(out, {0, 2, 3, 1, 4}), {B, blocks * s, H, D}), 1, 0, N);
  }

  // The tokens of its block and the slots that a query sees: (B or 1, 1, blocks, s, s + blocks).
  Tensor visible(const Tensor& lengths, int64_t tokens) const {
    const std::vector<int32_t> n = sample_lengths(lengths, tokens);
    const bool causal = config().causal;
    const int64_t s = block_, blocks = slots_of(tokens);
    Tensor keep = Tensor::empty({std::ssize(n), 1, blocks, s, s + blocks}, DType::u8);
    if (is_dry()) return keep;
    uint8_t* to = keep.data<uint8_t>();
    for (const int32_t length : n)
      for (int64_t i = 0; i < blocks * s; ++i) {
        const int64_t b = i / s;
        for (int64_t j = b * s; j < (b + 1) * s; ++j) *to++ = j < length && (!causal || j <= i);
        for (int64_t c = 0; c < blocks; ++c) *to++ = c != b && c * s < length && (!causal || c < b);
      }
    return keep;
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    if (options_.local) return attend_locally(inputs, mask, pass);
    // Exact attention to the slots: (B, slots, H, D).
    const Tensor lengths = lengths_from(mask.lengths, pass.tokens.first, inputs.q.size(1));
    const auto slots = [&](const Variable& x, bool values) {
      return options_.mixes_tokens() ? x : compress(x, lengths, values, pass);
    };
    const Variable keys = slots(inputs.k, false), values = slots(inputs.v, true);
    return softmax_attention(
        inputs.q, keys, values,
        {.key_lengths =
             options_.projection == "linear" ? Tensor() : filled_blocks(mask.lengths, block_),
         .dropout = weight_dropout(options_.dropout, pass),
         .first_query = first_token(pass)});
  }

  // Returns E x, or F x for values, (B, slots, G, d), for x (B, M, G, d) that is 0 at padding: the
  // sum over all tokens, of which the pass holds x. `lengths` belong to x.
  Variable compress(const Variable& x, const Tensor& lengths, bool values,
                    const nn::Pass& pass) const {
    const int64_t first = first_token(pass);
    check_length(first + x.size(1));
    const Linformer& owner = owner_ ? *owner_ : *this;
    const auto projection = [&] {
      return (values && owner.projection_v_ ? owner.projection_v_ : owner.projection_k_)->value();
    };
    const int64_t B = x.size(0), M = x.size(1), G = x.size(2), d = x.size(3), slots = slots_of(M);
    if (options_.projection == "linear") {
      const Variable whole = projection();
      const Variable E = M == whole.size(-1) ? whole : slice(whole, -1, first, first + M);
      const Variable mixed = E.rank() == 3
                                 ? transpose(matmul(E, transpose(x, 1, 2)), 1, 2)
                                 : reshape(matmul(E, reshape(x, {B, M, G * d})), {B, slots, G, d});
      return sum_of_parts(mixed, pass.join);
    }
    if (options_.projection == "mean_pool") return block_means(x, lengths, block_);
    const Variable blocks = in_blocks(x, block_);
    if (options_.projection == "conv") {
      const Variable w = projection();  // (1, s), or (H, 1, s)
      const int64_t filters = w.value().numel() / block_;
      const Variable taps = transpose(reshape(w, {filters, block_}), 0, 1);
      return sum(blocks * reshape(taps, {block_, filters, 1}), {2});
    }
    const Tensor n =
        lengths.defined() ? lengths : Tensor::full({1}, static_cast<double>(M), DType::i32);
    const Tensor real = real_tokens(n, slots * block_).reshape({n.numel(), slots, block_, 1, 1});
    return where(real_tokens(filled_blocks(n, block_), slots), max(where(real, blocks, never), 2),
                 0.0);
  }

  int64_t slots_of(int64_t tokens) const {
    return options_.projection == "linear" ? k_ : (tokens + block_ - 1) / block_;
  }
  bool two_projections() const { return projection_v_.has_value(); }

  LinformerOptions options_;
  int64_t k_, block_;
  std::optional<Projection> projection_k_;  // E (k, max_length), or (H, k, max_length); a filter
                                            // (1, s), or (H, 1, s)
  std::optional<Projection> projection_v_;  // F, as E; empty if keys and values share E
  const Linformer* owner_ = nullptr;        // layer 0, if it owns the E of all layers
};

using namespace conformance;

void linformer_identity(Findings& f) {
  const auto variant = make_variant("linformer", {{"k", N}}, made());
  set(*variant, {{"projection_k", identity(N)}, {"projection_v", identity(N)}});
  equal(f, "k = N, E = F = I and softmax", *variant, *make_variant("softmax", {}, made()), 1e-12);
}

void linformer_pooling(Findings& f) {
  const int64_t k = 6, s = N / k;
  const auto pooled = make_variant("linformer", {{"k", k}, {"projection", "mean_pool"}}, made());
  const auto learned = make_variant("linformer", {{"k", k}, {"sharing", "kv"}}, made());
  Tensor means = Tensor::zeros({k, N}, DType::f64);
  for (int64_t c = 0; c < k; ++c)
    means.slice(0, c, c + 1).slice(1, c * s, (c + 1) * s).fill(1 / static_cast<double>(s));
  set(*learned, {{"projection_k", means}});
  equal(f, "E of block means and mean_pool", *learned, *pooled, 1e-12);
  const auto convolved =
      make_variant("linformer", {{"k", k}, {"projection", "conv"}, {"sharing", "kv"}}, made());
  set(*convolved, {{"projection_k", Tensor::full({1, s}, 1 / static_cast<double>(s), DType::f64)}});
  equal(f, "conv with weights 1 / stride and mean_pool", *convolved, *pooled, 1e-12);
}

// One block is softmax attention; so are blocks of one token, which are their own slots.
void linformer_local(Findings& f) {
  for (const bool causal : {false, true})
    for (const int64_t k : {int64_t{1}, N})
      for (const char* kind : {"mean_pool", "max_pool"})
        equal(
            f,
            concat_message(kind, k == 1 ? ", one block" : ", blocks of one token", " and softmax"),
            *make_variant("linformer", {{"k", k}, {"projection", kind}, {"local", true}},
                          made(causal)),
            *make_variant("softmax", {}, made(causal)), 1e-12);
}

}  // namespace

Spec linformer_variant() {
  return make_spec<LinformerOptions, Linformer>(
      {.summary = "softmax attention to k learned mixtures of the tokens",
       .paper = "Wang et al. 2020, arXiv 2006.04768",
       .cases = {{{"k", 5}},
                 {{"k", 5}, {"sharing", "none"}, {"init", "uniform"}, {"dropout", 0.3}},
                 {{"k", 5}, {"sharing", "kv"}, {"init", "normal"}},
                 {{"k", 5}, {"sharing", "layerwise"}, {"freeze", true}, {"init", "xavier_half"}},
                 {{"k", 5}, {"projection", "mean_pool"}},
                 {{"k", 5}, {"projection", "max_pool"}},
                 {{"k", 5}, {"projection", "conv"}},
                 {{"k", 5}, {"projection", "conv"}, {"sharing", "none"}},
                 {{"k", 5}, {"projection", "mean_pool"}, {"local", true}, {"dropout", 0.3}},
                 {{"k", 5}, {"projection", "max_pool"}, {"local", true}},
                 {{"k", 5}, {"projection", "conv"}, {"sharing", "none"}, {"local", true}}},
       .evidence = {{"identity", "k = N, E = F = I gives softmax attention", linformer_identity},
                    {"pooling", "E of block means, mean pooling and a constant convolution agree",
                     linformer_pooling},
                    {"local", "local with one block, or with blocks of one token, is softmax",
                     linformer_local}}});
}

}  // namespace longhand::attention
