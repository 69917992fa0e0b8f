#include "longhand/attention/decoding/bucket_decoder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "longhand/attention/ops/tile/listed_rows.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

// Keeps the keys and values of all tokens and, for every round, the tokens of each bucket.
template <class T>
class BucketDecoder final : public Decoder {
 public:
  BucketDecoder(const Config& config, int64_t batch, Hash hash, int64_t window, double eps)
      : H_(config.heads),
        G_(config.kv_heads),
        D_(config.head_dim),
        rounds_(hash.rounds()),
        window_(window),
        eps_(eps),
        hash_(std::move(hash)),
        keys_(static_cast<size_t>(batch * H_)),
        values_(static_cast<size_t>(batch * G_)),
        members_(static_cast<size_t>(batch * H_ * rounds_ * hash_.buckets())) {}

  Tensor step(const Token& token) override {
    Tensor out = Tensor::empty(token.q.shape(), token.q.dtype());
    add(token, out.data<T>());
    return out;
  }
  void append(const Token& token) override { add(token, nullptr); }
  int64_t bytes() const override { return bytes_after(tokens_); }
  // Keys, values and, for every round, every token in the list of its bucket.
  int64_t bytes_after(int64_t tokens) const override {
    const int64_t rows = std::ssize(keys_), groups = std::ssize(values_);
    return tokens * ((rows + groups) * D_ * static_cast<int64_t>(sizeof(T)) + rows * rounds_ * 4);
  }
  // Tokens of a bucket need not be adjacent.
  Traffic traffic() const override {
    const int64_t rows = std::ssize(keys_), seen = std::min(tokens_, rounds_ * window_);
    return {.read = rows * seen * (2 * D_ * static_cast<int64_t>(sizeof(T)) + 4)};
  }

 private:
  void keep(std::vector<T>& to, const T* row) const { to.insert(to.end(), row, row + D_); }

  // Stores a token and, if `out` is not null, attends to it and the tokens before it.
  void add(const Token& token, T* out) {
    const int64_t B = token.q.size(0);
    const Tensor q = token.q.contiguous(), v = token.v.contiguous();
    const Tensor key = rms_norm(Variable(q), {}, eps_).value();
    for (int64_t row = 0; row < B * G_; ++row)
      keep(values_[static_cast<size_t>(row)], v.data<T>() + row * D_);
    parallel_for_each(B * H_, 1, [&](int64_t row) {
      thread_local Scratch scratch;
      std::vector<T>& keys = keys_[static_cast<size_t>(row)];
      keep(keys, key.data<T>() + row * D_);
      const int64_t group = row / H_ * G_ + row % H_ * G_ / H_;
      find_latest(q.data<T>() + row * D_, row, scratch);
      if (out)
        attend(q.data<T>() + row * D_, keys, values_[static_cast<size_t>(group)], scratch,
               out + row * D_);
    });
    ++tokens_;
  }

  // Per thread, so that tokens allocate nothing.
  struct Scratch {
    std::vector<int32_t> seen, before;
    std::vector<T> weights, part;
  };

  // The latest tokens of the buckets of a query, to which the query itself is added.
  void find_latest(const T* q, int64_t row, Scratch& scratch) {
    std::vector<int32_t>& seen = scratch.seen;
    seen.clear();
    for (int64_t r = 0; r < rounds_; ++r) {
      int32_t bucket = 0;
      hash_(q, D_, 1, row % H_, r, &bucket);
      std::vector<int32_t>& members =
          members_[static_cast<size_t>((row * rounds_ + r) * hash_.buckets() + bucket)];
      const auto latest = std::min<int64_t>(window_, static_cast<int64_t>(members.size()));
      std::swap(seen, scratch.before);
      seen.clear();
      std::set_union(scratch.before.begin(), scratch.before.end(), members.end() - latest,
                     members.end(), std::back_inserter(seen));
      members.push_back(static_cast<int32_t>(tokens_));
    }
    if (seen.empty()) seen.push_back(static_cast<int32_t>(tokens_));
  }

  void attend(const T* q, const std::vector<T>& keys, const std::vector<T>& values,
              Scratch& scratch, T* to) const {
    scratch.weights.resize(scratch.seen.size());
    scratch.part.resize(static_cast<size_t>(D_));
    T sums[2];
    tile::attend_to_listed<T>(q, {keys.data(), D_}, {values.data(), D_}, scratch.seen, {}, D_,
                              static_cast<T>(1 / std::sqrt(static_cast<double>(D_))),
                              scratch.weights.data(), scratch.part.data(), to, sums);
  }

  int64_t H_, G_, D_, rounds_, window_;
  double eps_;
  Hash hash_;
  std::vector<std::vector<T>> keys_, values_;  // of each sample and head: (t, D)
  std::vector<std::vector<int32_t>> members_;  // of each sample, head, round and bucket
  int64_t tokens_ = 0;
};

}  // namespace

std::unique_ptr<Decoder> make_bucket_decoder(int64_t batch, const Config& config, const Hash& hash,
                                             int64_t window, double eps, DType dtype) {
  std::unique_ptr<Decoder> decoder;
  dispatch_float(dtype, [&]<class T>() {
    decoder = std::make_unique<BucketDecoder<T>>(config, batch, hash, window, eps);
  });
  return decoder;
}

}  // namespace longhand::attention
