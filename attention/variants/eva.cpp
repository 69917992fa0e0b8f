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
#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

// Bytes of the state of a decoder for one sequence: the queries, keys and values of the current block,
// and a key and a value for each chunk before it.
int64_t bytes_of_state(int64_t tokens, int64_t heads, int64_t D, int64_t window, int64_t chunk,
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
           bytes_of_state(tokens_, H_, D_, window_, chunk_, sizeof(T));
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
            .time = "N (w + N/c) D",
            .memory = "N (w + N/c)"};
  }
  // The scores of blocks and chunks, joined, as probabilities; the means and values of chunks; and, with
  // causal masks, a byte for each pair in a block.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double w = std::min(number(window), e.queries), c = number(chunk),
                 blocks = std::ceil(e.queries / w), N = blocks * w, chunks = blocks > 1 ? N / c : 0,
                 scores = e.batch * z.H * N * (w + chunks),
                 copies = N > e.queries ? 3 * e.batch * z.H * N * z.D : 0;
    return {.kept = scores + copies + 3 * e.batch * z.H * chunks * z.D + z.tokens +
                    (config.causal ? N * w / 4 : 0),
            .forward = 2 * scores,
            .backward = std::max(2 * scores - 3.5 * z.values, 0.0)};
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
    return bytes_of_state(tokens, config().heads, config().head_dim, options_.window,
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
    const double both = number((queries + options_.window - 1) / options_.window) *
                        number(options_.window) * (w + N / c);
    return number(config().heads) * Work{{4 * scores * D + 6 * N * D, scores + N},
                                         {8 * scores * D + 12 * N * D, 0},
                                         2 * both * number(size_of(parameter_dtype()))};
  }
  std::string advice(int64_t tokens) const override {
    if (options_.chunk > 1) return {};
    return concat_message("attention.chunk = 1 attends to each of ", tokens,
                          " tokens, as softmax attention does; use larger chunks");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t B = inputs.q.size(0), N = inputs.q.size(1), H = inputs.q.size(2),
                  D = inputs.q.size(3);
    check<ShapeError>(inputs.k.size(1) == N, "eva: expected as many queries as keys, got ", N,
                      " queries and ", inputs.k.size(1), " keys");
    // A single block is no longer than the tokens need.
    const int64_t c = options_.chunk, w = std::min(options_.window, (N + c - 1) / c * c),
                  blocks = (N + w - 1) / w, chunks = blocks * w / c;
    const std::vector<int32_t> lengths = mask.lengths.defined()
                                             ? mask.lengths.to_vector<int32_t>()
                                             : std::vector<int32_t>{static_cast<int32_t>(N)};
    const Variable q = whole_blocks(inputs.q, blocks * w), k = whole_blocks(inputs.k, blocks * w),
                   v = whole_blocks(inputs.v, blocks * w);    // (B, blocks w, H, D)
    const auto cut = [&](const Variable& x, int64_t count) {  // (B, H, count, …, D)
      return permute(reshape(x, {B, count, blocks * w / count, H, D}), {0, 3, 1, 2, 4});
    };
    const double tau = 1 / std::sqrt(static_cast<double>(D));
    const Variable Q = cut(q, blocks);
    Variable p = masked_scores(block_keep(lengths, blocks, w),
                               matmul(Q, transpose(cut(k, blocks), 3, 4), tau));
    if (blocks == 1) return of_tokens(matmul(softmax(p), cut(v, blocks)), N);

    const Tensor sizes = chunk_sizes(lengths, chunks);  // (B or 1, 1, chunks, 1, 1)
    const Variable K = cut(k, chunks);
    const Variable share(reciprocals(sizes).to(q.dtype()));
    const Variable q_mean = sum(cut(q, chunks), {3}, true) * share,
                   k_mean = sum(K, {3}, true) * share;  // (B, H, chunks, 1, D)
    const Variable beta = chunk_values(q_mean + k_mean, K, cut(v, chunks), lengths, pass);
    Variable slots = matmul(transpose(q, 1, 2), transpose(squeeze(k_mean, 3), 2, 3), tau);
    if (weighs_) slots = slots + Variable(logarithms(sizes).to(q.dtype()));
    slots = masked_scores(chunk_keep(lengths, blocks, chunks),
                          reshape(slots, {B, H, blocks, w, chunks}));
    p = softmax(concat({p, slots}, 4));
    const Variable exact = matmul(slice(p, 4, 0, w), cut(v, blocks));  // (B, H, blocks, w, D)
    const Variable rest = matmul(slice(p, 4, w, w + chunks), unsqueeze(squeeze(beta, 3), 2));
    return of_tokens(exact + rest, N);
  }

  // x (B, N, H, D) with zeros up to `tokens`.
  static Variable whole_blocks(const Variable& x, int64_t tokens) {
    if (x.size(1) == tokens) return x;
    const Shape rest{x.size(0), tokens - x.size(1), x.size(2), x.size(3)};
    return concat({x, Variable(Tensor::zeros(rest, x.dtype()))}, 1);
  }
  // The first N tokens of x (B, H, blocks, w, D): (B, N, H, D).
  static Variable of_tokens(const Variable& x, int64_t N) {
    const Shape s = x.shape();
    return slice(reshape(permute(x, {0, 2, 3, 1, 4}), {s[0], s[2] * s[3], s[1], s[4]}), 1, 0, N);
  }

  // β (B, H, chunks, 1, D), for the sums of the means of queries and keys.
  Variable chunk_values(const Variable& means, const Variable& K, const Variable& V,
                        const std::vector<int32_t>& lengths, const nn::Pass& pass) const {
    const double scale = std::pow(static_cast<double>(K.size(4)), -0.25);
    Variable W = affine(means, scale);
    if (pass.training && options_.sampled) {
      Tensor noise = Tensor::empty(W.shape(), W.dtype());
      fill_normal(noise, pass.random.fork(full_name()));
      W = W + Variable(noise);
    }
    const Variable half = affine(sum(square(K), {4}, true), scale * scale / 2);
    const Variable logits = matmul(W, transpose(K, 3, 4), scale) - transpose(half, 3, 4);
    return matmul(softmax(masked_scores(token_keep(lengths, K.size(2)), logits)), V);
  }

  // How many of the first n tokens are among the c of chunk i.
  static int64_t in_chunk(int64_t n, int64_t i, int64_t c) {
    return std::clamp<int64_t>(n - i * c, 0, c);
  }
  Tensor chunk_sizes(const std::vector<int32_t>& lengths, int64_t chunks) const {
    Tensor out = Tensor::empty({static_cast<int64_t>(lengths.size()), 1, chunks, 1, 1}, DType::f64);
    double* to = out.data<double>();
    for (const int32_t n : lengths)
      for (int64_t i = 0; i < chunks; ++i)
        *to++ = static_cast<double>(in_chunk(n, i, options_.chunk));
    return out;
  }
  // Of empty chunks, which nothing attends to: 1.
  static Tensor reciprocals(const Tensor& sizes) {
    Tensor out = sizes.clone();
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data<double>()[i] = 1 / std::max(out.data<double>()[i], 1.0);
    return out;
  }
  // (B or 1, 1, 1, chunks)
  static Tensor logarithms(const Tensor& sizes) {
    Tensor out = sizes.clone();
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data<double>()[i] = std::log(std::max(out.data<double>()[i], 1.0));
    return out.reshape({sizes.size(0), 1, 1, sizes.size(2)});
  }

  // (B or 1, 1, chunks, 1, c) u8: 1 at real tokens.
  Tensor token_keep(const std::vector<int32_t>& lengths, int64_t chunks) const {
    const int64_t c = options_.chunk;
    Tensor out = Tensor::empty({static_cast<int64_t>(lengths.size()), 1, chunks, 1, c}, DType::u8);
    uint8_t* to = out.data<uint8_t>();
    for (const int32_t n : lengths)
      for (int64_t i = 0; i < chunks * c; ++i) *to++ = i < n;
    return out;
  }
  // (B or 1, 1, blocks, w or 1, w) u8: 1 where a query of a block may attend to a key of it.
  Tensor block_keep(const std::vector<int32_t>& lengths, int64_t blocks, int64_t w) const {
    const int64_t rows = config().causal ? w : 1;
    Tensor out =
        Tensor::empty({static_cast<int64_t>(lengths.size()), 1, blocks, rows, w}, DType::u8);
    uint8_t* to = out.data<uint8_t>();
    for (const int32_t n : lengths)
      for (int64_t b = 0; b < blocks; ++b)
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < w; ++j) *to++ = b * w + j < n && (!config().causal || j <= i);
    return out;
  }
  // (B or 1, 1, blocks, 1, chunks) u8: 1 where the queries of a block may attend to a chunk.
  Tensor chunk_keep(const std::vector<int32_t>& lengths, int64_t blocks, int64_t chunks) const {
    Tensor out =
        Tensor::empty({static_cast<int64_t>(lengths.size()), 1, blocks, 1, chunks}, DType::u8);
    uint8_t* to = out.data<uint8_t>();
    for (const int32_t n : lengths)
      for (int64_t b = 0; b < blocks; ++b)
        for (int64_t i = 0; i < chunks; ++i) {
          const int64_t own = i * options_.chunk / options_.window;  // the block of the chunk
          *to++ = in_chunk(n, i, options_.chunk) > 0 && (config().causal ? own < b : own != b);
        }
    return out;
  }

  EvaOptions options_;
  bool weighs_;
};

}  // namespace

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
