#include "tests/support/communicator_check.h"

#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/random.h"

namespace longhand::test {
namespace {

/// What rank `rank` contributes: numbers of which no two sums in different orders are equal.
Tensor contribution(int rank, const Shape& shape, DType dtype) {
  Tensor out = Tensor::empty(shape, DType::f64);
  fill_normal(out, Generator(7).fork(static_cast<uint64_t>(rank)), 0, 1000);
  return out.to(dtype);
}

/// The same for all ranks, (P, …).
Tensor contributions(int ranks, const Shape& shape, DType dtype) {
  Tensor out = Tensor::empty(shape.with_axis(0, ranks), dtype);
  for (int r = 0; r < ranks; ++r) copy_into(out.select(0, r), contribution(r, shape, dtype));
  return out;
}

/// (0 + 1) + (2 + 3), …, by recursion.
template <class T>
T sum_of(const std::vector<T>& values, size_t begin, size_t count) {
  if (count == 1) return values[begin];
  size_t left = 1;
  while (2 * left < count) left *= 2;
  return static_cast<T>(sum_of(values, begin, left) + sum_of(values, begin + left, count - left));
}

Tensor expected_sum(const Tensor& all) {
  Tensor out = Tensor::empty(all.shape().without_axis(0), all.dtype());
  dispatch_any(all.dtype(), [&]<class T>() {
    const int64_t n = out.numel();
    for (int64_t i = 0; i < n; ++i) {
      std::vector<T> values;
      for (int64_t r = 0; r < all.size(0); ++r) values.push_back(all.data<T>()[r * n + i]);
      out.data<T>()[i] = sum_of(values, 0, values.size());
    }
  });
  return out;
}

void require(bool ok, const Communicator& ranks, const std::string& what) {
  check(ok, "communicator of ", ranks.size(), " ranks, on rank ", ranks.rank(), ": ", what);
}

void check_sums(Communicator& ranks) {
  // 1,024 and 1,025: from there on, each rank adds up a part.
  for (const int64_t n : {0, 1, 7, 1024, 1025, 4099})
    for (const DType dtype : {DType::f32, DType::f64, DType::i64}) {
      Tensor x = contribution(ranks.rank(), {n}, dtype);
      ranks.sum(x);
      require(identical(x, expected_sum(contributions(ranks.size(), {n}, dtype))), ranks,
              concat_message("the sum of ", n, " elements of ", dtype));
    }
  // Several at once, waited for in another order.
  Tensor a = contribution(ranks.rank(), {3, 1000}, DType::f32), b = a.clone();
  std::future<void> first = ranks.start_sum(a), second = ranks.start_sum(b);
  ranks.wait(std::move(second));
  ranks.wait(std::move(first));
  const Tensor expected = expected_sum(contributions(ranks.size(), {3, 1000}, DType::f32));
  require(identical(a, expected) && identical(b, expected), ranks, "two sums at once");
  Tensor parts = contribution(ranks.rank(), {ranks.size(), 5, 2}, DType::f32);
  const Tensor all = expected_sum(contributions(ranks.size(), parts.shape(), DType::f32));
  require(identical(ranks.sum_scatter(parts), all.select(0, ranks.rank())), ranks, "sum_scatter");
}

void check_moves(Communicator& ranks) {
  const int P = ranks.size();
  for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8}) {
    const Tensor all = contributions(P, {3, 5}, dtype), own = all.select(0, ranks.rank());
    require(identical(ranks.all_gather(own), all), ranks, concat_message("all_gather of ", dtype));
    for (const int distance : {-1, 0, 1, 2, P})
      require(identical(ranks.shift(own, distance),
                        all.select(0, ((ranks.rank() - distance) % P + P) % P)),
              ranks, concat_message("shift by ", distance, " of ", dtype));
    // Two at once, of which the second is to be passed on.
    Tensor first = Tensor::zeros(own.shape(), dtype), second = first.clone();
    std::future<void> one = ranks.start_shift(own, first, 1),
                      other = ranks.start_shift(own, second, -1);
    ranks.wait(std::move(one));
    require(identical(first, all.select(0, (ranks.rank() + P - 1) % P)), ranks, "the first shift");
    ranks.wait(std::move(other));
    require(identical(second, all.select(0, (ranks.rank() + 1) % P)), ranks, "the second shift");
    const Tensor table = contributions(P, {P, 4}, dtype);  // of rank r for rank s at (r, s)
    const Tensor received = ranks.all_to_all(table.select(0, ranks.rank()));
    for (int r = 0; r < P; ++r)
      require(identical(received.select(0, r), table.select(0, r).select(0, ranks.rank())), ranks,
              concat_message("all_to_all of ", dtype, " from rank ", r));
  }
}

void check_texts(Communicator& ranks) {
  const auto text = [](int rank) {
    return std::string(static_cast<size_t>(3 * rank), char('a' + rank));
  };
  const std::vector<std::string> all = ranks.gather(text(ranks.rank()));
  for (int r = 0; r < ranks.size(); ++r)
    require(all[static_cast<size_t>(r)] == text(r), ranks, concat_message("gather from rank ", r));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{3000000}}) {
    std::string bytes = ranks.rank() == 0 ? std::string(size, 'x') : "other";
    ranks.broadcast(bytes);
    require(bytes == std::string(size, 'x'), ranks, "broadcast");
  }
  require(!first_difference(ranks, "same"), ranks, "equal texts");
  const int last = ranks.size() - 1;
  const auto found = first_difference(ranks, ranks.rank() == last ? "other" : "same");
  require(last == 0 ? !found
                    : found && found->rank == last && found->found == "other" &&
                          found->expected == "same",
          ranks, "a text that differs");
  require(ranks.any(ranks.rank() == last) && !ranks.any(false), ranks, "any");
}

void check_all(Communicator& ranks) {
  check_sums(ranks);
  check_moves(ranks);
  check_texts(ranks);
  ranks.barrier();
}

}  // namespace

void check_communicator(Communicator& ranks) {
  check_all(ranks);
  // Groups of neighbours, and of every other rank.
  const auto pair = ranks.split(ranks.rank() / 2), other = ranks.split(ranks.rank() % 2);
  require(pair->rank() == ranks.rank() % 2 && other->rank() == ranks.rank() / 2, ranks,
          "the order of split ranks");
  check_all(*pair);
  check_all(*other);
  const int64_t before = ranks.traffic().bytes;
  ranks.all_gather(Tensor::zeros({10}, DType::f32));
  require(ranks.traffic().bytes - before == 40 * (ranks.size() - 1), ranks,
          "the bytes of an all_gather");
}

}  // namespace longhand::test
