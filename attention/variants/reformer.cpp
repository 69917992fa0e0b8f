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
#include <vector>

#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/ops/hash_buckets.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

constexpr double eps = 1e-6;  // added to the mean square of a key, as in the authors' code

// Keeps the keys and values of all tokens, and for every round the tokens of each bucket.
template <class T>
class ReformerDecoder final : public Decoder {
 public:
  ReformerDecoder(const Config& config, int64_t batch, const Tensor& rotations, int64_t buckets,
                  int64_t window)
      : H_(config.heads),
        G_(config.kv_heads),
        D_(config.head_dim),
        rounds_(rotations.size(1)),
        window_(window),
        hash_(rotations, buckets),
        keys_(static_cast<size_t>(batch * H_)),
        values_(static_cast<size_t>(batch * G_)),
        members_(static_cast<size_t>(batch * H_ * rounds_ * buckets)) {}

  Tensor step(const Token& token) override {
    Tensor out = Tensor::empty(token.q.shape(), token.q.dtype());
    add(token, out.data<T>());
    return out;
  }
  void append(const Token& token) override { add(token, nullptr); }
  int64_t bytes() const override { return bytes_after(tokens_); }
  // Keys, values and, for every round, each token in the list of its bucket.
  int64_t bytes_after(int64_t tokens) const override {
    const int64_t rows = std::ssize(keys_), groups = std::ssize(values_);
    return tokens * ((rows + groups) * D_ * static_cast<int64_t>(sizeof(T)) + rows * rounds_ * 4);
  }
  // Two tokens of a bucket need not be next to each other.
  Traffic traffic() const override {
    const int64_t rows = std::ssize(keys_), seen = std::min(tokens_, rounds_ * window_);
    return {.read = rows * seen * (2 * D_ * static_cast<int64_t>(sizeof(T)) + 4)};
  }

 private:
  void keep(std::vector<T>& to, const T* row) const { to.insert(to.end(), row, row + D_); }

  // Keeps a token and, if `out` is not null, attends to it and those before it.
  void add(const Token& token, T* out) {
    const int64_t B = token.q.size(0);
    const Tensor q = token.q.contiguous(), v = token.v.contiguous();
    const Tensor key = rms_norm(Variable(q), {}, eps).value();
    for (int64_t row = 0; row < B * G_; ++row)
      keep(values_[static_cast<size_t>(row)], v.data<T>() + row * D_);
    parallel_for(B * H_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        std::vector<T>& keys = keys_[static_cast<size_t>(row)];
        keep(keys, key.data<T>() + row * D_);
        const int64_t group = row / H_ * G_ + row % H_ * G_ / H_;
        const std::vector<int32_t> seen = latest_of_buckets(q.data<T>() + row * D_, row);
        if (out)
          attend(q.data<T>() + row * D_, seen, keys, values_[static_cast<size_t>(group)],
                 out + row * D_);
      }
    });
    ++tokens_;
  }

  // The latest tokens of the buckets of a query, to which it is added.
  std::vector<int32_t> latest_of_buckets(const T* q, int64_t row) {
    std::vector<int32_t> seen;
    std::vector<double> products;
    for (int64_t r = 0; r < rounds_; ++r) {
      std::vector<int32_t>& members = members_[static_cast<size_t>(
          (row * rounds_ + r) * hash_.buckets() + hash_(q, row % H_, r, products))];
      const auto latest = std::min<int64_t>(window_, static_cast<int64_t>(members.size()));
      seen.insert(seen.end(), members.end() - latest, members.end());
      members.push_back(static_cast<int32_t>(tokens_));
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    if (seen.empty()) seen.push_back(static_cast<int32_t>(tokens_));
    return seen;
  }

  void attend(const T* q, const std::vector<int32_t>& seen, const std::vector<T>& keys,
              const std::vector<T>& values, T* to) const {
    std::vector<double> p, out(static_cast<size_t>(D_));
    for (const int32_t j : seen) {
      double score = 0;
      for (int64_t d = 0; d < D_; ++d)
        score += static_cast<double>(q[d]) * static_cast<double>(keys[j * D_ + d]);
      p.push_back(score / std::sqrt(static_cast<double>(D_)));
    }
    const double largest = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& x : p) total += x = std::exp(x - largest);
    for (size_t n = 0; n < seen.size(); ++n)
      for (int64_t d = 0; d < D_; ++d)
        out[d] += p[n] / total * static_cast<double>(values[seen[n] * D_ + d]);
    std::transform(out.begin(), out.end(), to, [](double x) { return static_cast<T>(x); });
  }

  int64_t H_, G_, D_, rounds_, window_;
  Hash hash_;
  std::vector<std::vector<T>> keys_, values_;  // of every sample and head: (t, D)
  std::vector<std::vector<int32_t>> members_;  // of every sample, head, round and bucket
  int64_t tokens_ = 0;
};

struct ReformerOptions {
  int64_t buckets = 16, rounds = 2, window = 64, redraw_interval = 1;

  void describe(OptionVisitor& v) {
    v.integer("buckets", buckets, {1, 1 << 16}, "number of buckets of a round: 1 or even");
    v.require(buckets == 1 || buckets % 2 == 0, "buckets",
              "expected an even number, or 1 for no hashing");
    v.integer("rounds", rounds, {1, 64}, "number R of rounds, each with rotations of its own");
    v.integer("window", window, {1, 1 << 24},
              "number w of tokens before a token in its bucket, and not causally also after it, "
              "that it attends to");
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
        random_state_(scope("random_state"), state_tensor(init_random().fork("rotations"))),
        redraws_(scope("redraws"), Tensor::zeros({}, DType::i64)),
        steps_(scope("steps"), Tensor::zeros({}, DType::i64)),
        rotations_(scope("rotations"), draw()) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    std::unique_ptr<Decoder> decoder;
    dispatch_float(parameter_dtype(), [&]<class T>() {
      decoder = std::make_unique<ReformerDecoder<T>>(config(), batch, rotations_.value(),
                                                     options_.buckets, options_.window);
    });
    return decoder;
  }
  // Counts the hashes, and the keys of each query as if all buckets were equal and no key were found
  // in two rounds.
  Work work(int64_t queries, int64_t) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, queries);
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double R = number(options_.rounds), both = config().causal ? 1 : 2,
                 round = std::min(both * number(options_.window),
                                  both / 2 * N / number(options_.buckets)),
                 pairs = H * N * std::min(R * round + 1, N),
                 hash = H * R * number(options_.buckets / 2) * N * D;
    return {{4 * pairs * D + 2 * hash, pairs},
            {10 * pairs * D, pairs},
            H * N * (12 * R + (D + 2) * bytes)};
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
    return bucket_attention(q, rms_norm(q, {}, eps), inputs.v,
                            1 / std::sqrt(static_cast<double>(q.size(3))),
                            hash_buckets(q.value(), Hash(rotations, options_.buckets),
                                         options_.window, config().causal, mask.lengths));
  }

  Tensor draw() const {
    Tensor out = Tensor::empty({config().heads, options_.rounds,
                                std::max<int64_t>(1, options_.buckets / 2), config().head_dim},
                               parameter_dtype());
    fill_normal(out, generator_of(random_state_.value())
                         .fork(static_cast<uint64_t>(*redraws_.value().data<int64_t>())));
    return out;
  }

  void on_step() override {
    const int64_t step = ++*steps_.mutable_value().data<int64_t>();
    if (options_.redraw_interval == 0 || step % options_.redraw_interval != 0) return;
    ++*redraws_.mutable_value().data<int64_t>();
    copy_into(rotations_.mutable_value(), draw());
  }

  ReformerOptions options_;
  nn::Buffer random_state_;     // (2) i64, generator state
  nn::Buffer redraws_, steps_;  // i64: redraws and optimizer steps so far
  nn::Buffer rotations_;        // (H, rounds, buckets / 2, D)
};

using namespace conformance;
using namespace sizes;

void reformer_limits(Findings& f) {
  const Sample x;
  for (const bool causal : {false, true})
    for (const int64_t w : {N, int64_t{3}}) {
      const auto variant =
          make_variant("reformer", {{"buckets", int64_t{1}}, {"rounds", int64_t{2}}, {"window", w}},
                       made(causal));
      const auto softmax = make_variant("softmax", {}, made(causal));
      // Not itself, except the first token causally, which has no other.
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
  const OptionSet once{{"buckets", int64_t{4}}, {"rounds", int64_t{1}}, {"window", int64_t{2}}};
  OptionSet thrice = once;
  thrice[1].second = int64_t{3};
  const auto one_round = make_variant("reformer", once, made(true)),
             rounds = make_variant("reformer", thrice, made(true));
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
