// State dicts of any tree of modules.
#include <algorithm>
#include <bit>
#include <memory>

#include "longhand/core/error.h"
#include "longhand/nn/init.h"
#include "longhand/nn/module.h"
#include "tests/core/random_view.h"
#include "tests/support/property.h"

using namespace longhand;
using namespace longhand::nn;
using namespace longhand::test;

namespace {

/// A module with any parameters, buffers and members.
class Node : public Module {
 public:
  Node(const Scope& own, int depth) : Module(own) {
    for (int64_t n = any_of(0, 2); n > 0; --n)
      parameters_.push_back(
          std::make_unique<Parameter>(scope(name()), any_shape(3, 3), init::ones()));
    for (int64_t n = any_of(0, 2); n > 0; --n)
      buffers_.push_back(std::make_unique<Buffer>(
          scope(name()),
          Tensor::zeros(any_shape(2, 3), one_of<DType>({DType::i64, DType::u8, DType::f64}))));
    for (int64_t n = depth > 0 ? any_of(0, 3) : 0; n > 0; --n)
      members_.push_back(std::make_unique<Node>(scope(name()), depth - 1));
  }

 private:
  std::string name() {
    return one_of<std::string>({"a", "b", "weight"}) + std::to_string(count_++);
  }

  int count_ = 0;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<Node>> members_;
};

/// Other values of the same names, shapes and dtypes, with any strides; floats of either width.
StateDict other_values(const StateDict& state) {
  StateDict out;
  RandomStream random(Generator(static_cast<uint64_t>(any_of(0, 1 << 30))));
  for (const auto& [name, tensor] : state) {
    const DType dtype =
        is_float(tensor.dtype()) ? one_of<DType>({DType::f32, DType::f64}) : tensor.dtype();
    out[name] = random_view(tensor.shape(), dtype, random, {.holes = true, .broadcast = true});
  }
  return out;
}

StateDict copy_of(const StateDict& state) {
  StateDict out;
  for (const auto& [name, tensor] : state) out[name] = tensor.clone();
  return out;
}

/// Whether the names and, converted to the dtypes of `a`, the bits are equal.
bool equal(const StateDict& a, const StateDict& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && identical(x.second, y.second.to(x.second.dtype()));
  });
}

}  // namespace

TEST_CASE("property: a state dict is loaded with every value, into the same memory") {
  require_always("states", [] {
    Node module(root(one_of<DType>({DType::f32, DType::f64})), 2);
    const StateDict before = module.state_dict(), values = other_values(before);
    module.load_state_dict(values);
    const StateDict after = module.state_dict();
    RC_ASSERT(equal(after, values));
    for (const auto& [name, tensor] : after) RC_ASSERT(tensor.shares_memory_with(before.at(name)));
    int64_t elements = 0;
    for (const auto& [name, parameter] : module.named_parameters()) {
      elements += parameter.value().numel();
      RC_ASSERT(after.at(name).shares_memory_with(parameter.value()));
    }
    RC_ASSERT(module.parameter_count() == elements);
  });
}

TEST_CASE("property: a state dict that does not match is refused, naming each difference") {
  require_always(
      "mismatches",
      [] {
        Node module(root(), 2);
        StateDict values = other_values(module.state_dict());
        std::vector<std::string> expected;
        for (auto it = values.begin(); it != values.end();) {
          auto& [name, tensor] = *it;
          switch (any_of(0, 9)) {
            case 0:
              expected.push_back(name + " is missing");
              it = values.erase(it);
              continue;
            case 1:
              if (tensor.rank() == Shape::max_rank) break;
              expected.push_back(concat_message(name, " has shape ", tensor.shape().with_axis(0, 2),
                                                ", expected ", tensor.shape()));
              tensor = Tensor::zeros(tensor.shape().with_axis(0, 2), tensor.dtype());
              break;
            case 2: {
              const DType own = module.state_dict().at(name).dtype();
              expected.push_back(concat_message(name, " is of i32, expected ", own));
              tensor = Tensor::zeros(tensor.shape(), DType::i32);
              break;
            }
            default:
              break;
          }
          ++it;
        }
        for (int64_t n = any_of(0, 2); n > 0; --n) {
          const std::string name = "extra." + std::to_string(n);
          expected.push_back(name + " is unexpected");
          values[name] = Tensor::scalar(1);
        }
        if (expected.empty()) return;
        const StateDict before = copy_of(module.state_dict());
        std::string message;
        try {
          module.load_state_dict(values);
        } catch (const DataError& error) {
          message = error.what();
        }
        for (const std::string& line : expected)
          RC_ASSERT((message + '\n').find("\n  " + line + '\n') != std::string::npos);
        RC_ASSERT(static_cast<size_t>(std::count(message.begin(), message.end(), '\n')) ==
                  expected.size());
        RC_ASSERT(equal(module.state_dict(), before));
      },
      150);
}
