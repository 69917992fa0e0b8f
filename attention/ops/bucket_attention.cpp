// In the order of a round, the keys of consecutive tokens are consecutive too: a block of queries
// attends to one range of keys, as in softmax_attention.cpp (see there for the formulas), with a
// mask of pairs. In round r, query i attends to the places [from_r(i), to_r(i)), except for itself
// and for keys j found in an earlier round e: from_e(i) <= place_e(j) < to_e(i).
//
// Rounds run one after the other and carry on the maxima, sums and results of their queries. Within
// a round, tasks are spans of queries in sorted order. A span copies the rows of its keys, which
// are scattered in memory, once. Neighbouring spans share keys within the window, so in the
// backward pass the even spans add to the gradients of keys first, then the odd ones.
#include "longhand/attention/ops/bucket_attention.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

using kernels::gemm_tile;
using namespace tile;

// Maximum tokens per tile. Queries fill two AVX-512 vectors: more would see keys of other buckets.
constexpr int64_t query_block = 32, key_block = 96;
constexpr int64_t smallest_span = 8 * query_block;

// The buckets of one head.
class HeadBuckets {
 public:
  HeadBuckets(const Buckets& all, int64_t head)
      : N_(all.sorted.size(3)),
        rounds_(all.sorted.size(2)),
        buckets_(all.begin.size(3) - 1),
        window_(std::min(all.window, N_)),
        causal_(all.causal),
        bucket_(all.bucket.data<int32_t>() + head * rounds_ * N_),
        sorted_(all.sorted.data<int32_t>() + head * rounds_ * N_),
        place_(all.place.data<int32_t>() + head * rounds_ * N_),
        begin_(all.begin.data<int32_t>() + head * rounds_ * (buckets_ + 1)) {}

  struct Range {
    int32_t from, to;
  };
  // The places of round r that a token attends to, including its own unless causal.
  Range keys(int64_t r, int32_t token) const {
    const int64_t place = this->place(r)[token];
    const int32_t* const begin = begin_ + r * (buckets_ + 1) + bucket_[r * N_ + token];
    const int64_t from = std::max<int64_t>(begin[0], place - window_),
                  to = causal_ ? place : std::min<int64_t>(begin[1], place + window_ + 1);
    return {static_cast<int32_t>(from), static_cast<int32_t>(to)};
  }
  // Whether it attends to no other token.
  bool alone(int32_t token) const {
    for (int64_t r = 0; r < rounds_; ++r)
      if (const Range range = keys(r, token); range.to - range.from > (causal_ ? 0 : 1))
        return false;
    return true;
  }

  const int32_t* sorted(int64_t r) const { return sorted_ + r * N_; }
  const int32_t* place(int64_t r) const { return place_ + r * N_; }
  int64_t tokens() const { return begin_[buckets_]; }  // in buckets

 private:
  int64_t N_, rounds_, buckets_, window_;
  bool causal_;
  const int32_t *bucket_, *sorted_, *place_, *begin_;
};

struct Operation {
  Tensor q, k, v;
  double scale;
  Buckets buckets;
  Tensor out, lse;  // lse (B, H, N): log Σ e^s, as exponents of Base

  int64_t heads() const { return q.size(2); }
  int64_t width() const { return q.size(3); }
  int64_t rounds() const { return buckets.sorted.size(2); }
  // Queries per task. The keys of spans two apart are disjoint.
  int64_t span() const {
    const int64_t least = std::max(smallest_span, 2 * std::min(buckets.window, q.size(1)));
    return (least + query_block - 1) / query_block * query_block;
  }
  int64_t spans() const { return (q.size(1) + span() - 1) / span(); }
  int64_t keys_of_span() const {
    return std::min(span() + 2 * std::min(buckets.window, q.size(1)) + 1, q.size(1));
  }
};

// The scores of a block of queries of round r, in sorted order, against up to key_block keys.
template <class T>
class Block {
 public:
  Block(const Operation& op, Scratch& scratch)
      : D_(op.width()),
        q_(scratch.take<T>(D_ * query_block)),
        s_(scratch.take<T>(key_block * query_block)),
        self_(scratch.take<int32_t>(query_block)),
        from_(scratch.take<int32_t>(op.rounds() * query_block)),
        keys_(scratch.take<uint32_t>(op.rounds() * query_block)) {}

  // Loads the queries from `first` on, with rows (., D), multiplied by `factor`.
  void start(const HeadBuckets& head, int64_t r, int64_t first, int64_t count, const T* rows,
             T factor) {
    head_ = &head, round_ = r, count_ = count, lanes_ = whole_lanes(count);
    pack_transposed(rows, D_, count, D_, factor, q_);
    std::fill_n(from_, (r + 1) * query_block, 0);
    std::fill_n(keys_, (r + 1) * query_block, 0u);
    std::fill_n(self_, query_block, -1);
    begin_ = head.tokens(), end_ = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t token = head.sorted(r)[first + i];
      const bool alone = head.alone(token);
      if (!alone) self_[i] = static_cast<int32_t>(first + i);
      for (int64_t e = 0; e <= r; ++e) {
        HeadBuckets::Range keys = head.keys(e, token);
        if (alone && e == 0) keys.to = keys.from + 1;
        from_[e * query_block + i] = keys.from;
        keys_[e * query_block + i] = static_cast<uint32_t>(keys.to - keys.from);
        if (e < r || keys.to == keys.from) continue;
        begin_ = std::min<int64_t>(begin_, keys.from);
        end_ = std::max<int64_t>(end_, keys.to);
      }
    }
  }

  int64_t count() const { return count_; }
  int64_t lanes() const { return lanes_; }
  // The places of its keys.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  T* scores() { return s_; }  // (keys, lanes)

  // Scores against the keys at the places from `first` on, k (count, D); -inf where a query does
  // not attend.
  void compute(int64_t first, int64_t count, const T* k) {
    gemm_tile<T>(count, lanes_, D_, {k, D_, 1}, q_, lanes_, s_, lanes_, false);
    for (int64_t n = 0; n < count; ++n) {
      T* const row = s_ + n * lanes_;
      const auto place = static_cast<int32_t>(first + n);
      const int32_t token = head_->sorted(round_)[place];
      simd([&, self = self_, lanes = lanes_, from = from_ + round_ * query_block,
            keys = keys_ + round_ * query_block] {
        for_lanes(lanes, [=](int64_t i) {
          const bool near = static_cast<uint32_t>(place - from[i]) < keys[i];
          row[i] = (near & (place != self[i])) ? row[i] : -infinity<T>;
        });
        for (int64_t e = 0; e < round_; ++e) {
          const int32_t earlier = head_->place(e)[token];
          const int32_t* const begin = from_ + e * query_block;
          const uint32_t* const found = keys_ + e * query_block;
          for_lanes(lanes, [=](int64_t i) {
            const bool near = static_cast<uint32_t>(earlier - begin[i]) < found[i];
            row[i] = near ? -infinity<T> : row[i];
          });
        }
      });
    }
  }

 private:
  int64_t D_;
  T *const q_, *const s_;  // q_ (D, lanes)
  int32_t* const self_;    // the place of each query, excluded from its keys, or -1
  // The first place that it attends to and the number, per round so far: (round + 1, query_block).
  int32_t* const from_;
  uint32_t* const keys_;
  const HeadBuckets* head_ = nullptr;
  int64_t round_ = 0, count_ = 0, lanes_ = 0, begin_ = 0, end_ = 0;
};

// Sets to (count, D) to the rows of tokens.
template <class T>
void gather_rows(const Heads<const T>& from, int64_t b, int64_t h, const int32_t* tokens,
                 int64_t count, int64_t D, T* to) {
  for (int64_t n = 0; n < count; ++n) std::copy_n(from.at(b, tokens[n], h), D, to + n * D);
}
// Adds rows (count, D) to the rows of tokens.
template <class T>
void add_rows(Tensor& gradient, int64_t b, int64_t h, const int32_t* tokens, int64_t count,
              int64_t D, const T* rows) {
  if (!gradient.defined()) return;
  const Heads<T> to(gradient);
  simd([&] {
    for (int64_t n = 0; n < count; ++n) {
      T* const row = to.at(b, tokens[n], h);
      const T* const from = rows + n * D;
#pragma GCC ivdep
      for (int64_t d = 0; d < D; ++d) row[d] += from[d];
    }
  });
}

// The memory of a task, for the results or the gradients of a span of queries.
template <class T>
class Task {
 public:
  Task(const Operation& op, bool gradients, Scratch& scratch) : op_(op), block_(op, scratch) {
    const int64_t of_block = query_block * op.width(), of_span = op.keys_of_span() * op.width();
    scratch.take_each(of_span, k_, v_);
    scratch.take_each(of_block, rows_, sums_);
    if (!gradients) {
      scratch.take_each(query_block, most_, shift_, factor_, sum_, part_);
      return;
    }
    scratch.take_each(of_block, dout_, dout_lanes_);
    scratch.take_each(query_block, lse_, delta_);
    scratch.take_each(of_span, dk_, dv_);
    ds_ = scratch.take<T>(key_block * query_block);
  }

  // sums (B, H, N): the sums of powers so far, relative to the maxima in `lse`.
  void forward(int64_t head, int64_t r, int64_t span, Tensor& out, Tensor& lse, Tensor& sums) {
    const int64_t N = op_.q.size(1);
    if (!start(head, r, span)) return;
    for (int64_t at = first_; at < last_; at += query_block)
      forward_block(at, std::min(query_block, last_ - at), Heads<T>(out), lse.data<T>() + head * N,
                    sums.data<T>() + head * N);
  }

  void backward(int64_t head, int64_t r, int64_t span, const Tensor& dout,
                std::array<Tensor, 3>& gradients) {
    if (!start(head, r, span)) return;
    const int64_t D = op_.width(), keys = end_ - begin_;
    std::fill_n(dk_, keys * D, T{0});
    std::fill_n(dv_, keys * D, T{0});
    for (int64_t at = first_; at < last_; at += query_block)
      backward_block(at, std::min(query_block, last_ - at),
                     op_.lse.template data<T>() + head * op_.q.size(1), dout, gradients[0]);
    add_rows(gradients[1], b_, h_, buckets_->sorted(r) + begin_, keys, D, dk_);
    add_rows(gradients[2], b_, h_, buckets_->sorted(r) + begin_, keys, D, dv_);
  }

 private:
  // Selects a span of a round of a head and reads its keys, by place. False if it has no queries.
  bool start(int64_t head, int64_t r, int64_t span) {
    b_ = head / op_.heads(), h_ = head % op_.heads(), round_ = r;
    buckets_.emplace(op_.buckets, head);
    first_ = span * op_.span(), last_ = std::min(first_ + op_.span(), buckets_->tokens());
    if (first_ >= last_) return false;
    // Both ends of the ranges are non-decreasing. A token on its own attends to itself.
    const int32_t* const sorted = buckets_->sorted(r);
    begin_ = buckets_->keys(r, sorted[first_]).from;
    end_ = std::max<int64_t>(buckets_->keys(r, sorted[last_ - 1]).to, last_);
    gather_rows(Heads<const T>(op_.k), b_, h_, sorted + begin_, end_ - begin_, op_.width(), k_);
    gather_rows(Heads<const T>(op_.v), b_, h_, sorted + begin_, end_ - begin_, op_.width(), v_);
    return true;
  }

  // Selects a block of queries and loads them.
  const int32_t* start_block(int64_t first, int64_t count) {
    const int32_t* const tokens = buckets_->sorted(round_) + first;
    gather_rows(Heads<const T>(op_.q), b_, h_, tokens, count, op_.width(), rows_);
    block_.start(*buckets_, round_, first, count, rows_,
                 static_cast<T>(op_.scale * Base<T>::log_e));
    std::fill_n(sums_, op_.width() * block_.lanes(), T{0});
    return tokens;
  }

  void forward_block(int64_t first, int64_t count, const Heads<T>& out, T* lse, T* sums) {
    const int64_t D = op_.width();
    const int32_t* const tokens = start_block(first, count);
    const int64_t lanes = block_.lanes();
    std::fill_n(most_, lanes, -infinity<T>);
    std::fill_n(sum_, lanes, T{0});
    if (round_ > 0) {
      gather_rows(Heads<const T>(op_.out), b_, h_, tokens, count, D, rows_);
      pack_transposed(rows_, D, count, D, T{1}, sums_);
      for (int64_t i = 0; i < count; ++i) most_[i] = lse[tokens[i]], sum_[i] = sums[tokens[i]];
    }
    for (int64_t at = block_.begin(); at < block_.end(); at += key_block)
      add_keys(at, std::min(key_block, block_.end() - at));
    const bool final = round_ + 1 == op_.rounds();
    if (final)
      simd([&, o = sums_, sum = sum_] {
        for (int64_t d = 0; d < D; ++d)
          for_lanes(lanes, [=, to = o + d * lanes](int64_t i) { to[i] /= sum[i]; });
      });
    kernels::transpose_into(D, count, sums_, lanes, T{1}, rows_, D, false);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(rows_ + i * D, D, out.at(b_, tokens[i], h_));
      lse[tokens[i]] = final ? most_[i] + Base<T>::log(sum_[i]) : most_[i];
      sums[tokens[i]] = sum_[i];
    }
  }

  // Adds keys to the result, as softmax_attention() does.
  void add_keys(int64_t first, int64_t count) {
    const int64_t lanes = block_.lanes(), D = op_.width(), row = (first - begin_) * D;
    block_.compute(first, count, k_ + row);
    simd([&, s = block_.scores(), o = sums_, most = most_, shift = shift_, factor = factor_,
          sum = sum_, part = part_] {
      for_lanes(lanes, [=](int64_t i) { factor[i] = most[i], part[i] = 0; });
      for (int64_t n = 0; n < count; ++n)
        for_lanes(lanes,
                  [=, x = s + n * lanes](int64_t i) { most[i] = x[i] > most[i] ? x[i] : most[i]; });
      for_lanes(lanes, [=](int64_t i) {
        shift[i] = most[i] == -infinity<T> ? T{0} : most[i];
        factor[i] = Base<T>::power(factor[i] - shift[i]);
      });
      for (int64_t n = 0; n < count; ++n)
        for_lanes(lanes, [=, x = s + n * lanes](int64_t i) {
          x[i] = Base<T>::power(x[i] - shift[i]);
          part[i] += x[i];
        });
      for_lanes(lanes, [=](int64_t i) { sum[i] = factor[i] * sum[i] + part[i]; });
      for (int64_t d = 0; d < D; ++d)
        for_lanes(lanes, [=, to = o + d * lanes](int64_t i) { to[i] *= factor[i]; });
    });
    gemm_tile<T>(D, lanes, count, {v_ + row, 1, D}, block_.scores(), lanes, sums_, lanes, true);
  }

  void backward_block(int64_t first, int64_t count, const T* lse, const Tensor& dout, Tensor& dq) {
    const int64_t D = op_.width();
    const int32_t* const tokens = start_block(first, count);
    const int64_t lanes = block_.lanes();
    gather_rows(Heads<const T>(dout), b_, h_, tokens, count, D, dout_);
    pack_transposed(dout_, D, count, D, T{1}, dout_lanes_);
    std::fill_n(lse_, lanes, T{0});
    std::fill_n(delta_, lanes, T{0});
    const Heads<const T> out(op_.out);
    simd([&] {
      for (int64_t i = 0; i < count; ++i) {
        lse_[i] = lse[tokens[i]];
        delta_[i] = kernels::row_dot(dout_ + i * D, out.at(b_, tokens[i], h_), D);
      }
    });
    for (int64_t at = block_.begin(); at < block_.end(); at += key_block)
      add_gradients(at, std::min(key_block, block_.end() - at));
    kernels::transpose_into(D, count, sums_, lanes, T{1}, dout_, D, false);
    add_rows(dq, b_, h_, tokens, count, D, dout_);
  }

  void add_gradients(int64_t first, int64_t count) {
    const int64_t lanes = block_.lanes(), queries = block_.count(), D = op_.width(),
                  row = (first - begin_) * D;
    T* const p = block_.scores();
    block_.compute(first, count, k_ + row);
    gemm_tile<T>(count, lanes, D, {v_ + row, D, 1}, dout_lanes_, lanes, ds_, lanes, false);
    simd([&, ds = ds_, lse = lse_, delta = delta_, scale = static_cast<T>(op_.scale)] {
      for (int64_t n = 0; n < count; ++n)
        for_lanes(lanes, [=, x = p + n * lanes, y = ds + n * lanes](int64_t i) {
          x[i] = Base<T>::power(x[i] - lse[i]);
          y[i] = scale * x[i] * (y[i] - delta[i]);
        });
    });
    gemm_tile<T>(count, D, queries, {p, lanes, 1}, dout_, D, dv_ + row, D, true);
    gemm_tile<T>(count, D, queries, {ds_, lanes, 1}, rows_, D, dk_ + row, D, true);
    gemm_tile<T>(D, lanes, count, {k_ + row, 1, D}, ds_, lanes, sums_, lanes, true);
  }

  const Operation& op_;
  Block<T> block_;
  std::optional<HeadBuckets> buckets_;
  int64_t b_ = 0, h_ = 0, round_ = 0, first_ = 0, last_ = 0;  // of the span
  int64_t begin_ = 0, end_ = 0;                               // of its keys
  T *rows_ = nullptr, *sums_ = nullptr;  // q (query_block, D); the result or dq (D, lanes)
  T *most_ = nullptr, *shift_ = nullptr, *factor_ = nullptr, *sum_ = nullptr, *part_ = nullptr;
  T *k_ = nullptr, *v_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;  // of these
  T* ds_ = nullptr;
  T *dout_ = nullptr, *dout_lanes_ = nullptr, *lse_ = nullptr, *delta_ = nullptr;
};

template <class T>
void forward(const Operation& op, Tensor& out, Tensor& lse) {
  Tensor sums = Tensor::empty(lse.shape(), lse.dtype());
  out.fill(0);
  const int64_t spans = op.spans();
  for (int64_t r = 0; r < op.rounds(); ++r)
    parallel_for(op.q.size(0) * op.heads() * spans, 2, [&](int64_t begin, int64_t end) {
      Workspace<Task<T>> task(op, false);
      for (int64_t at = begin; at < end; ++at)
        task->forward(at / spans, r, at % spans, out, lse, sums);
    });
}

template <class T>
void backward(const Operation& op, const Tensor& dout, std::array<Tensor, 3>& gradients) {
  for (int64_t r = 0; r < op.rounds(); ++r)
    for (const int64_t odd : {0, 1}) {
      const int64_t spans = (op.spans() + 1 - odd) / 2;
      parallel_for(op.q.size(0) * op.heads() * spans, 2, [&](int64_t begin, int64_t end) {
        Workspace<Task<T>> task(op, true);
        for (int64_t at = begin; at < end; ++at)
          task->backward(at / spans, r, 2 * (at % spans) + odd, dout, gradients);
      });
    }
}

}  // namespace

Variable bucket_attention(const Variable& queries, const Variable& keys, const Variable& values,
                          double scale, const Buckets& buckets) {
  const Variable q = with_contiguous_rows(queries), k = with_contiguous_rows(keys),
                 v = with_contiguous_rows(values);
  check<ShapeError>(q.rank() == 4 && k.shape() == q.shape() && v.shape() == q.shape() &&
                        q.dtype() == k.dtype() && q.dtype() == v.dtype(),
                    "bucket_attention: expected q, k and v (B, N, H, D) of one dtype, got q ",
                    q.shape(), " ", q.dtype(), ", k ", k.shape(), " ", k.dtype(), ", v ", v.shape(),
                    " ", v.dtype());
  const Shape lists{q.size(0), q.size(2), buckets.sorted.size(2), q.size(1)};
  for (const Tensor* const x : {&buckets.bucket, &buckets.sorted, &buckets.place})
    check_operand("bucket_attention", "buckets", *x, DType::i32, lists);
  Tensor out = Tensor::empty(q.shape(), q.dtype()),
         lse = Tensor::empty({q.size(0), q.size(2), q.size(1)}, q.dtype());
  const Operation op{q.value(), k.value(), v.value(), scale, buckets, out, lse};
  dispatch_float(q.dtype(), [&]<class T>() { forward<T>(op, out, lse); });
  return record(
      "bucket_attention", out, {q, k, v}, [op](const Tensor& grad, std::span<GradSlot> slots) {
        const Tensor dout = with_contiguous_rows(grad);
        std::array<Tensor, 3> gradients{begun_gradient(slots[0]), begun_gradient(slots[1]),
                                        begun_gradient(slots[2])};
        dispatch_float(op.q.dtype(), [&]<class T>() { backward<T>(op, dout, gradients); });
      });
}

}  // namespace longhand::attention
