#include "longhand/attention/decoding/aft_decoder.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// Keeps the keys and values of the window in a ring, and per channel the sums Σ e^k v and Σ e^k
// over the tokens before it, relative to the largest e^k.
class AftDecoder final : public Decoder {
 public:
  AftDecoder(int64_t batch, const Config& config, int64_t window, AftBiases row)
      : heads_(config.heads),
        dim_(config.head_dim),
        window_(window),
        row_(std::move(row)),
        cache_(batch, heads_, dim_, window > config.max_length ? 0 : std::max<int64_t>(1, window)),
        before_(Tensor::zeros({batch * heads_, 3, dim_}, DType::f64)),
        all_(static_cast<size_t>(before_.numel())) {
    before_.select(1, 0).fill(-1e300);
  }

  Tensor step(const Token& token) override {
    keep(token);
    const int64_t near = std::min(tokens_, window_), first = tokens_ - near;
    const Tensor biases = near > 0 ? row_(tokens_ - 1, first) : Tensor();
    Tensor y = Tensor::empty(token.q.shape(), token.q.dtype());
    dispatch_float(y.dtype(), [&]<class T>() {
      const T* const of_query = tile::data_or_null<T>(biases);
      parallel_for_each(before_.size(0), heads_of_task(near * dim_), [&](int64_t r) {
        simd([&, D = dim_, k = row_of<T>(cache_.keys(), r), v = row_of<T>(cache_.values(), r),
              before = before_.data<double>() + r * 3 * dim_, to = all_.data() + r * 3 * dim_,
              out = y.data<T>() + r * dim_] {
          std::copy_n(before, 3 * D, to);
          if (near > 0) add(k, v, first, near, of_query, to);
          for (int64_t d = 0; d < D; ++d) out[d] = static_cast<T>(to[D + d] / to[2 * D + d]);
        });
      });
    });
    forget();
    const NoGrad no_grad;
    return (sigmoid(Variable(token.q)) * Variable(y)).value();
  }
  void append(const Token& token) override {
    keep(token);
    forget();
  }
  int64_t bytes() const override { return cache_.bytes() + before_.bytes(); }
  int64_t bytes_after(int64_t tokens) const override {
    return cache_.capacity_after(tokens) * cache_.token_bytes() + before_.bytes();
  }
  Traffic traffic() const override {
    return {.read = std::min(tokens_, window_) * cache_.token_bytes(),
            .updated = window_ > tokens_ ? 0 : before_.bytes()};
  }

 private:
  int64_t place(int64_t token) const { return window_ > 0 ? token % window_ : 0; }
  void keep(const Token& token) {
    cache_.put(place(tokens_), repeat_groups(token.k, heads_), repeat_groups(token.v, heads_));
    if (++tokens_; window_ == 0) move_to_sums(tokens_ - 1);
  }
  // Moves the oldest token of the window to the sums over earlier tokens.
  void forget() {
    if (window_ > 0 && tokens_ >= window_) move_to_sums(tokens_ - window_);
  }
  void move_to_sums(int64_t token) {
    dispatch_float(cache_.values().dtype(), [&]<class T>() {
      parallel_for_each(before_.size(0), heads_of_task(dim_), [&](int64_t r) {
        simd([&, k = row_of<T>(cache_.keys(), r), v = row_of<T>(cache_.values(), r),
              to = before_.data<double>() + r * 3 * dim_] { add<T>(k, v, token, 1, nullptr, to); });
      });
    });
  }

  // The keys or values of row r for one head of a sequence.
  template <class T>
  const T* row_of(const Tensor& x, int64_t r) const {
    return x.data<T>() + r * cache_.capacity() * dim_;
  }

  // Adds `count` tokens to the running maximum of t = k + bias, to Σ e^t v and to Σ e^t of each
  // channel, (3, D). Inside simd().
  template <class T>
  void add(const T* all_k, const T* all_v, int64_t first, int64_t count, const T* biases,
           double* to) const {
    constexpr int64_t most = 64;    // channels at a time
    constexpr int64_t summed = 64;  // tokens that are summed in T
    for (int64_t c = 0; c < dim_; c += most) {
      const int64_t D = std::min(most, dim_ - c);
      double* const tops = to + c;
      double *const value = tops + dim_, *const total = value + dim_;
      const auto row = [&](const T* x, int64_t j) { return x + place(first + j) * dim_ + c; };
      T top[most];
      for (int64_t d = 0; d < D; ++d)  // -1e300 exceeds the range of f32
        top[d] = static_cast<T>(
            std::max(tops[d], static_cast<double>(std::numeric_limits<T>::lowest())));
      for (int64_t j = 0; j < count; ++j) {
        const T* const k = row(all_k, j);
        const T bias = biases ? biases[j] : T{0};
        T t[most];  // also keeps the compiler from merging tokens, which would undo vectorisation
        for (int64_t d = 0; d < D; ++d) t[d] = k[d] + bias;
        for (int64_t d = 0; d < D; ++d) top[d] = t[d] > top[d] ? t[d] : top[d];
      }
      for (int64_t d = 0; d < D; ++d) {
        const double own = math::exp(tops[d] - static_cast<double>(top[d]));
        value[d] *= own, total[d] *= own;
        tops[d] = static_cast<double>(top[d]);
      }
      for (int64_t begin = 0; begin < count; begin += summed) {
        T x[most] = {}, y[most] = {};
        for (int64_t j = begin; j < std::min(count, begin + summed); ++j) {
          const T *const k = row(all_k, j), *const v = row(all_v, j);
          const T bias = biases ? biases[j] : T{0};
          T e[most];  // as t
          for (int64_t d = 0; d < D; ++d) e[d] = math::exp(k[d] + bias - top[d]);
          for (int64_t d = 0; d < D; ++d) {
            x[d] += e[d] * v[d];
            y[d] += e[d];
          }
        }
        for (int64_t d = 0; d < D; ++d)
          value[d] += static_cast<double>(x[d]), total[d] += static_cast<double>(y[d]);
      }
    }
  }

  int64_t heads_, dim_, window_;
  AftBiases row_;
  int64_t tokens_ = 0;
  KeyValueCache cache_;
  Tensor before_;            // (B H, 3, D) f64
  std::vector<double> all_;  // the same, over all tokens
};

}  // namespace

std::unique_ptr<Decoder> make_aft_decoder(int64_t batch, const Config& config, int64_t window,
                                          AftBiases biases) {
  return std::make_unique<AftDecoder>(batch, config, window, std::move(biases));
}

}  // namespace longhand::attention
