// Softmax attention within a sliding window, with some global tokens. Beltagy et al. 2020 (arXiv
// 2004.05150), section 3.1, with one projection for both kinds of attention:
//
//   out_i = softmax attention of q_i to all j with |i - j| <= w, or j < g, or i < g
//
// (causal: and j <= i). The first g tokens attend to all tokens and are attended to by all.
//
// Computed in blocks of C >= w queries: block b is compared with the g global keys and the tokens
// from b C - w to (b + 1) C - 1 + w, and a mask keeps the window. This takes N (C + 2w + g) scores,
// not N².
#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/dropout.h"

namespace longhand::attention {
namespace {

constexpr int64_t least_block = 64;

// How N tokens are split into blocks, and which keys each block is compared with.
struct Blocks {
  int64_t N, w, g;
  bool causal;
  int64_t C, count;     // tokens per block, number of blocks
  int64_t left, right;  // tokens before and after a block that it attends to

  Blocks(int64_t tokens, int64_t window, int64_t globals, bool causal_)
      : N(tokens),
        w(std::min(window, tokens - 1)),
        g(std::min(globals, tokens)),
        causal(causal_),
        C(std::min(tokens, std::max(w, least_block))),
        count((tokens + C - 1) / C),
        left(count > 1 ? w : 0),
        right(count > 1 && !causal ? w : 0) {}

  int64_t keys() const { return g + left + C + right; }

  // Returns x (B, N, H, D) as (B, H, count, C, D), with zeros after the end.
  Variable queries(const Variable& x) const { return permute(cut(x, 0, C), {0, 3, 1, 2, 4}); }

  // Returns the keys of each block, (B, H, count, keys(), D): the global ones, then those before,
  // inside and after the block.
  Variable block_keys(const Variable& x) const {
    Variables parts;
    if (g) {
      const Variable first = unsqueeze(slice(x, 1, 0, g), 1);
      parts.push_back(broadcast_to(first, {x.size(0), count, g, x.size(2), x.size(3)}));
    }
    if (left) parts.push_back(cut(x, -left, left));
    parts.push_back(cut(x, 0, C));
    if (right) parts.push_back(cut(x, C, right));
    return permute(parts.size() == 1 ? parts[0] : concat(parts, 2), {0, 3, 1, 2, 4});
  }

  // Returns (samples, 1, count, C, keys()) u8: 1 where a query of a block may attend to a key.
  Tensor keep(const std::vector<int32_t>& lengths) const {
    Tensor out =
        Tensor::empty({static_cast<int64_t>(lengths.size()), 1, count, C, keys()}, DType::u8);
    uint8_t* to = out.data<uint8_t>();
    for (const int32_t n : lengths)
      for (int64_t i = 0; i < count * C; ++i) {
        for (int64_t j = 0; j < g; ++j) *to++ = j < n && (!causal || j <= i);
        const int64_t begin = i / C * C - left;
        for (int64_t j = begin; j < begin + left + C + right; ++j)
          *to++ = j >= g && j < n && std::abs(i - j) <= w && (!causal || j <= i);
      }
    return out;
  }

 private:
  // Returns (B, count, width, H, D): for each block b, `width` tokens from b C + begin.
  Variable cut(const Variable& x, int64_t begin, int64_t width) const {
    const int64_t B = x.size(0), H = x.size(2), D = x.size(3), end = begin + count * C;
    Variables parts;
    const auto zeros = [&](int64_t n) {
      if (n > 0) parts.push_back(Variable(Tensor::zeros({B, n, H, D}, x.dtype())));
    };
    zeros(-begin);
    parts.push_back(slice(x, 1, std::max<int64_t>(begin, 0), std::min(end, N)));
    zeros(end - N);
    const Variable all = parts.size() == 1 ? parts[0] : concat(parts, 1);
    return slice(reshape(all, {B, count, C, H, D}), 2, 0, width);
  }
};

// Keeps the keys and values of the global tokens, followed by a ring buffer of the last w + 1
// tokens.
class WindowDecoder final : public Decoder {
 public:
  WindowDecoder(const Config& config, DType dtype, int64_t batch, int64_t window, int64_t globals)
      : window_(std::min(window, config.max_length - 1)),
        globals_(std::min(globals, config.max_length)),
        max_length_(config.max_length),
        keys_(Tensor::zeros({batch, config.kv_heads, globals_ + window_ + 1, config.head_dim},
                            dtype)),
        values_(keys_.clone()) {}

  Tensor step(const Token& token) override {
    const Tensor &q = token.q, &k = token.k, &v = token.v;
    check<ShapeError>(next_ < max_length_, "window: expected at most max_length = ", max_length_,
                      " tokens to decode");
    check<ShapeError>(q.size(0) == keys_.size(0) && q.size(1) % keys_.size(1) == 0,
                      "window: expected queries of ", keys_.size(0),
                      " sequences and a multiple of ", keys_.size(1), " heads, got shape ",
                      q.shape());
    const int64_t t = next_++;
    const auto place = [&](int64_t j) {
      return j < globals_ ? j : globals_ + (j - globals_) % (window_ + 1);
    };
    copy_into(keys_.select(2, place(t)), k);
    copy_into(values_.select(2, place(t)), v);
    std::vector<int64_t> seen;
    for (int64_t j = 0; j <= t; ++j) {
      if (j == std::min(globals_, t)) j = std::max(j, t - window_);
      seen.push_back(place(j));
    }
    const Tensor queries = q.contiguous();
    Tensor out = Tensor::zeros(q.shape(), q.dtype());
    dispatch_float(q.dtype(), [&]<class T>() {
      const int64_t D = q.size(2), rows = q.size(0) * q.size(1), stride = keys_.size(2) * D;
      const int64_t group = q.size(1) / keys_.size(1);
      const T tau = static_cast<T>(1 / std::sqrt(static_cast<double>(D)));
      std::vector<T> weights(seen.size());
      for (int64_t r = 0; r < rows; ++r) {
        const T *query = queries.data<T>() + r * D, *key = keys_.data<T>() + r / group * stride,
                *value = values_.data<T>() + r / group * stride;
        T largest = -std::numeric_limits<T>::infinity(), total = 0;
        for (size_t s = 0; s < seen.size(); ++s) {
          T score = 0;
          for (int64_t d = 0; d < D; ++d) score += query[d] * key[seen[s] * D + d];
          weights[s] = tau * score;
          largest = std::max(largest, weights[s]);
        }
        for (T& w : weights) total += w = std::exp(w - largest);
        T* const to = out.data<T>() + r * D;
        for (size_t s = 0; s < seen.size(); ++s)
          for (int64_t d = 0; d < D; ++d) to[d] += weights[s] / total * value[seen[s] * D + d];
      }
    });
    return out;
  }
  int64_t bytes() const override {
    return 2 * keys_.numel() * static_cast<int64_t>(size_of(keys_.dtype()));
  }

 private:
  int64_t window_, globals_, max_length_;
  Tensor keys_, values_;  // (B, G, g + w + 1, D)
  int64_t next_ = 0;
};

struct WindowOptions {
  int64_t window = 64, global_tokens = 0;
  double dropout = 0;

  void describe(OptionVisitor& v) {
    v.integer("window", window, {0}, "maximum distance w between a query and its keys");
    v.integer(
        "global_tokens", global_tokens, {0},
        "number g of tokens at the start that attend to all tokens and are attended to by all");
    v.number("dropout", dropout, NumberRange::fraction(),
             "dropout probability for attention weights");
  }
  Capabilities capabilities() const {
    return {.positional = true,
            .causal = true,
            .decodes = true,
            .cross_lengths = false,
            .time = "N w D",
            .memory = "N w"};
  }
  // Scores of whole blocks, and copies of the keys and values of each block instead of k and v;
  // global tokens join two results.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double N = e.queries, w = std::min(number(window), N - 1),
                 g = std::min(number(global_tokens), N),
                 C = std::min(N, std::max(w, number(least_block))), count = std::ceil(N / C);
    const double width = g + C + (count > 1 ? (config.causal ? 1 : 2) * w : 0);
    const double pairs = e.batch * z.H * count * C * width,
                 copies = 2 * e.batch * z.H * count * width * z.D,
                 global = g > 0 ? 2 * z.values + z.tokens * g : 0;
    const bool drops = dropout > 0 && e.training;
    const double scratch = (drops ? 1.25 : 2) * pairs;
    return {.kept = pairs * (drops ? 2 : 1) + copies - 2 * z.keys + global + count * C * width / 4,
            .forward = std::max(scratch + z.values - global, z.values),
            .backward = std::max(scratch - (drops ? 2 : 4) * z.values, 0.0)};
  }
};

class Window final : public Variant {
 public:
  Window(const nn::Scope& scope_, const Config& config, const WindowOptions& options)
      : Variant(scope_, config),
        dropout_(options.dropout),
        window_(options.window),
        globals_(options.global_tokens) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return std::make_unique<WindowDecoder>(config(), parameter_dtype(), batch, window_, globals_);
  }
  std::string algorithm(int64_t tokens) const override {
    if (tokens - 1 > window_ && tokens > globals_) return {};
    return concat_message("softmax: ", tokens, " tokens all attend to each other");
  }
  // Counts only the scores inside the window; whole blocks have more.
  Work work(int64_t queries, int64_t) const override {
    const Blocks blocks = cut(queries);
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double H = number(config().heads), D = number(config().head_dim), N = number(queries),
                 w = number(blocks.w), g = number(blocks.g);
    // Pairs inside the causal window, and pairs with a global token outside of it.
    const double banded = N * (w + 1) - w * (w + 1) / 2;
    const double half =
        std::min(banded + g * std::max(0.0, N - w - 1 - (g - 1) / 2), N * (N + 1) / 2);
    const double scores = config().causal ? half : 2 * half - N;
    const auto kept = number(blocks.count * blocks.C * blocks.keys()),
               key_numbers = number(blocks.count * blocks.keys()) * D;
    return H * Work{{4 * D * scores, scores},
                    {8 * D * scores},
                    (2 * kept + 2 * key_numbers) * number(size_of(parameter_dtype()))};
  }

 private:
  Blocks cut(int64_t tokens) const { return {tokens, window_, globals_, config().causal}; }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3);
    check<ShapeError>(k.size(1) == N, "window: expected as many queries as keys, got ", N,
                      " queries and ", k.size(1), " keys");
    const Blocks blocks = cut(N);
    const std::vector<int32_t> lengths = mask.lengths.defined()
                                             ? mask.lengths.to_vector<int32_t>()
                                             : std::vector<int32_t>{static_cast<int32_t>(N)};
    const DropoutOptions drop = nn::dropout_options(dropout_, pass, full_name());
    Variable out = attend(blocks.queries(q), blocks.block_keys(k),
                          blocks.block_keys(v),  // (B, H, count, C, D)
                          blocks.keep(lengths), drop);
    out =
        slice(reshape(permute(out, {0, 2, 3, 1, 4}), {B, blocks.count * blocks.C, H, D}), 1, 0, N);
    if (blocks.g == 0) return out;
    const int64_t g = blocks.g;
    Tensor keep = Tensor::empty({static_cast<int64_t>(lengths.size()), 1, g, N}, DType::u8);
    uint8_t* to = keep.data<uint8_t>();
    for (const int32_t n : lengths)
      for (int64_t i = 0; i < g; ++i)
        for (int64_t j = 0; j < N; ++j) *to++ = j < n && (!blocks.causal || j <= i);
    const Variable first =
        transpose(attend(transpose(slice(q, 1, 0, g), 1, 2), transpose(k, 1, 2), transpose(v, 1, 2),
                         keep, {drop.p, drop.generator.fork("global")}),
                  1, 2);
    return g == N ? first : concat({first, slice(out, 1, g, N)}, 1);
  }

  // Returns softmax attention (…, N, D) of q (…, N, D) to k and v (…, M, D).
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Tensor& keep,
                  const DropoutOptions& drop) const {
    const double tau = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    Variable p = softmax(masked_scores(keep, matmul(q, transpose(k, -2, -1), tau)));
    p = dropout(p, drop.p, drop.generator);
    return matmul(p, v);
  }

  double dropout_;
  int64_t window_, globals_;
};

}  // namespace

Spec window_variant() {
  return make_spec<WindowOptions, Window>(
      {.summary = "softmax attention to the tokens at most w away, and to global ones",
       .paper = "Beltagy et al. 2020, arXiv 2004.05150",
       .cases = {{{"window", 3}},
                 {{"window", 3}, {"global_tokens", 2}, {"dropout", 0.3}},
                 {{"window", 0}}},
       .evidence = {{"limits",
                     "a window of N or N global tokens gives softmax; a window of 0, none",
                     conformance::window_limits}}});
}

}  // namespace longhand::attention
