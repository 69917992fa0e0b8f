// c = Σ_(i in c) x_i / n_c of each head, in the order of the tokens; dx_i = dc / n_c for i in c.
#include "longhand/attention/ops/cluster_means.h"

#include <algorithm>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

// The members of the clusters of one head.
struct HeadClusters {
  std::vector<int64_t> sizes;
  const int32_t* of_token;
  int64_t tokens;

  HeadClusters(const Tensor& members, const std::vector<int32_t>& lengths, int64_t head,
               int64_t count)
      : sizes(static_cast<size_t>(count)),
        of_token(members.data<int32_t>() + head * members.size(2)),
        tokens(lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(head / members.size(1))]) {
    for (int64_t i = 0; i < tokens; ++i) ++sizes[static_cast<size_t>(of_token[i])];
  }
  template <class T>
  T share(int64_t c) const {
    return T{1} / static_cast<T>(std::max<int64_t>(1, sizes[static_cast<size_t>(c)]));
  }
};

// Calls visit(its clusters, b, h) for each head, in parallel.
template <class F>
void for_heads(const Tensor& members, const std::vector<int32_t>& lengths, int64_t count, F visit) {
  const int64_t H = members.size(1);
  parallel_for_each(members.size(0) * H, 1, [&](int64_t head) {
    visit(HeadClusters(members, lengths, head, count), head / H, head % H);
  });
}

}  // namespace

Variable cluster_means(const Variable& x_, const Tensor& members,
                       const std::vector<int32_t>& lengths, int64_t count) {
  ops::check_float("cluster_means", x_);
  check<ShapeError>(x_.rank() == 4, "cluster_means: expected (B, N, H, D), got ", x_.shape());
  const Variable x = tile::with_contiguous_rows(x_);
  const int64_t B = x.size(0), H = x.size(2), D = x.size(3);
  Tensor out = Tensor::zeros({B, count, H, D}, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const tile::Heads<const T> from(x.value());
    const tile::Heads<T> to(out);
    for_heads(members, lengths, count, [&](const HeadClusters& of, int64_t b, int64_t h) {
      for (int64_t i = 0; i < of.tokens; ++i) {
        const T* const row = from.at(b, i, h);
        T* const sum = to.at(b, of.of_token[i], h);
        for (int64_t d = 0; d < D; ++d) sum[d] += row[d];
      }
      for (int64_t c = 0; c < count; ++c)
        for (int64_t d = 0; d < D; ++d) to.at(b, c, h)[d] *= of.share<T>(c);
    });
  });
  return record("cluster_means", out, {x},
                [members, lengths, count, B, H, D, N = x.size(1)](const Tensor& grad,
                                                                  std::span<GradSlot> slots) {
                  const Tensor dense = tile::with_contiguous_rows(grad);
                  Tensor dx = Tensor::zeros({B, N, H, D}, grad.dtype());
                  dispatch_float(grad.dtype(), [&]<class T>() {
                    const tile::Heads<const T> from(dense);
                    const tile::Heads<T> to(dx);
                    for_heads(members, lengths, count,
                              [&](const HeadClusters& of, int64_t b, int64_t h) {
                                for (int64_t i = 0; i < of.tokens; ++i) {
                                  const int64_t c = of.of_token[i];
                                  const T share = of.share<T>(c);
                                  const T* const row = from.at(b, c, h);
                                  T* const own = to.at(b, i, h);
                                  for (int64_t d = 0; d < D; ++d) own[d] = share * row[d];
                                }
                              });
                  });
                  slots[0].take(dx);
                });
}

ClusterBlocks cluster_blocks(const Tensor& members, const std::vector<int32_t>& lengths,
                             int64_t count, int64_t size) {
  const int64_t B = members.size(0), H = members.size(1), N = members.size(2);
  // Each cluster has at most one block that is not full.
  const int64_t blocks = N / size + count, places = blocks * size;
  ClusterBlocks out{Tensor::full({B, H, places}, -1, DType::i32),
                    Tensor::full(members.shape(), -1, DType::i32),
                    std::vector<int32_t>(static_cast<size_t>(B * H * blocks), -1)};
  for_heads(members, lengths, count, [&](const HeadClusters& of, int64_t b, int64_t h) {
    const int64_t head = b * H + h;
    int32_t* block = out.of_blocks.data() + head * blocks;
    std::vector<int64_t> next;  // the place of the next token of each cluster
    for (int64_t c = 0, at = 0; c < count; ++c) {
      next.push_back(at * size);
      for (int64_t n = of.sizes[static_cast<size_t>(c)]; n > 0; n -= size, ++at)
        *block++ = static_cast<int32_t>(c);
    }
    for (int64_t i = 0; i < of.tokens; ++i) {
      const int64_t place = next[static_cast<size_t>(of.of_token[i])]++;
      out.tokens.data<int32_t>()[head * places + place] = static_cast<int32_t>(i);
      out.places.data<int32_t>()[head * N + i] = static_cast<int32_t>(place);
    }
  });
  return out;
}

}  // namespace longhand::attention
