// EVA: exact attention to a block of tokens, and control variates for the rest. Zheng et al. 2023
// (arXiv 2302.04542), section 4. The tokens outside of the block of query i are in chunks of c tokens,
// each represented by one key and one value:
//
//   O_i = (Σ_(j in block) e^s_ij v_j + Σ_n e^(q_i·k̄_n / sqrt(D)) w_n β_n)
//         / (Σ_(j in block) e^s_ij + Σ_n e^(q_i·k̄_n / sqrt(D)) w_n),   s_ij = q_i·k_j / sqrt(D)
//   β_n = Σ_(j in chunk n) softmax_j(ω_n·y_j - |y_j|²/2) v_j,   y = D^(-1/4) k
//   ω_n ~ N(D^(-1/4) (q̄_n + k̄_n), I),   q̄_n and k̄_n the means of chunk n
//
// (eq. 16-18). Causally, a query sees the keys of its block up to its own, and the chunks of earlier
// blocks. The factor w_n is the number of tokens of a chunk, so that equal keys have the weights of
// softmax attention; w_n = 1 is the paper's. Training passes draw ω; others use its mean, so that
// nothing is random.
//
// Computed as softmax attention of tiles (softmax_attention.h), in O(N) memory: β_n are results of the
// queries ω_n, each with the keys of its chunk. The block and the chunks of a query are attended to
// one after the other, and joined by the logarithms l and l' of their normalisers:
//
//   O_i = g o_i + (1 - g) o'_i,  g = sigmoid(l_i - l'_i)
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "longhand/attention/bases/gaussian_kernel.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

// Bytes of the state of a decoder for one sequence: the queries, keys and values of the current block,
// and a key and a value for each chunk before it.
int64_t eva_state_bytes(int64_t tokens, int64_t heads, int64_t D, int64_t window, int64_t chunk,
                        size_t size) {
  if (tokens == 0) return 0;
  const int64_t before = (tokens - 1) / window;  // blocks
  return heads * D * static_cast<int64_t>(size) *
         (3 * (tokens - before * window) + 2 * before * (window / chunk));
}

// Keeps the current block, and the chunks of earlier ones as keys and values.
template <class T>
class EvaDecoder final : public Decoder {
 public:
  EvaDecoder(const Config& config, int64_t batch, int64_t window, int64_t chunk, bool weighs)
      : H_(config.heads),
        D_(config.head_dim),
        window_(window),
        chunk_(chunk),
        weighs_(weighs),
        heads_(static_cast<size_t>(batch * H_)) {}

  Tensor step(const Token& token) override {
    const Tensor q = token.q.contiguous(), k = repeat_groups(token.k, H_).contiguous(),
                 v = repeat_groups(token.v, H_).contiguous();
    const bool ends = tokens_ > 0 && tokens_ % window_ == 0;
    Tensor out = Tensor::empty(q.shape(), q.dtype());
    for (size_t row = 0; row < heads_.size(); ++row) {
      Head& head = heads_[row];
      if (ends) close_block(head);
      const auto at = static_cast<int64_t>(row) * D_;
      append(head.q, q.data<T>() + at);
      append(head.k, k.data<T>() + at);
      append(head.v, v.data<T>() + at);
      attend(q.data<T>() + at, head, out.data<T>() + at);
    }
    ++tokens_;
    return out;
  }
  int64_t bytes() const override {
    return static_cast<int64_t>(heads_.size()) / H_ *
           eva_state_bytes(tokens_, H_, D_, window_, chunk_, sizeof(T));
  }

 private:
  struct Head {
    std::vector<T> q, k, v;       // of the current block
    std::vector<T> keys, values;  // of chunks
  };
  using Row = std::vector<double>;

  void append(std::vector<T>& to, const T* row) const { to.insert(to.end(), row, row + D_); }
  template <class A, class B>
  double dot(const A* a, const B* b) const {
    double sum = 0;
    for (int64_t d = 0; d < D_; ++d) sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
    return sum;
  }
  // Replaces weights by their softmax.
  static void normalise(Row& p) {
    const double largest = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& x : p) total += x = std::exp(x - largest);
    for (double& x : p) x /= total;
  }
  void add(Row& to, double weight, const T* row) const {
    for (int64_t d = 0; d < D_; ++d) to[d] += weight * static_cast<double>(row[d]);
  }
  static void append(std::vector<T>& to, const Row& row) {
    for (const double x : row) to.push_back(static_cast<T>(x));
  }

  void close_block(Head& head) const {
    const double scale = std::pow(static_cast<double>(D_), -0.25);
    for (int64_t first = 0; first < window_; first += chunk_) {
      Row omega(D_), key(D_), value(D_), p;
      for (int64_t j = first; j < first + chunk_; ++j) {
        add(omega, scale / static_cast<double>(chunk_), head.q.data() + j * D_);
        add(key, 1 / static_cast<double>(chunk_), head.k.data() + j * D_);
      }
      for (int64_t d = 0; d < D_; ++d) omega[d] += scale * key[d];
      for (int64_t j = first; j < first + chunk_; ++j) {
        const T* const y = head.k.data() + j * D_;
        p.push_back(scale * dot(omega.data(), y) - scale * scale * dot(y, y) / 2);
      }
      normalise(p);
      for (int64_t j = 0; j < chunk_; ++j) add(value, p[j], head.v.data() + (first + j) * D_);
      append(head.keys, key);
      append(head.values, value);
    }
    head.q.clear(), head.k.clear(), head.v.clear();
  }

  void attend(const T* q, const Head& head, T* to) const {
    const double tau = 1 / std::sqrt(static_cast<double>(D_));
    const auto rows = [&](const std::vector<T>& x) { return static_cast<int64_t>(x.size()) / D_; };
    Row p, out(D_);
    for (int64_t j = 0; j < rows(head.k); ++j) p.push_back(tau * dot(q, head.k.data() + j * D_));
    const double weight = weighs_ ? std::log(static_cast<double>(chunk_)) : 0;
    for (int64_t n = 0; n < rows(head.keys); ++n)
      p.push_back(tau * dot(q, head.keys.data() + n * D_) + weight);
    normalise(p);
    for (int64_t j = 0; j < rows(head.v); ++j) add(out, p[j], head.v.data() + j * D_);
    for (int64_t n = 0; n < rows(head.values); ++n)
      add(out, p[rows(head.v) + n], head.values.data() + n * D_);
    std::transform(out.begin(), out.end(), to, [](double x) { return static_cast<T>(x); });
  }

  int64_t H_, D_, window_, chunk_;
  bool weighs_;
  std::vector<Head> heads_;  // of every sample and head
  int64_t tokens_ = 0;
};

struct EvaOptions {
  int64_t window = 64, chunk = 16;
  std::string chunk_weight = "tokens";
  bool sampled = true;

  void describe(OptionVisitor& v) {
    v.integer("window", window, {1, 1 << 24},
              "tokens of a block, which attend to each other exactly; a multiple of chunk");
    v.integer("chunk", chunk, {1, 1 << 24}, "tokens c that share one key and one value elsewhere");
    v.require(window % chunk == 0, "window",
              concat_message("expected a multiple of chunk = ", chunk));
    v.choice("chunk_weight", chunk_weight, {"tokens", "one"},
             "weight of a chunk: as many keys as it has tokens, or one key, as in the paper");
    v.boolean("sampled", sampled, "whether training passes draw ω; otherwise its mean is used");
  }
  Capabilities capabilities() const {
    return {.separate_queries = false,
            .positional = true,
            .causal = true,
            .decodes = true,
            .cross_lengths = false,
            .needs = Needs::heads,
            .time = "N (w + N/c) D",
            .memory = "N + (N/w)^2"};
  }
};

class Eva final : public Variant {
 public:
  Eva(const nn::Scope& scope_, const Config& config, const EvaOptions& options)
      : Variant(scope_, config), options_(options), weighs_(options.chunk_weight == "tokens") {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    std::unique_ptr<Decoder> decoder;
    dispatch_float(parameter_dtype(), [&]<class T>() {
      decoder = std::make_unique<EvaDecoder<T>>(config(), batch, options_.window, options_.chunk,
                                                weighs_);
    });
    return decoder;
  }
  int64_t state_bytes(int64_t tokens) const override {
    if (!decodes()) return 0;
    return eva_state_bytes(tokens, config().heads, config().head_dim, options_.window,
                           options_.chunk, size_of(parameter_dtype()));
  }
  std::string algorithm(int64_t tokens) const override {
    if (tokens > options_.window) return {};
    return concat_message("softmax: ", tokens, " tokens are one block");
  }
  Work work(int64_t queries, int64_t) const override {
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double N = number(queries), D = number(config().head_dim),
                 w = std::min(number(options_.window), N), c = number(options_.chunk),
                 chunks = N > w ? N / c : 0, seen = config().causal ? 0.5 : 1,
                 scores = N * (w + chunks) * seen;
    return number(config().heads) * Work{{4 * scores * D + 6 * N * D, scores + N},
                                         {10 * scores * D + 12 * N * D, scores},
                                         3 * N * D * number(size_of(parameter_dtype()))};
  }
  std::string advice(int64_t tokens) const override {
    if (options_.chunk > 1) return {};
    return concat_message("attention.chunk = 1 attends to each of ", tokens,
                          " tokens, as softmax attention does; use larger chunks");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t B = inputs.q.size(0), N = inputs.q.size(1), H = inputs.q.size(2);
    check<ShapeError>(inputs.k.size(1) == N, "eva: expected as many queries as keys, got ", N,
                      " queries and ", inputs.k.size(1), " keys");
    const SoftmaxAttentionOptions all{
        .causal = config().causal, .key_lengths = mask.lengths, .query_lengths = mask.lengths};
    if (N <= options_.window) return softmax_attention(inputs.q, inputs.k, inputs.v, all);
    SoftmaxAttentionOptions within = all;
    within.pattern = blocks(N, true);
    const auto [exact, sums] = softmax_attention_with_sums(inputs.q, inputs.k, inputs.v, within);

    const int64_t chunks = (N + options_.chunk - 1) / options_.chunk;
    const Tensor sizes = chunk_sizes(mask.lengths, N, chunks), counts = real_chunks(mask.lengths);
    const Variable share(reciprocals(sizes).to(inputs.q.dtype()));  // (B or 1, chunks, 1, 1)
    const Variable q_mean = chunk_sums(inputs.q, chunks) * share,
                   k_mean = chunk_sums(inputs.k, chunks) * share;
    const Variable values = chunk_values(q_mean + k_mean, inputs, mask.lengths, counts, pass);
    SoftmaxAttentionOptions elsewhere{
        .key_lengths = counts, .query_lengths = mask.lengths, .pattern = blocks(N, false)};
    if (weighs_)
      elsewhere.key_bias = Variable(logarithms(sizes).to(inputs.q.dtype()).expand({B, chunks, H}));
    const auto [rest, rest_sums] = softmax_attention_with_sums(inputs.q, k_mean, values, elsewhere);

    // Padding has no sums, and a block with no chunk to attend to has g = sigmoid(∞) = 1.
    Variable difference = unsqueeze(transpose(sums - rest_sums, 1, 2), 3);  // (B, N, H, 1)
    if (mask.lengths.defined()) difference = where(real_tokens(mask.lengths, N), difference, 0.0);
    const Variable gate = sigmoid(difference);
    return gate * exact + (1 - gate) * rest;
  }

  // Each block attends to itself, or to the chunks of the others; causally, of earlier ones.
  std::shared_ptr<const BlockPattern> blocks(int64_t N, bool own) const {
    const int64_t w = options_.window, count = (N + w - 1) / w;
    BlockPattern out{.block = w, .key_block = own ? w : w / options_.chunk};
    for (int64_t b = 0; b < count; ++b) {
      for (int64_t other = 0; other < (config().causal ? b + 1 : count); ++other)
        if ((other == b) == own) out.keys.push_back(static_cast<int32_t>(other));
      out.begin.push_back(static_cast<int64_t>(out.keys.size()));
    }
    return std::make_shared<const BlockPattern>(std::move(out));
  }

  // Sums over the tokens of each chunk, (B, chunks, H, D).
  Variable chunk_sums(const Variable& x, int64_t chunks) const {
    const int64_t B = x.size(0), N = x.size(1), H = x.size(2), D = x.size(3), c = options_.chunk;
    Variable whole = x;
    if (N < chunks * c)
      whole = concat({x, Variable(Tensor::zeros({B, chunks * c - N, H, D}, x.dtype()))}, 1);
    return sum(reshape(whole, {B, chunks, c, H, D}), {2});
  }

  // β (B, chunks, H, D), for the sums of the means of queries and keys.
  Variable chunk_values(const Variable& means, const Inputs& inputs, const Tensor& lengths,
                        const Tensor& counts, const nn::Pass& pass) const {
    const int64_t c = options_.chunk, chunks = means.size(1);
    const double scale = std::pow(static_cast<double>(means.size(3)), -0.25);
    Variable W = affine(means, scale);
    if (pass.training && options_.sampled)
      W = W + Variable(training_noise(W.shape(), 2, W.dtype(), pass));
    BlockPattern own{.block = 1, .key_block = c};
    for (int64_t n = 0; n < chunks; ++n) {
      own.keys.push_back(static_cast<int32_t>(n));
      own.begin.push_back(n + 1);
    }
    return softmax_attention(
        W, inputs.k, inputs.v,
        {.scale = scale,
         .key_lengths = lengths,
         .query_lengths = counts,
         .pattern = std::make_shared<const BlockPattern>(std::move(own)),
         .key_bias = squeeze(affine(half_norms(inputs.k), -scale * scale), 3)});
  }

  // How many chunks of each sample have a token, (B) i32; undefined: all.
  Tensor real_chunks(const Tensor& lengths) const {
    if (!lengths.defined()) return {};
    std::vector<int32_t> counts = lengths.to_vector<int32_t>();
    const auto c = static_cast<int32_t>(options_.chunk);
    for (int32_t& n : counts) n = (n + c - 1) / c;
    return Tensor::from(counts, {lengths.size(0)});
  }
  // How many tokens the chunks have, (B or 1, chunks, 1, 1) f64. 1 for those that have none, which
  // nothing attends to.
  Tensor chunk_sizes(const Tensor& lengths, int64_t N, int64_t chunks) const {
    const std::vector<int32_t> ends = lengths.defined()
                                          ? lengths.to_vector<int32_t>()
                                          : std::vector<int32_t>{static_cast<int32_t>(N)};
    Tensor out = Tensor::empty({static_cast<int64_t>(ends.size()), chunks, 1, 1}, DType::f64);
    double* to = out.data<double>();
    for (const int64_t n : ends)
      for (int64_t i = 0; i < chunks; ++i)
        *to++ = static_cast<double>(std::clamp<int64_t>(n - i * options_.chunk, 1, options_.chunk));
    return out;
  }
  static Tensor reciprocals(const Tensor& sizes) {
    Tensor out = sizes.clone();
    for (int64_t i = 0; i < out.numel(); ++i) out.data<double>()[i] = 1 / out.data<double>()[i];
    return out;
  }
  // (B or 1, chunks, 1)
  static Tensor logarithms(const Tensor& sizes) {
    Tensor out = sizes.clone();
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data<double>()[i] = std::log(out.data<double>()[i]);
    return out.squeeze(3);
  }

  EvaOptions options_;
  bool weighs_;
};

}  // namespace

namespace conformance {
namespace {

using namespace sizes;

void eva_limits(Findings& f) {
  for (const bool causal : {false, true}) {
    const auto softmax = make_variant("softmax", {}, made(causal));
    const auto eva = [&](int64_t window, int64_t chunk) {
      return make_variant("eva", {{"window", window}, {"chunk", chunk}}, made(causal));
    };
    const std::string suffix = causal ? ", causal" : "";
    equal(f, "a window of N and softmax" + suffix, *eva(N, 4), *softmax, 1e-12);
    equal(f, "chunks of one token and softmax" + suffix, *eva(4, 1), *softmax, 1e-12);
    Sample x;
    for (int64_t i = 1; i < N; ++i)
      copy_into(x.k.slice(1, i, i + 1), x.k.slice(1, 0, 1).contiguous());
    const double d = distance(forward(*eva(8, 4), x.q, x.k, x.v), forward(*softmax, x.q, x.k, x.v));
    f.expect(d <= 1e-12, "equal keys", suffix, ": eva and softmax differ by ", d);
    f.measured("equal keys", suffix, " to ", d);
  }
}

}  // namespace
}  // namespace conformance

Spec eva_variant() {
  return make_spec<EvaOptions, Eva>(
      {.summary =
           "softmax attention within blocks, and to a mean key and value of each other chunk",
       .paper = "Zheng et al. 2023, arXiv 2302.04542",
       .cases = {{{"window", 4}, {"chunk", 2}},
                 {{"window", 6}, {"chunk", 3}, {"chunk_weight", "one"}},
                 {{"window", 3}, {"chunk", 3}, {"sampled", false}}},
       .evidence = {{"limits",
                     "a window of N, or chunks of one token, give softmax; so do equal keys, of "
                     "which a chunk has the mean value",
                     conformance::eva_limits}}});
}

}  // namespace longhand::attention
