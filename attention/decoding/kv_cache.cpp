#include "longhand/attention/decoding/kv_cache.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "longhand/attention/ops/highest.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

constexpr int64_t first_capacity = 16;  // doubled whenever it is full

class CacheDecoder final : public Decoder {
 public:
  CacheDecoder(int64_t batch, const Config& config, const CacheScores& scores)
      : batch_(batch),
        heads_(config.heads),
        groups_(config.kv_heads ? config.kv_heads : config.heads),
        dim_(config.head_dim),
        scores_(scores) {}

  Tensor step(const Token& token) override {
    const Tensor &q = token.q, &k = token.k, &v = token.v;
    const Shape kv{batch_, groups_, dim_};
    check<ShapeError>(
        q.shape() == Shape{batch_, heads_, dim_} && k.shape() == kv && v.shape() == kv,
        "decoder: expected q ", Shape{batch_, heads_, dim_}, ", k and v ", kv, ", got q ",
        q.shape(), ", k ", k.shape(), ", v ", v.shape());
    const int64_t place = scores_.place ? scores_.place(length_) : length_;
    if (place >= capacity()) grow(q.dtype());
    copy_into(keys_.select(2, place), k);
    copy_into(values_.select(2, place), v);
    if (scores_.log_decay) add_decays(scores_.log_decay(token).to(DType::f64).contiguous());
    ++length_;
    const Tensor queries = q.contiguous();
    Tensor out = Tensor::empty(q.shape(), q.dtype());
    dispatch_float(q.dtype(), [&]<class T>() {
      parallel_for(batch_ * heads_, 1, [&](int64_t begin, int64_t end) {
        std::vector<T> weights(capacity());
        std::vector<double> sums(dim_);
        for (int64_t r = begin; r < end; ++r) {  // b H + head
          const int64_t at = r / heads_ * groups_ + r % heads_ / (heads_ / groups_);
          attend(queries.data<T>() + r * dim_, keys_.data<T>() + at * capacity() * dim_,
                 values_.data<T>() + at * capacity() * dim_,
                 scores_.slopes.empty() ? 0.0 : scores_.slopes[r % heads_],
                 decays_.defined() ? decays_.data<double>() + r * capacity() : nullptr,
                 parts(r % heads_), weights.data(), sums.data(), out.data<T>() + r * dim_);
        }
      });
    });
    return out;
  }

  int64_t bytes() const override {
    int64_t total = 0;
    for (const Tensor* const cache : {&keys_, &values_, &decays_})
      if (cache->defined()) total += cache->numel() * static_cast<int64_t>(size_of(cache->dtype()));
    return total;
  }

  int64_t bytes_after(int64_t tokens) const override {
    int64_t grown = capacity();
    while (grown < tokens && !scores_.capacity) grown *= 2;
    return bytes() / capacity() * grown;
  }

 private:
  int64_t capacity() const { return keys_.defined() ? keys_.size(2) : 0; }

  void grow(DType dtype) {
    const int64_t larger =
        scores_.capacity ? scores_.capacity : std::max(first_capacity, 2 * capacity());
    const auto move = [&](Tensor& cache, const Shape& shape, DType type) {
      Tensor moved = Tensor::empty(shape, type);
      if (length_) copy_into(moved.slice(2, 0, length_), cache);
      cache = moved;
    };
    for (Tensor* const cache : {&keys_, &values_})
      move(*cache, {batch_, groups_, larger, dim_}, dtype);
    if (scores_.log_decay) move(decays_, {batch_, heads_, larger}, DType::f64);
  }

  // Appends the sums of all decays so far.
  void add_decays(const Tensor& latest) {
    check<ShapeError>(latest.shape() == Shape{batch_, heads_}, "decoder: expected log_decay ",
                      Shape{batch_, heads_}, ", got ", latest.shape());
    for (int64_t r = 0; r < batch_ * heads_; ++r) {
      double* const sums = decays_.data<double>() + r * capacity();
      sums[length_] = (length_ ? sums[length_ - 1] : 0) + latest.data<double>()[r];
    }
  }

  using Parts = std::vector<std::pair<int64_t, int64_t>>;

  // The runs of keys that the latest query of a head attends to.
  Parts parts(int64_t head) const {
    if (scores_.parts) return scores_.parts(head, length_ - 1);
    return {{scores_.window > 0 ? std::max<int64_t>(0, length_ - scores_.window) : 0, length_}};
  }

  // Sets all of n scores but the highest to -inf.
  template <class T>
  void omit_all_but_highest(T* scores, int64_t n) const {
    Highest<T> highest(scores_.most);
    highest.add(scores, n);
    std::vector<int32_t> selected;
    highest.append_to(selected);
    auto next = selected.begin();
    for (int64_t j = 0; j < n; ++j)
      if (next != selected.end() && *next == j)
        ++next;
      else
        scores[j] = -std::numeric_limits<T>::infinity();
  }

  // Attention of q (D) to the given runs of k and v (t, D), with the sums of decays (t) or null.
  // `weights` has room for all in the cache; `sums` (D) adds up the results of blocks of keys.
  template <class T>
  void attend(const T* q, const T* k, const T* v, double slope, const double* decays,
              const Parts& parts, T* weights, double* sums, T* out) const {
    constexpr int64_t block = 128;
    const int64_t D = dim_, n = length_, first = parts.front().first;
    const T scale = static_cast<T>(scores_.scale), fall = static_cast<T>(slope);
    const bool distance = scores_.distance, normalized = scores_.normalized;
    simd([&] {
      for (const auto& [begin, end] : parts)
        for (int64_t j = begin; j < end; ++j) {
          const T* const key = k + j * D;
          T sum = 0;
          if (distance)
            for (int64_t d = 0; d < D; ++d) sum -= (q[d] - key[d]) * (q[d] - key[d]) / 2;
          else
            for (int64_t d = 0; d < D; ++d) sum += q[d] * key[d];
          weights[j] = scale * sum - fall * static_cast<T>(n - 1 - j);
          if (decays) weights[j] += static_cast<T>(decays[n - 1] - decays[j]);
        }
    });
    if (scores_.most > 0) omit_all_but_highest(weights + first, n - first);
    simd([&] {
      T most = normalized ? weights[first] : T{0};
      if (normalized)
        for (const auto& [begin, end] : parts)
          for (int64_t j = begin; j < end; ++j) most = weights[j] > most ? weights[j] : most;
      double den = 0;
      std::fill(sums, sums + D, 0.0);
      for (const auto& [begin, end] : parts)
        for (int64_t j = begin; j < end; j += block) {
          T block_den = 0;
          std::fill(out, out + D, T{0});
          for (int64_t l = j; l < std::min(end, j + block); ++l) {
            const T w = math::exp(weights[l] - most);
            block_den += w;
            for (int64_t d = 0; d < D; ++d) out[d] += w * v[l * D + d];
          }
          den += static_cast<double>(block_den);
          for (int64_t d = 0; d < D; ++d) sums[d] += static_cast<double>(out[d]);
        }
      for (int64_t d = 0; d < D; ++d) out[d] = static_cast<T>(normalized ? sums[d] / den : sums[d]);
    });
  }

  int64_t batch_, heads_, groups_, dim_;
  CacheScores scores_;
  int64_t length_ = 0;
  Tensor keys_, values_;  // (B, G, capacity, D)
  Tensor decays_;         // (B, H, capacity): sums of decays
};

}  // namespace

Tensor repeat_groups(const Tensor& x, int64_t heads) {
  const int64_t B = x.size(0), G = x.size(1), D = x.size(2);
  if (G == heads) return x;
  return x.unsqueeze(2).expand({B, G, heads / G, D}).contiguous().reshape({B, heads, D});
}

std::unique_ptr<Decoder> make_cache_decoder(int64_t batch, const Config& config,
                                            const CacheScores& scores) {
  check<ConfigError>(config.causal, config.name,
                     ": only causal attention can be decoded token by token");
  return std::make_unique<CacheDecoder>(batch, config, scores);
}

}  // namespace longhand::attention
