#include "longhand/core/communicator.h"

#include "longhand/core/error.h"
#include "longhand/core/view.h"

namespace longhand {
namespace {

class Alone final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  std::future<void> start_sum(Tensor) override { return {}; }
  Tensor all_gather(const Tensor& x) override { return x.unsqueeze(0); }
  Tensor sum_scatter(const Tensor& x) override { return x.select(0, 0); }
  Tensor all_to_all(const Tensor& x) override { return x; }
  std::future<void> start_shift(Tensor x, Tensor out, int) override {
    copy_into(out, x);
    return {};
  }
  void broadcast(std::string&) override {}
  std::vector<std::string> gather(const std::string& own) override { return {own}; }
  void barrier() override {}
  std::unique_ptr<Communicator> split(int) override { return std::make_unique<Alone>(); }
  void wait(std::future<void>) override {}
  Traffic traffic() const override { return {}; }
};

}  // namespace

Communicator& alone() {
  static Alone process;
  return process;
}

Tensor Communicator::shift(const Tensor& x, int distance) {
  if (size() == 1) return x;
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  wait(start_shift(x, out, distance));
  return out;
}

bool Communicator::any(bool condition) {
  if (size() == 1) return condition;
  Tensor count = Tensor::full({1}, condition, DType::i64);
  sum(count);
  return count.item() > 0;
}

std::optional<Difference> first_difference(Communicator& ranks, const std::string& text) {
  if (ranks.size() == 1) return std::nullopt;
  const std::vector<std::string> all = ranks.gather(text);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) return Difference{static_cast<int>(rank), all[0], all[rank]};
  return std::nullopt;
}

void tree_sum(Tensor& out, Tensor& x) {
  check<ShapeError>(x.rank() >= 1 && x.size(0) >= 1 && x.is_contiguous() && out.is_contiguous() &&
                        out.shape() == x.shape().without_axis(0) && out.dtype() == x.dtype(),
                    "tree sum: expected contiguous tensors (P, …) and (…) of one dtype, got ",
                    x.shape(), " of ", x.dtype(), " for ", out.shape(), " of ", out.dtype());
  const int64_t ranks = x.size(0), n = out.numel();
  dispatch_any(x.dtype(), [&]<class T>() {
    T* const from = x.data<T>();
    for (int64_t width = 1; width < ranks; width *= 2)
      for (int64_t left = 0; left + width < ranks; left += 2 * width) {
        T* const to = from + left * n;
        const T* const more = from + (left + width) * n;
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] + more[i]);
      }
    std::copy_n(from, n, out.data<T>());
  });
}

}  // namespace longhand
