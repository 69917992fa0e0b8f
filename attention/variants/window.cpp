// Softmax attention within a sliding window, with some global tokens. Beltagy et al. 2020 (arXiv
// 2004.05150), section 3.1, with one projection for both kinds of attention:
//
//   out_i = softmax attention of q_i to all j with |i - j| = 0, d, ..., w d, or j < g, or i < g
//
// for a dilation d (causal: and j <= i). The first g tokens attend to all tokens and are attended
// to by all.
//
// With a dilation, tokens r, r + d, r + 2d, ... are a sequence of their own for each r < d: the
// windows of its tokens have no gaps. Without global tokens softmax_attention() skips the keys
// outside of the windows. With them, attention is computed in blocks of C >= w queries: block b is
// compared with the g global keys and the tokens from b C - w to (b + 1) C - 1 + w, and a mask
// keeps the window. This takes N (C + 2w + g) scores, not N².
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/blocks.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {
namespace {

constexpr int64_t least_block = 64;

// The split of N tokens into blocks, and the keys that each block is compared with.
struct Blocks {
  int64_t N, d, n, w, g;  // n: tokens of each of the d sequences that N tokens are split into
  bool causal;
  int64_t C, count;     // tokens per block, number of blocks of a sequence
  int64_t left, right;  // tokens before and after a block that it attends to

  Blocks(int64_t tokens, int64_t window, int64_t dilation, int64_t globals, bool causal_)
      : N(tokens),
        d(std::min(dilation, tokens)),
        n((tokens + d - 1) / d),
        w(std::min(window, n - 1)),
        g(std::min(globals, tokens)),
        causal(causal_),
        C(std::min(n, std::max(w, least_block))),
        count((n + C - 1) / C),
        left(count > 1 ? w : 0),
        right(count > 1 && !causal ? w : 0) {}

  int64_t keys() const { return g + left + C + right; }

  // Returns x (B, N, H, D) as (B d, H, count, C, D), with zeros after the end.
  Variable queries(const Variable& x) const {
    return permute(cut(sequences(x), 0, C), {0, 3, 1, 2, 4});
  }
  // Returns results (B d, H, count, C, D) as (B, N, H, D).
  Variable joined(const Variable& x) const {
    const int64_t H = x.size(1), D = x.size(4);
    const Variable out = reshape(permute(x, {0, 2, 3, 1, 4}), {x.size(0), count * C, H, D});
    return whole(slice(out, 1, 0, n));
  }

  // Returns the keys of each block, (B d, H, count, keys(), D): the global ones, then those before,
  // inside and after the block.
  Variable block_keys(const Variable& all) const {
    Variables parts;
    if (g) {
      const int64_t B = all.size(0), H = all.size(2), D = all.size(3);
      const Variable first = reshape(slice(all, 1, 0, g), {B, 1, 1, g, H, D});
      parts.push_back(
          reshape(broadcast_to(first, {B, d, count, g, H, D}), {B * d, count, g, H, D}));
    }
    const Variable x = sequences(all);
    if (left) parts.push_back(cut(x, -left, left));
    parts.push_back(cut(x, 0, C));
    if (right) parts.push_back(cut(x, C, right));
    return permute(parts.size() == 1 ? parts[0] : concat(parts, 2), {0, 3, 1, 2, 4});
  }

  // Returns x (B, N, H, D) as (B d, n, H, D), with zeros after the end.
  Variable sequences(const Variable& x) const {
    if (d == 1) return x;
    const int64_t B = x.size(0), H = x.size(2), D = x.size(3);
    return reshape(permute(reshape(padded(x, 0, n * d - N), {B, n, d, H, D}), {0, 2, 1, 3, 4}),
                   {B * d, n, H, D});
  }
  // The inverse of sequences().
  Variable whole(const Variable& x) const {
    if (d == 1) return x;
    const int64_t B = x.size(0) / d, H = x.size(2), D = x.size(3);
    const Variable all = permute(reshape(x, {B, d, n, H, D}), {0, 2, 1, 3, 4});
    return slice(reshape(all, {B, n * d, H, D}), 1, 0, N);
  }
  // The number of real tokens in each of the sequences().
  Tensor lengths_of_sequences(const std::vector<int32_t>& lengths) const {
    std::vector<int32_t> out;
    for (const int64_t length : lengths)
      for (int64_t r = 0; r < d; ++r)
        out.push_back(static_cast<int32_t>((std::max(length, r) - r + d - 1) / d));
    return Tensor::from(out, {static_cast<int64_t>(out.size())});
  }

  // Returns (samples d, 1, count, C, keys()) u8: 1 where a query of a block may attend to a key.
  Tensor keep(const std::vector<int32_t>& lengths) const {
    Tensor out =
        Tensor::empty({static_cast<int64_t>(lengths.size()) * d, 1, count, C, keys()}, DType::u8);
    if (is_dry()) return out;
    uint8_t* to = out.data<uint8_t>();
    for (const int32_t length : lengths)
      for (int64_t r = 0; r < d; ++r)
        for (int64_t i = 0; i < count * C; ++i) {
          for (int64_t j = 0; j < g; ++j) *to++ = j < length && (!causal || j <= i * d + r);
          const int64_t begin = i / C * C - left;
          for (int64_t j = begin; j < begin + left + C + right; ++j)
            *to++ =
                j * d + r >= g && j * d + r < length && std::abs(i - j) <= w && (!causal || j <= i);
        }
    return out;
  }

 private:
  // Returns (B, count, width, H, D): for each block b, `width` tokens from b C + begin.
  Variable cut(const Variable& x, int64_t begin, int64_t width) const {
    const int64_t end = begin + count * C;
    const Variable own = slice(x, 1, std::max<int64_t>(begin, 0), std::min(end, n));
    return slice(reshape(padded(own, -begin, end - n), {x.size(0), count, C, x.size(2), x.size(3)}),
                 2, 0, width);
  }
};

struct WindowOptions {
  int64_t window = 64, dilation = 1, global_tokens = 0;
  double dropout = 0;

  void describe(OptionVisitor& v) {
    v.integer("window", window, {0}, "maximum distance w between a query and its keys");
    v.integer("dilation", dilation, {1, int64_t{1} << 31},
              "with d > 1, the window has gaps: only keys at distances that are multiples of d, up "
              "to w d");
    v.integer(
        "global_tokens", global_tokens, {0},
        "number g of tokens at the start that attend to all tokens and are attended to by all");
    describe_dropout(v, dropout);
  }
  Capabilities capabilities() const {
    return {
        .positional = true,
        .causal = true,
        .decodes = true,
        .cross_lengths = false,
        // Dropout depends on the layout of the weights, which differs between a part and the whole.
        .needs = global_tokens == 0 && dropout == 0 ? Needs::neighbours : Needs::heads,
        .time = "N w D",
        .memory = global_tokens == 0 ? "N" : "N w"};
  }
};

class Window final : public Variant {
 public:
  Window(const nn::Scope& scope_, const Config& config, const WindowOptions& options)
      : Variant(scope_, config), options_(options) {}

  // Keeps the keys and values of the global tokens, followed by a ring of those of the last w d + 1
  // tokens.
  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    const Blocks blocks = cut(config().max_length);
    const int64_t g = blocks.g, d = blocks.d, reach = blocks.w * d;
    const auto place = [=, most = config().max_length](int64_t j) {
      check<ShapeError>(j < most, "window: expected at most max_length = ", most,
                        " tokens to decode");
      return j < g ? j : g + (j - g) % (reach + 1);
    };
    const auto seen = [=](int64_t, int64_t t, KeyRuns& parts) {
      const auto see = [&](int64_t at) {
        if (!parts.empty() && parts.back().second == at)
          ++parts.back().second;
        else
          parts.emplace_back(at, at + 1);
      };
      for (int64_t j = 0; j < std::min(g, t + 1); ++j) see(j);
      for (int64_t j = t - std::min(reach, t / d * d); j <= t; j += d)
        if (j >= g) see(place(j));
    };
    return make_cache_decoder(batch, config(),
                              {.scale = config().softmax_scale(),
                               .parts = seen,
                               .capacity = g + reach + 1,
                               .place = place});
  }
  std::string algorithm(int64_t tokens) const override {
    const int64_t reach =
        options_.dilation == 1 ? options_.window : 0;  // a gap leaves out the next token
    if (tokens - 1 > reach && tokens > options_.global_tokens) return {};
    return concat_message("softmax: ", tokens, " tokens all attend to each other");
  }
  // Counts only the scores inside the window; whole blocks have more. Without global tokens the
  // gradients compute them again.
  Work work(int64_t queries, int64_t keys) const override {
    const Blocks blocks = cut(queries);
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double w = number(blocks.w), g = number(blocks.g);
    // Pairs inside the causal window, and pairs with a global token outside of it.
    const double banded = N * (w + 1) - number(blocks.d) * w * (w + 1) / 2;
    const double half =
        std::min(banded + g * std::max(0.0, N - w - 1 - (g - 1) / 2), N * (N + 1) / 2);
    const double scores = config().causal ? half : 2 * half - N;
    if (g == 0) return H * softmax_work(scores, D, N * bytes);
    const auto kept = number(blocks.d * blocks.count * blocks.C * blocks.keys()),
               key_numbers = number(blocks.d * blocks.count * blocks.keys()) * D;
    return H *
           Work{{4 * D * scores, scores}, {8 * D * scores}, (2 * kept + 2 * key_numbers) * bytes};
  }

 private:
  // The number of tokens that a query sees on each side, of N, at most `most`.
  int64_t reach(int64_t N, int64_t most) const {
    return std::min(std::min(options_.window, N) * std::min(options_.dilation, N), most);
  }

  // Attention of some tokens to their neighbourhood; the queries of neighbours are 0 and their
  // results unused.
  Variable attend_near(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
    const auto [begin, N] = pass.tokens;
    const int64_t n = inputs.q.size(1), H = inputs.q.size(2),
                  before = reach(N, n * (pass.join->parts() - 1)),
                  after = config().causal ? 0 : before;
    const Variable around =
        pass.join->with_neighbours(concat({inputs.k, inputs.v}, 2), before, after);
    // Drops what lies before the first token or after the last one.
    const int64_t start = begin - before, first = std::max<int64_t>(0, -start),
                  end = std::min(around.size(1), N - start), own = std::min(n, N - begin);
    if (own <= 0)  // only padding: any result that depends on the neighbours as others do
      return slice(slice(around, 1, before, before + n), 2, H, 2 * H);
    const Variable near = slice(around, 1, first, end);
    const Inputs in{padded(slice(inputs.q, 1, 0, own), before - first, end - before - own),
                    slice(near, 2, 0, H), slice(near, 2, H, 2 * H)};
    const Mask of_near{.lengths = lengths_from(mask.lengths, start + first, end - first)};
    nn::Pass whole = pass;
    whole.tokens = {};
    whole.join = nullptr;
    const Variable out = attend(in, of_near, whole);
    return padded(slice(out, 1, before - first, before - first + own), 0, n - own);
  }

  Blocks cut(int64_t tokens) const {
    return {tokens, options_.window, options_.dilation, options_.global_tokens, config().causal};
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t B = q.size(0), N = q.size(1);
    if (pass.join) return attend_near(inputs, mask, pass);
    const Blocks blocks = cut(N);
    std::vector<int32_t> lengths = sample_lengths(mask.lengths, N);
    // One for all samples, unless sequences of several samples are split.
    if (blocks.d > 1 || blocks.g == 0) lengths.resize(B, static_cast<int32_t>(N));
    const DropoutOptions drop = weight_dropout(options_.dropout, pass);
    if (blocks.g == 0) {
      const Tensor real = blocks.lengths_of_sequences(lengths);
      return blocks.whole(softmax_attention(blocks.sequences(q), blocks.sequences(k),
                                            blocks.sequences(v),
                                            {.causal = blocks.causal,
                                             .window = blocks.w + 1,
                                             .key_lengths = real,
                                             .query_lengths = real,
                                             .dropout = drop}));
    }
    const Variable out = blocks.joined(attend(blocks.queries(q), blocks.block_keys(k),
                                              blocks.block_keys(v), blocks.keep(lengths), drop));
    const int64_t g = blocks.g;
    const Tensor keep =
        definitions::visible(g, N, {.causal = blocks.causal, .lengths = mask.lengths});
    const Variable first =
        transpose(attend(transpose(slice(q, 1, 0, g), 1, 2), transpose(k, 1, 2), transpose(v, 1, 2),
                         keep, {drop.p, drop.generator.fork("global"), drop.section}),
                  1, 2);
    return g == N ? first : concat({first, slice(out, 1, g, N)}, 1);
  }

  // Returns softmax attention (…, N, D) of q (…, N, D) to k and v (…, M, D).
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Tensor& keep,
                  const DropoutOptions& drop) const {
    const double tau = config().softmax_scale();
    Variable p = softmax(masked_scores(keep, matmul(q, transpose(k, -2, -1), tau)));
    p = dropout(p, drop);
    return matmul(p, v);
  }

  WindowOptions options_;
};

using namespace conformance;

void window_limits(Findings& f) {
  for (const bool causal : {false, true})
    for (const OptionSet& options :
         {OptionSet{{"window", N}}, OptionSet{{"window", 2}, {"global_tokens", N}}})
      equal(f,
            concat_message(options.size() == 1 ? "window" : "global tokens", " of N",
                           causal ? ", causal" : "", " and softmax"),
            *make_variant("window", options, made(causal)),
            *make_variant("softmax", {}, made(causal)), 1e-12);
  equal(f, "window 0 and none", *make_variant("window", {{"window", 0}}, made()),
        *make_variant("none", {}, made()), 1e-12);
}

}  // namespace

Spec window_variant() {
  return make_spec<WindowOptions, Window>(
      {.summary = "softmax attention to the tokens at most w away, and to global ones",
       .paper = "Beltagy et al. 2020, arXiv 2004.05150",
       .cases = {{{"window", 3}},
                 {{"window", 3}, {"global_tokens", 2}, {"dropout", 0.3}},
                 {{"window", 2}, {"dilation", 3}, {"global_tokens", 1}},
                 {{"window", 0}}},
       .evidence = {{"limits",
                     "a window of N or N global tokens gives softmax; a window of 0, none",
                     window_limits}}});
}

}  // namespace longhand::attention
