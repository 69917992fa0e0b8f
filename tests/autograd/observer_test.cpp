#include "longhand/autograd/observer.h"

#include <string>
#include <thread>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/recompute.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

double first_of(const Tensor& t) { return t.rank() == 0 ? t.item() : t.at({0}); }

/// Lists what it sees.
class List : public OperationObserver {
 public:
  explicit List(std::vector<std::string>& out, std::string prefix = "")
      : out_(out), prefix_(std::move(prefix)) {}

  void on_result(const Operation& operation, Tensor& result) override {
    out_.push_back(prefix_ + std::string(operation.name) + (operation.number ? "" : " unrecorded") +
                   (operation.in_backward ? " in backward" : "") + " " +
                   std::to_string(operation.inputs.size()) + " " +
                   std::to_string(first_of(result)));
  }
  void on_gradients(std::string_view operation, uint64_t, const Tensor& grad_out,
                    std::span<Tensor* const> grad_in) override {
    std::string line =
        prefix_ + "d " + std::string(operation) + " " + std::to_string(grad_out.numel());
    for (Tensor* const grad : grad_in) line += grad ? " " + std::to_string(first_of(*grad)) : " -";
    out_.push_back(line);
  }

 private:
  std::vector<std::string>& out_;
  std::string prefix_;
};

}  // namespace

TEST_CASE("observers see operations and gradients of their thread, the first one first") {
  std::vector<std::string> seen;
  const Variable x(Tensor::full({2}, 3, DType::f64), true), c(Tensor::full({2}, 2, DType::f64));
  {
    List first(seen), second(seen, "2: ");
    const Variable y = sum(mul(x, c), {0}, true);
    std::thread([&] { mul(c, c); }).join();
    backward(y);
  }
  mul(x, c);
  CHECK(seen == std::vector<std::string>{"mul 2 6.000000", "2: mul 2 6.000000", "sum 1 12.000000",
                                         "2: sum 1 12.000000", "d sum 1 1.000000",
                                         "2: d sum 1 1.000000", "d mul 2 2.000000 -",
                                         "2: d mul 2 2.000000 -"});
}

TEST_CASE("observers see what is not recorded and what is recomputed, and may replace results") {
  std::vector<std::string> seen;
  const Variable x(Tensor::full({1}, 3, DType::f64), true);
  {
    List list(seen);
    backward(recompute([](const Variables& in) { return square(in[0]); }, {x}));
  }
  CHECK(seen == std::vector<std::string>{"square unrecorded 1 9.000000", "recompute 2 9.000000",
                                         "square in backward 1 9.000000", "d square 1 6.000000",
                                         "d recompute 1 6.000000 0.000000"});

  struct Replace : OperationObserver {
    void on_result(const Operation&, Tensor& result) override {
      result = Tensor::full(result.shape(), 7, result.dtype());
    }
    void on_gradients(std::string_view, uint64_t, const Tensor&,
                      std::span<Tensor* const> grad_in) override {
      *grad_in[0] = Tensor::full(grad_in[0]->shape(), 5, grad_in[0]->dtype());
    }
  } replace;
  Variable z(Tensor::full({1}, 3, DType::f64), true);
  const Variable y = square(z);
  CHECK(y.value().item() == 7);
  backward(y);
  CHECK(z.grad().item() == 5);
}
