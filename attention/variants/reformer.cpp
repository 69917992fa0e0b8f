// Reformer: attention within buckets of a locality-sensitive hash. Kitaev et al. 2020 (arXiv
// 2001.04451), section 2. Keys are the queries with norm sqrt(D), and k is not read:
//
//   O_i = Σ_(j in P_i) softmax_j(q_i·k_j / sqrt(D)) v_j,   k_j = sqrt(D) q_j / |q_j|
//   P_i = the union of P_i^r over R rounds, without i itself; {i} if it is empty
//   P_i^r = the tokens j with h_r(q_j) = h_r(q_i) at most w places before or after i in their bucket
//   h_r(x) = argmax [R_r x; -R_r x],   R_r (buckets / 2, D) of N(0, 1)
//
// (causal: at most w places before it). Places count the tokens of a bucket in the order of their
// positions. The paper's chunks of sorted tokens begin at places that depend on all tokens, so that
// later tokens would change what a causal query attends to; a window within the bucket does not.
//
// A softmax over the union counts every key once, as the paper's eq. 7 and its terms log N_ij do.
// Gradients treat the buckets as constants.
#include <algorithm>
#include <cmath>
#include <memory>

#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/bucket_decoder.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

constexpr double eps = 1e-6;  // added to the mean square of a key, as in the authors' code

struct ReformerOptions {
  int64_t buckets = 16, rounds = 2, window = 64, redraw_interval = 1;

  void describe(OptionVisitor& v) {
    v.integer("buckets", buckets, {1, 1 << 16}, "number of buckets of a round: 1 or even");
    v.require(buckets == 1 || buckets % 2 == 0, "buckets",
              "expected an even number, or 1 for no hashing");
    v.integer("rounds", rounds, {1, 64}, "number R of rounds, each with rotations of its own");
    v.integer("window", window, {1, 1 << 24},
              "number w of tokens before it in its bucket that a token attends to; also w after "
              "it, if not causal");
    v.integer("redraw_interval", redraw_interval, {0},
              "optimizer steps between redraws of the rotations; 0: never");
  }
  Capabilities capabilities() const {
    return {.random = true,
            .separate_queries = false,  // its keys are queries
            .positional = true,
            .causal = true,
            .decodes = true,
            .uses_keys = false,
            .cross_lengths = false,
            .needs = Needs::heads,
            .time = "N R (w + b) D",
            .memory = "N (R + D)",
            .state = "rotations, random_state, redraws, steps"};
  }
};

class Reformer final : public Variant {
 public:
  Reformer(const nn::Scope& scope_, const Config& config, const ReformerOptions& options)
      : Variant(scope_, config),
        options_(options),
        redraws_([this](const std::string& name) { return scope(name); },
                 init_random().fork("rotations"), options.redraw_interval),
        rotations_(scope("rotations"), draw()) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_bucket_decoder(batch, config(), Hash(rotations_.value(), options_.buckets),
                               options_.window, eps, parameter_dtype());
  }
  // Counts the hashes, and the keys of each query as if all buckets were equal and no key were
  // found in two rounds.
  Work work(int64_t queries, int64_t) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, queries);
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double R = number(options_.rounds), both = config().causal ? 1 : 2,
                 round = std::min(both * number(options_.window),
                                  both / 2 * N / number(options_.buckets)),
                 pairs = H * N * std::min(R * round + 1, N),
                 hash = H * R * number(options_.buckets / 2) * N * D;
    return softmax_work(pairs, D, H * N * (12 * R + (D + 2) * bytes)) + Work{{2 * hash}, {}};
  }
  std::string advice(int64_t tokens) const override {
    if (options_.buckets > 1 || options_.window < tokens - 1) return {};
    return concat_message(
        "attention.buckets = 1 with attention.window = ", options_.window,
        " attends to all of at most ", tokens,
        " tokens, as softmax attention does; use more buckets or a smaller window");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable& q = inputs.q;
    const Tensor rotations =
        rotations_.value().slice(0, pass.heads.first, pass.heads.first + q.size(2));
    return bucket_attention(q, rms_norm(q, {}, eps), inputs.v, config().softmax_scale(),
                            hash_buckets(q.value(), Hash(rotations, options_.buckets),
                                         options_.window, config().causal, mask.lengths));
  }

  Tensor draw() const {
    Tensor out = Tensor::empty({config().heads, options_.rounds,
                                std::max<int64_t>(1, options_.buckets / 2), config().head_dim},
                               parameter_dtype());
    fill_normal(out, redraws_.generator());
    return out;
  }

  void on_step() override {
    if (redraws_.step()) copy_into(rotations_.mutable_value(), draw());
  }

  ReformerOptions options_;
  Redraws redraws_;
  nn::Buffer rotations_;  // (H, rounds, buckets / 2, D)
};

using namespace conformance;

void reformer_limits(Findings& f) {
  const Sample x;
  for (const bool causal : {false, true})
    for (const int64_t w : {N, int64_t{3}}) {
      const auto variant =
          make_variant("reformer", {{"buckets", 1}, {"rounds", 2}, {"window", w}}, made(causal));
      const auto softmax = make_variant("softmax", {}, made(causal));
      // Not the token itself, except for the first causal one, which has no other.
      Tensor keep = Tensor::zeros({N, N}, DType::u8);
      for (int64_t i = 0; i < N; ++i)
        for (int64_t j = 0; j < N; ++j)
          keep.data<uint8_t>()[i * N + j] =
              (i != j && std::abs(i - j) <= w) || (causal && i == 0 && j == 0);
      const Outcome own = run(*variant, x);
      const Variable q(x.q, true), v(x.v, true);
      const Variable out = softmax->forward(q, rms_norm(q, {}, 1e-6), v, {.keep = keep}, {});
      backward(out, x.cotangent);
      const std::string what = concat_message("one bucket, window ", w, causal ? ", causal" : "");
      f.measured(what, " to ",
                 each_near(f, what, own, {out.value(), q.grad(), own.dk, v.grad()}, 1e-12));
    }
  // Rounds with the same buckets find the same keys, which count once.
  const auto with_rounds = [](int64_t rounds) {
    return make_variant("reformer", {{"buckets", 4}, {"rounds", rounds}, {"window", 2}},
                        made(true));
  };
  const auto one_round = with_rounds(1), rounds = with_rounds(3);
  const Tensor R = one_round->state_dict().at("rotations");  // (H, 1, 2, D)
  set(*rounds, {{"rotations", R.expand({H, 3, 2, D}).contiguous()}});
  equal(f, "three equal rounds and one", *rounds, *one_round, 1e-13);
}

}  // namespace

Spec reformer_variant() {
  return make_spec<ReformerOptions, Reformer>(
      {.summary = "softmax attention within buckets of a locality-sensitive hash of queries",
       .paper = "Kitaev et al. 2020, arXiv 2001.04451",
       .cases = {{{"buckets", 4}, {"window", 5}},
                 {{"buckets", 6}, {"rounds", 3}, {"window", 2}, {"redraw_interval", 1000}},
                 {{"buckets", 1}, {"rounds", 1}, {"window", 3}}},
       .evidence = {{"limits",
                     "one bucket and w >= N is softmax attention with shared queries and keys, "
                     "except to itself; one bucket and w is a window; rounds of equal buckets "
                     "count keys once",
                     reformer_limits}}});
}

}  // namespace longhand::attention
