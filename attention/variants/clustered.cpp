// Clustered attention: the mean query of each cluster attends on behalf of its queries. Vyas et al.
// 2020 (arXiv 2007.04825). With centroids c of C clusters of the queries of a head,
//
//   O_i = Σ_j A_cj v_j,   A_c = softmax(c Kᵀ / sqrt(D)),   c the centroid of query i      (section 3.2)
//
// and with topk > 0, T_c the keys with the topk highest A_cj and m_c = Σ_(j in T_c) A_cj,
//
//   O_i = m_c Σ_(j in T_c) softmax_(j in T_c)(q_i·k_j / sqrt(D)) v_j + Σ_(j not in T_c) A_cj v_j
//
// (section 3.3): the most important keys get the weights of the query itself. With the attention of
// centroids to all keys and to T_c, that is (c to all) + m_c ((i to T_c) - (c to T_c)). Clusters
// are found by Lloyd's algorithm started from segments of equal length, so nothing is random; the
// authors cluster random hashes of the queries. Gradients treat clusters and T_c as constants.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "longhand/attention/bases/landmarks.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/ops/cluster_means.h"
#include "longhand/attention/ops/highest.h"
#include "longhand/attention/ops/listed_attention.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/ops/take_rows.h"
#include "longhand/attention/registry.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {
namespace {

struct ClusteredOptions {
  int64_t clusters = 64, topk = 32, kmeans_steps = 3;

  void describe(OptionVisitor& v) {
    v.integer("clusters", clusters, {1, 1 << 16}, "number C of clusters of the queries of a head");
    v.integer(
        "topk", topk, {0, 1 << 24},
        "number of keys of each cluster whose weights are those of the query itself; 0: none");
    v.integer("kmeans_steps", kmeans_steps, {0, 1000},
              "number of iterations of Lloyd's algorithm, starting from segments of the sequence");
  }
  Capabilities capabilities() const {
    return {.separate_queries = false,
            .positional = true,  // clusters start from segments
            .causal_reason = "the mean of a cluster contains later queries",
            .needs = Needs::heads,
            .time = topk ? "N (C + k) D" : "N C D",
            .memory = topk ? "N + C k" : "N"};
  }
};

class Clustered final : public Variant {
 public:
  Clustered(const nn::Scope& scope_, const Config& config, const ClusteredOptions& options)
      : Variant(scope_, config), options_(options) {}

  int64_t rank(int64_t tokens) const override {
    return options_.topk > 0 ? tokens : options_.clusters;
  }
  // Counts the distances of Lloyd's algorithm, the means, and the products with keys and values,
  // whose scores the backward pass recomputes.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double C = std::min(static_cast<double>(options_.clusters), N),
                 k = std::min(static_cast<double>(options_.topk), M),
                 clustering = static_cast<double>(options_.kmeans_steps) * 2 * N * C * D;
    return H *
           (softmax_work(C * M + N * k, D, bytes * C * D) + Work{{clustering + N * D}, {N * D}});
  }
  std::string advice(int64_t tokens) const override {
    if (2 * options_.clusters < tokens) return {};
    return concat_message("attention.clusters = ", options_.clusters, " for at most ", tokens,
                          " tokens takes the time of softmax attention or more; reduce it");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t N = q.size(1), C = std::min(options_.clusters, N);
    const std::vector<int32_t> lengths = sample_lengths(mask.lengths, N);
    const Clusters clusters =
        cluster(q.value(), lengths, landmark_counts(lengths, C), C, options_.kmeans_steps, false);
    // Centroids of empty clusters, which no query reads, are 0.
    const Variable centroids = cluster_means(q, clusters.members, lengths, C);  // (B, C, H, D)
    const SoftmaxAttentionOptions of_all{.key_lengths = mask.lengths};
    if (options_.topk == 0)
      return take_rows(softmax_attention(centroids, k, v, of_all), clusters.members);

    const auto [all, log_all] = softmax_attention_with_sums(centroids, k, v, of_all);
    const Tensor lists = highest_keys(centroids.value(), k.value(), options_.topk,
                                      {.scale = config().softmax_scale(), .lengths = mask.lengths});
    // Gathering costs more than it saves if the lists hold over twice as many keys as there are.
    const auto [own, best, log_best] =
        lists.size(3) * C > 2 * k.size(1)
            ? attend_to_lists(q, centroids, k, v, lists, clusters.members, lengths)
            : attend_to_gathered(q, centroids, k, v, lists, clusters.members, lengths);
    Variable log_mass = log_best - log_all;  // (B, H, C)
    if (mask.lengths.defined())
      log_mass =
          masked_scores(real_tokens(mask.lengths, C).squeeze(3).squeeze(2).unsqueeze(1), log_mass);
    const Variable mass = unsqueeze(transpose(exp(log_mass), 1, 2), 3);  // (B, C, H, 1)
    return take_rows(all - mass * best, clusters.members) + take_rows(mass, clusters.members) * own;
  }

  // Attention to the keys T_c on the lists (B, H, C, k), with logarithms of normalisers.
  struct ToLists {
    Variable own;             // (B, N, H, D): of queries, each to the list of its cluster
    Variable best, log_best;  // (B, C, H, D) and (B, H, C): of centroids
  };
  // Attends query by query.
  ToLists attend_to_lists(const Variable& q, const Variable& centroids, const Variable& k,
                          const Variable& v, const Tensor& lists, const Tensor& members,
                          const std::vector<int32_t>& lengths) const {
    const int64_t N = q.size(1), H = q.size(2), C = centroids.size(1);
    const auto [out, log_sums] = listed_attention_with_sums(
        concat({q, centroids}, 1), k, v, {.scale = config().softmax_scale()},
        [=](int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys) {
          const int64_t head = b * H + h;
          if (i < N && i >= lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(b)]) return;
          const int64_t c = i < N ? members.data<int32_t>()[head * N + i] : i - N;
          append_list(lists, head * C + c, keys);
        });
    return {slice(out, 1, 0, N), slice(out, 1, N, N + C), slice(log_sums, 2, N, N + C)};
  }
  // Attends in blocks of queries of one cluster, to the rows of its list.
  static ToLists attend_to_gathered(const Variable& q, const Variable& centroids, const Variable& k,
                                    const Variable& v, const Tensor& lists, const Tensor& members,
                                    const std::vector<int32_t>& lengths) {
    const int64_t B = lists.size(0), H = lists.size(1), C = lists.size(2), most = lists.size(3);
    const Tensor of_lists = lists.reshape({B, H, C * most});
    const Variable keys = take_rows(k, of_lists), values = take_rows(v, of_lists);
    // Lists of short samples are not full.
    const Variable bias = lengths.size() > 1 || lengths[0] < k.size(1)
                              ? Variable(missing(of_lists, q.dtype()))
                              : Variable();
    const auto attend = [&](const Variable& queries, BlockPattern pattern) {
      pattern.key_block = most;
      return softmax_attention_with_sums(
          queries, keys, values,
          {.pattern = std::make_shared<const BlockPattern>(std::move(pattern)), .key_bias = bias});
    };
    BlockPattern of_centroids{.block = 1};
    for (int64_t c = 0; c < C; ++c) of_centroids.add_row(c);
    const auto [best, log_best] = attend(centroids, std::move(of_centroids));

    constexpr int64_t block = 16;
    const ClusterBlocks blocks = cluster_blocks(members, lengths, C, block);
    BlockPattern of_queries{.block = block, .samples = B, .heads = H};
    for (const int32_t c : blocks.of_blocks) of_queries.add_row(c);
    const Variable own =
        take_rows(attend(take_rows(q, blocks.tokens), std::move(of_queries)).out, blocks.places);
    return {own, best, log_best};
  }

  // (B, n, H): -inf where the index (B, H, n) is negative, otherwise 0.
  static Tensor missing(const Tensor& index, DType dtype) {
    Tensor out = Tensor::zeros(index.shape(), dtype);
    if (!is_dry())
      dispatch_float(dtype, [&]<class T>() {
        std::transform(index.data<int32_t>(), index.data<int32_t>() + index.numel(), out.data<T>(),
                       [](int32_t j) { return j < 0 ? static_cast<T>(never) : T{0}; });
      });
    return out.transpose(1, 2);
  }

  ClusteredOptions options_;
};

using namespace conformance;

void clustered_limits(Findings& f) {
  const auto softmax = make_variant("softmax", {}, made());
  for (const int64_t topk : {int64_t{0}, int64_t{5}, N}) {
    const int64_t clusters = topk == N ? 3 : N;
    equal(f, concat_message(clusters, " clusters, topk = ", topk, " and softmax"),
          *make_variant("clustered", {{"clusters", clusters}, {"topk", topk}}, made()), *softmax,
          1e-12);
  }
  const Sample x;
  const auto single = make_variant("clustered", {{"clusters", 1}, {"topk", 0}}, made());
  const Tensor centre = broadcast_to(mean(Variable(x.q), {1}, true), x.q.shape()).value();
  equal(f, "one cluster", forward(*single, x), forward(*softmax, centre, x.k, x.v), 1e-12);
}

}  // namespace

Spec clustered_variant() {
  return make_spec<ClusteredOptions, Clustered>(
      {.summary = "softmax attention of cluster means, corrected for each query at its best keys",
       .paper = "Vyas et al. 2020, arXiv 2007.04825",
       .cases = {{{"clusters", 4}, {"topk", 3}},
                 {{"clusters", 5}, {"topk", 0}},
                 {{"clusters", 3}, {"topk", 20}, {"kmeans_steps", 1}}},
       .evidence = {{"limits",
                     "as many clusters as tokens, or topk >= N, give softmax; one cluster without "
                     "topk gives all queries the result of the mean query",
                     clustered_limits}}});
}

}  // namespace longhand::attention
