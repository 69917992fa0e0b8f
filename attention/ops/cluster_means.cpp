// c = Σ_(i in c) x_i / n_c of each head, in the order of the tokens; dx_i = dc / n_c for i in c.
//
// y_i = b_c + w_c o_i;  db_c = Σ_(i in c) dy_i,  dw_c = Σ_(i in c) dy_i·o_i,  do_i = w_c dy_i.
#include "longhand/attention/ops/cluster_means.h"

#include <algorithm>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

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
  parallel_for(members.size(0) * H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head)
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

Variable of_clusters(const Variable& base_, const Variable& weight, const Variable& own_,
                     const Tensor& members, const std::vector<int32_t>& lengths) {
  ops::check_float("of_clusters", base_);
  const int64_t B = members.size(0), H = members.size(1), N = members.size(2), D = base_.size(3),
                count = base_.size(1);
  const Variable base = tile::with_contiguous_rows(base_);
  Variables operands{base};
  if (own_.defined()) {
    ops::check_float_pair("of_clusters", base, weight);
    ops::check_float_pair("of_clusters", base, own_);
    operands.push_back(contiguous(weight));
    operands.push_back(tile::with_contiguous_rows(own_));
  }
  check<ShapeError>(base.shape() == Shape{B, count, H, D} &&
                        (!own_.defined() || (weight.shape() == Shape{B, H, count} &&
                                             own_.shape() == Shape{B, N, H, D})),
                    "of_clusters: expected a row for each cluster of the members ", members.shape(),
                    ", got ", base.shape());
  const Tensor w = own_.defined() ? operands[1].value() : Tensor(),
               o = own_.defined() ? operands[2].value() : Tensor();
  Tensor out = Tensor::zeros({B, N, H, D}, base.dtype());
  dispatch_float(base.dtype(), [&]<class T>() {
    const tile::Heads<const T> bases(base.value()), own(o ? o : out);
    const tile::Heads<T> to(out);
    for_heads(members, lengths, count, [&](const HeadClusters& of, int64_t b, int64_t h) {
      const T* const weights = w ? w.data<T>() + (b * H + h) * count : nullptr;
      simd([&] {
        for (int64_t i = 0; i < of.tokens; ++i) {
          const int64_t c = of.of_token[i];
          const T *const x = bases.at(b, c, h), *const from = own.at(b, i, h);
          T* const y = to.at(b, i, h);
          const T factor = weights ? weights[c] : T{0};
#pragma GCC ivdep
          for (int64_t d = 0; d < D; ++d) y[d] = x[d] + factor * from[d];
        }
      });
    });
  });
  return record("of_clusters", out, operands, [=](const Tensor& grad, std::span<GradSlot> slots) {
    const Tensor dense = tile::with_contiguous_rows(grad);
    Tensor dbase = Tensor::zeros({B, count, H, D}, grad.dtype()),
           dw = w ? Tensor::zeros(w.shape(), grad.dtype()) : Tensor(),
           down = w ? Tensor::zeros({B, N, H, D}, grad.dtype()) : Tensor();
    dispatch_float(grad.dtype(), [&]<class T>() {
      const tile::Heads<const T> dy(dense), own(o ? o : dense);
      const tile::Heads<T> to_base(dbase), to_own(w ? down : dbase);
      for_heads(members, lengths, count, [&](const HeadClusters& of, int64_t b, int64_t h) {
        const T* const weights = w ? w.data<T>() + (b * H + h) * count : nullptr;
        std::vector<double> sums(static_cast<size_t>(count * (D + 1)));
        simd([&, all = sums.data()] {
          for (int64_t i = 0; i < of.tokens; ++i) {
            const int64_t c = of.of_token[i];
            const T* const from = dy.at(b, i, h);
            double* const sum = all + c * (D + 1);
#pragma GCC ivdep
            for (int64_t d = 0; d < D; ++d) sum[d] += static_cast<double>(from[d]);
            if (!weights) continue;
            sum[D] += static_cast<double>(kernels::row_dot(from, own.at(b, i, h), D));
            T* const to = to_own.at(b, i, h);
#pragma GCC ivdep
            for (int64_t d = 0; d < D; ++d) to[d] = weights[c] * from[d];
          }
        });
        for (int64_t c = 0; c < count; ++c) {
          const double* const sum = sums.data() + c * (D + 1);
          std::copy_n(sum, D, to_base.at(b, c, h));
          if (w) dw.data<T>()[(b * H + h) * count + c] = static_cast<T>(sum[D]);
        }
      });
    });
    if (slots[0]) slots[0].take(dbase);
    if (!w) return;
    if (slots[1]) slots[1].take(dw);
    if (slots[2]) slots[2].take(down);
  });
}

ClusterBlocks cluster_blocks(const Tensor& members, const std::vector<int32_t>& lengths,
                             int64_t count, int64_t size) {
  const int64_t N = members.size(2), heads = members.size(0) * members.size(1);
  // In a DryRun, memory cannot be read: a sequence is cut into clusters of equal length.
  const auto tokens_of = [&](int64_t head) -> int64_t {
    return lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(head / members.size(1))];
  };
  const auto cluster_of = [&](int64_t head, int64_t i) -> int64_t {
    return is_dry() ? i * count / N : members.data<int32_t>()[head * N + i];
  };
  std::vector<std::vector<int64_t>> begins;  // the first block of each cluster, and their number
  int64_t blocks = 1;
  for (int64_t head = 0; head < heads; ++head) {
    std::vector<int64_t> sizes(static_cast<size_t>(count)), begin{0};
    for (int64_t i = 0; i < tokens_of(head); ++i) ++sizes[static_cast<size_t>(cluster_of(head, i))];
    for (const int64_t n : sizes) begin.push_back(begin.back() + (n + size - 1) / size);
    blocks = std::max(blocks, begin.back());
    begins.push_back(std::move(begin));
  }
  const int64_t places = blocks * size;
  ClusterBlocks out{Tensor::full({members.size(0), members.size(1), places}, -1, DType::i32),
                    Tensor::full(members.shape(), -1, DType::i32),
                    std::vector<int32_t>(static_cast<size_t>(heads * blocks), -1)};
  for (int64_t head = 0; head < heads; ++head) {
    std::vector<int64_t> next;  // the place of the next token of each cluster
    for (int64_t c = 0; c < count; ++c) {
      const auto at = static_cast<size_t>(c);
      next.push_back(begins[static_cast<size_t>(head)][at] * size);
      std::fill(out.of_blocks.begin() + head * blocks + begins[static_cast<size_t>(head)][at],
                out.of_blocks.begin() + head * blocks + begins[static_cast<size_t>(head)][at + 1],
                static_cast<int32_t>(c));
    }
    for (int64_t i = 0; !is_dry() && i < tokens_of(head); ++i) {
      const int64_t place = next[static_cast<size_t>(cluster_of(head, i))]++;
      out.tokens.data<int32_t>()[head * places + place] = static_cast<int32_t>(i);
      out.places.data<int32_t>()[head * N + i] = static_cast<int32_t>(place);
    }
  }
  return out;
}

}  // namespace longhand::attention
