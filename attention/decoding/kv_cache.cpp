#include "longhand/attention/decoding/kv_cache.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "longhand/attention/ops/highest.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/attention/ops/tile/listed_rows.h"
#include "longhand/attention/ops/tile/state_rows.h"
#include "longhand/core/kernels/prefetch.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

constexpr int64_t first_capacity = 16;  // doubled whenever it is exhausted
constexpr int64_t block = 128;          // keys scored before their values are read and summed in T
// A cache larger than this is prefetched: the values of a block while its keys are scored, then the
// keys of the next one. Otherwise a core waits for most lines of a cache in memory; for the L3
// cache, prefetching costs more time than it saves.
constexpr int64_t prefetched_bytes = int64_t{24} << 20;

// Attention of one query to the keys of its head.
template <class T>
struct CachedHead {
  const T *q, *k, *v;  // (D), (tokens, D), (tokens, D)
  int64_t D, latest;   // the index of the last token
  double slope;
  const double* decays;  // sums of decays, or null
  double bias;           // of the first `biased` keys
  int64_t biased;
  double sink;  // -inf: none
  bool prefetches;

  // The scores of n keys from `first` on. Meanwhile prefetches n rows from `next` on, if
  // `prefetches`. Inside simd().
  void scores(const CacheScores& s, int64_t first, int64_t n, const T* next, T* to) const {
    const T scale = static_cast<T>(s.distance ? -s.scale / 2 : s.scale),
            fall = static_cast<T>(slope), more = static_cast<T>(bias);
    for (int64_t j = 0; j < n; j += kernels::rows_together) {
      const int64_t count = std::min(kernels::rows_together, n - j);
      const T* const keys = k + (first + j) * D;
      if (prefetches) kernels::prefetch(next + j * D, count * D);
      T sums[kernels::rows_together];
      if (s.distance)
        kernels::lane_sums(
            count, D,
            [&](int64_t r, int64_t d) {
              const T difference = q[d] - keys[r * D + d];
              return difference * difference;
            },
            sums);
      else
        kernels::lane_sums(
            count, D, [&](int64_t r, int64_t d) { return q[d] * keys[r * D + d]; }, sums);
      for (int64_t r = 0; r < count; ++r) to[j + r] = scale * sums[r];
    }
    if (slope != 0)
      for (int64_t l = 0; l < n; ++l) to[l] -= fall * static_cast<T>(latest - first - l);
    if (decays)
      for (int64_t l = 0; l < n; ++l) to[l] += static_cast<T>(decays[latest] - decays[first + l]);
    for (int64_t l = 0; l < std::min(n, biased - first); ++l) to[l] += more;
  }
};

// Attention to the keys before `end` with the highest scores. Of the options, only `scale` applies.
template <class T>
void attend_to_highest(const CachedHead<T>& head, const CacheScores& s, int64_t end, T* out) {
  thread_local std::vector<T> scores, weights, part;
  thread_local Highest<T> highest(0);
  thread_local std::vector<int32_t> selected;
  scores.resize(static_cast<size_t>(end));
  simd([&, to = scores.data()] { head.scores(s, 0, end, head.k + block / 2 * head.D, to); });
  if (highest.count() != s.most) highest = Highest<T>(s.most);
  highest.clear();
  highest.add(scores.data(), end);
  selected.clear();
  highest.append_to(selected);
  if (selected.empty()) {  // every score is -inf
    std::fill_n(out, head.D, std::numeric_limits<T>::quiet_NaN());
    return;
  }
  weights.resize(selected.size());
  part.resize(static_cast<size_t>(head.D));
  T sums[2];
  tile::attend_to_listed<T>(head.q, {head.k, head.D}, {head.v, head.D}, selected, {}, head.D,
                            static_cast<T>(s.scale), weights.data(), part.data(), out, sums);
}

// One pass over keys and values, in blocks. Sums over blocks are in f64, in `sums` (D), relative to
// the largest score so far.
template <class T>
void attend(const CachedHead<T>& head, const CacheScores& s, const KeyRuns& runs, double* sums,
            T* out) {
  constexpr T none = -std::numeric_limits<T>::infinity();
  simd([&, D = head.D] {
    T w[block], most = s.normalized ? none : T{0};
    double den = 0;
    std::fill(sums, sums + D, 0.0);
    for (auto run = runs.begin(); run != runs.end(); ++run)
      for (int64_t j = run->first, n; j < run->second; j += n) {
        n = std::min(block, run->second - j);
        const T* const values = head.v + j * D;
        head.scores(s, j, n, values, w);
        const T top = s.normalized ? kernels::row_max(w, n) : T{0};
        if (top == none) continue;
        if (top > most) {
          const double factor = math::exp(static_cast<double>(most) - static_cast<double>(top));
          den *= factor;
          for (int64_t d = 0; d < D; ++d) sums[d] *= factor;
          most = top;
        }
        if (s.sigmoid)
          for (int64_t l = 0; l < n; ++l) w[l] = 1 / (1 + math::exp(-w[l]));
        else
          for (int64_t l = 0; l < n; ++l) w[l] = math::exp(w[l] - most);
        den += static_cast<double>(kernels::row_sum(w, n));
        const bool ends = j + n == run->second, is_last = ends && run + 1 == runs.end();
        const T* const next =  // the keys of the next block
            head.prefetches && !is_last ? head.k + (ends ? run[1].first : j + n) * D : nullptr;
        const int64_t together = next ? 16 : block;
        std::fill(out, out + D, T{0});
        for (int64_t l = 0; l < n; l += together) {
          const int64_t rows = std::min(together, n - l);
          if (next) kernels::prefetch(next + l * D, rows * D);
          tile::add_rows(values + l * D, rows, D, w + l, out);
        }
        for (int64_t d = 0; d < D; ++d) sums[d] += static_cast<double>(out[d]);
      }
    den += math::exp(head.sink - static_cast<double>(most));
    for (int64_t d = 0; d < D; ++d) out[d] = static_cast<T>(s.normalized ? sums[d] / den : sums[d]);
  });
}

// `cache` with room for `capacity` tokens along axis 2, with its first `size` tokens copied.
Tensor with_room(const Tensor& cache, const Shape& shape, DType dtype, int64_t size) {
  Tensor out = Tensor::empty(shape, dtype);
  if (size > 0) copy_into(out.slice(2, 0, size), cache.slice(2, 0, size));
  return out;
}

class CacheDecoder final : public Decoder {
 public:
  CacheDecoder(int64_t batch, const Config& config, const CacheScores& scores)
      : batch_(batch),
        heads_(config.heads),
        groups_(config.kv_heads ? config.kv_heads : config.heads),
        dim_(config.head_dim),
        scores_(scores),
        cache_(batch, groups_, dim_, scores.capacity),
        attend_(scores) {}

  Tensor step(const Token& token) override {
    const Shape expected{batch_, heads_, dim_};
    check<ShapeError>(token.q.shape() == expected, "decoder: expected q ", expected, ", got ",
                      token.q.shape());
    append(token);
    runs_.resize(static_cast<size_t>(scores_.parts ? heads_ : 1));
    for (size_t head = 0; head < runs_.size(); ++head) {
      runs_[head].clear();
      if (scores_.parts)
        scores_.parts(static_cast<int64_t>(head), length_ - 1, runs_[head]);
      else
        runs_[head].emplace_back(
            scores_.window > 0 ? std::max<int64_t>(0, length_ - scores_.window) : 0, length_);
    }
    return attend_(token.q, cache_, runs_, decays_);
  }

  void append(const Token& token) override {
    const int64_t before = cache_.capacity();
    if (scores_.before && length_ > 0) scores_.before(token, cache_.keys().slice(2, 0, length_));
    cache_.put(scores_.place ? scores_.place(length_) : length_, of_heads(token.k),
               of_heads(token.v));
    if (scores_.log_decay) {
      if (cache_.capacity() > before)
        decays_ = with_room(decays_, {batch_, heads_, cache_.capacity()}, DType::f64, length_);
      add_decays(scores_.log_decay(token).to(DType::f64).contiguous());
    }
    ++length_;
  }

  int64_t bytes() const override { return cache_.bytes() + of_decays(cache_.capacity()); }
  int64_t bytes_after(int64_t tokens) const override {
    const int64_t capacity = cache_.capacity_after(tokens);
    return capacity * cache_.token_bytes() + of_decays(capacity);
  }
  Traffic traffic() const override {
    int64_t keys = 0, values = 0;  // of all groups
    for (size_t head = 0; head < runs_.size(); ++head) {
      if (runs_.size() > 1 && static_cast<int64_t>(head) % (heads_ / groups_) != 0) continue;
      int64_t n = 0;
      for (const auto& [begin, end] : runs_[head]) n += end - begin;
      n *= runs_.size() > 1 ? 1 : groups_;
      keys += n;
      values += scores_.most > 0 ? std::min(n, scores_.most * groups_) : n;
    }
    Traffic out{.read =
                    (keys + values) * cache_.token_bytes() / (2 * groups_) + of_decays(length_)};
    if (scores_.before) {
      out.updated = length_ * cache_.token_bytes() / 2;
      out.read -= out.updated;
    }
    return out;
  }

 private:
  // Keys that a function modifies per head have one row per head.
  Tensor of_heads(const Tensor& x) const { return scores_.before ? repeat_groups(x, groups_) : x; }
  int64_t of_decays(int64_t tokens) const {
    return scores_.log_decay ? batch_ * heads_ * tokens * int64_t{sizeof(double)} : 0;
  }

  // Appends the running sums of decays.
  void add_decays(const Tensor& latest) {
    check<ShapeError>(latest.shape() == Shape{batch_, heads_}, "decoder: expected log_decay ",
                      Shape{batch_, heads_}, ", got ", latest.shape());
    for (int64_t r = 0; r < batch_ * heads_; ++r) {
      double* const sums = decays_.data<double>() + r * cache_.capacity();
      sums[length_] = (length_ ? sums[length_ - 1] : 0) + latest.data<double>()[r];
    }
  }

  int64_t batch_, heads_, groups_, dim_;
  CacheScores scores_;
  int64_t length_ = 0;
  KeyValueCache cache_;
  CacheAttention attend_;
  std::vector<KeyRuns> runs_;  // of the latest token: per head, or one for all heads
  Tensor decays_;              // (B, H, capacity): sums of decays
};

}  // namespace

Tensor repeat_groups(const Tensor& x, int64_t heads) {
  const int64_t B = x.size(0), G = x.size(1), D = x.size(2);
  if (G == heads) return x;
  return x.unsqueeze(2).expand({B, G, heads / G, D}).contiguous().reshape({B, heads, D});
}

int64_t KeyValueCache::capacity_after(int64_t size) const {
  int64_t out = constant_ ? constant_ : std::max(first_capacity, capacity());
  while (out < size && !constant_) out *= 2;
  return out;
}

int64_t KeyValueCache::token_bytes() const {
  const int64_t row = batch_ * groups_ * dim_;
  return (keys_.defined() ? 2 : 1) * row * static_cast<int64_t>(size_of(values_.dtype()));
}

void KeyValueCache::put(int64_t place, const Tensor& k, const Tensor& v) {
  const Shape row{batch_, groups_, dim_};
  check<ShapeError>(v.shape() == row && (!k.defined() || k.shape() == row),
                    "decoder: expected k and v ", row, ", got k ", k.defined() ? k.shape() : row,
                    ", v ", v.shape());
  if (place >= capacity()) {
    const Shape shape{batch_, groups_, capacity_after(place + 1), dim_};
    if (k.defined()) keys_ = with_room(keys_, shape, k.dtype(), size_);
    values_ = with_room(values_, shape, v.dtype(), size_);
  }
  if (k.defined()) copy_into(keys_.select(2, place), k);
  copy_into(values_.select(2, place), v);
  size_ = std::max(size_, place + 1);
}

Tensor CacheAttention::operator()(const Tensor& q, const KeyValueCache& cache,
                                  const std::vector<KeyRuns>& runs, const Tensor& decays,
                                  double bias, int64_t biased) {
  const Tensor queries = q.contiguous();
  const Tensor &k = cache.keys(), &v = cache.values();
  const int64_t H = q.size(1), D = q.size(2), G = k.size(1), room = k.size(2);
  Tensor out = Tensor::empty(q.shape(), q.dtype());
  sums_.resize(static_cast<size_t>(q.numel()));
  const bool prefetches = cache.size() * cache.token_bytes() > prefetched_bytes;
  dispatch_float(q.dtype(), [&]<class T>() {
    parallel_for_each(
        q.size(0) * H, heads_of_task(cache.size() * D), [&](int64_t r) {  // b H + head
          const int64_t head = r % H, at = (r / H * G + head / (H / G)) * room * D;
          const CachedHead<T> of{queries.data<T>() + r * D,
                                 k.data<T>() + at,
                                 v.data<T>() + at,
                                 D,
                                 cache.size() - 1,
                                 scores_.slopes.empty() ? 0.0 : scores_.slopes[head],
                                 decays.defined() ? decays.data<double>() + r * room : nullptr,
                                 scores_.biases.empty() ? bias : scores_.biases[head],
                                 scores_.biases.empty() ? biased : cache.size(),
                                 scores_.sinks.empty() ? -std::numeric_limits<double>::infinity()
                                                       : scores_.sinks[head],
                                 prefetches};
          const KeyRuns& run = runs[static_cast<size_t>(r) % runs.size()];
          T* const to = out.data<T>() + r * D;
          if (scores_.most > 0)
            attend_to_highest(of, scores_, run.back().second, to);
          else
            attend(of, scores_, run, sums_.data() + r * D, to);
        });
  });
  return out;
}

std::unique_ptr<Decoder> make_cache_decoder(int64_t batch, const Config& config,
                                            const CacheScores& scores) {
  check<ConfigError>(config.causal, config.name,
                     ": only causal attention can be decoded token by token");
  return std::make_unique<CacheDecoder>(batch, config, scores);
}

}  // namespace longhand::attention
