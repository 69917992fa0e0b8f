// Properties of operations. A line of a table gives an operation and the shapes of its arguments; each
// function of namespace property checks one property of it, so that a new operation needs one line.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhand/autograd/gradcheck.h"
#include "longhand/core/layouts.h"
#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"

namespace longhand::test {

using Op = std::function<Variable(const Variables&)>;
/// The shapes of the arguments of an operation.
using Case = std::vector<Shape>;

/// Returns shapes for operations of one argument of any shape: scalars, sizes of 0 and 1, odd sizes.
std::vector<Case> awkward_shapes();
/// Returns awkward_shapes() without the scalar, for operations along an axis.
std::vector<Case> awkward_rows();

/// The values of an argument: random, from low to high; whole numbers if the dtype is not a float. A
/// float stands for the dtype of the call.
struct Argument {
  double low = -2, high = 2;
  DType dtype = DType::f64;
  bool differentiable = true;  // false: a constant
  bool optional = false;       // may be undefined
};
/// Whole numbers 0 … below - 1, such as tokens.
inline Argument whole(int64_t below, DType dtype = DType::i32) {
  return {0, static_cast<double>(below - 1), dtype, false};
}

/// The order in memory of the axes of a result: that of the first argument, the same if the rows of the
/// argument have stride 1, or another one.
enum class Order { kept, of_rows, other };

/// What NaN and infinity in an argument do.
enum class NonFinite {
  confined,  // change what a finite number there changes, which NaN makes NaN
  selects,   // the same, but NaN need not reach gradients, which depend on comparisons only
  products,  // NaN reaches all that a finite number there changes, and more by products with zeros
  samples,   // the same for the value; nothing changes at another index of the first axis
  refused    // are errors
};

struct CheckOptions {
  double low = -2, high = 2;             // of arguments without an entry in `arguments`
  std::vector<Argument> arguments = {};  // by position
  bool expanded = true;                  // also try arguments of stride 0, whose values repeat
  bool f32 = true;                       // works in f32, too
  double f32_tolerance = 1e-6;   // f32 against f64: |a - b| <= tolerance (1 + |b|), each element
  double long_tolerance = 1e-5;  // the same for `large`, relative to the largest |b| of a tensor
  bool view = false;             // the result may be a view of an argument
  Order order = Order::kept;     // of the axes of a result of the first argument's shape
  NonFinite non_finite = NonFinite::confined;
  bool empty = true;       // false: sizes of 0 are errors
  bool any_dtype = false;  // the operation moves elements of any dtype
  GradcheckOptions gradcheck = {};
  uint64_t seed = 1;
};

/// A line of a table of operations.
struct OpLine {
  std::string name;  // of the prototype; after a colon, what is special about this line
  Op op;
  std::vector<Case> cases;  // small, with sizes of 0 and 1
  std::vector<Case> large;  // split into tasks (kernels::elements_per_task); with long sums
  CheckOptions options = {};
};

/// Each returns what is wrong with an operation, naming the arguments and their layouts; "" if nothing.
namespace property {

/// gradcheck() in f64, whose conditions include that inputs are not written to.
std::string gradients(const OpLine& line);
/// Values and gradients are those of row-major copies, for every argument and the gradient of the
/// result in every memory layout, alone and mixed.
std::string layouts(const OpLine& line);
/// Values and gradients in f32 are near those in f64, for all of these layouts.
std::string f32(const OpLine& line);
/// The result shares no memory with arguments unless it is a view. Neither pass writes to arguments
/// or the result. One variable for two arguments gets the sum of both gradients. Gradients do not
/// depend on whether the arguments have other owners.
std::string aliasing(const OpLine& line);
/// NaN and infinity, in one element of an argument or of the gradient of the result, change only what
/// a finite value there changes; NaN reaches all of that. Where results are NaN, infinite or finite
/// depends neither on the dtype nor on strides.
std::string non_finite(const OpLine& line);
/// Gradients are added to those of earlier passes, and of other uses of the operation.
std::string accumulation(const OpLine& line);
/// With any arguments that need no gradient the value and the other gradients stay the same; nothing
/// is recorded if none needs one, or under NoGrad.
std::string dry(const OpLine& line);
/// Undefined arguments, integers, mixtures of dtypes, and sizes of 0 if not `empty`, are ShapeErrors.
/// Messages about dtypes name the operation.
std::string errors(const OpLine& line);
/// The axes of a result of the shape of the first argument have the same order in memory.
std::string order(const OpLine& line);
/// Bits do not depend on the number of threads, in f32 for `large`.
std::string same_bits(const OpLine& line);
/// f32 is near f64 for `large`, with positive random terms and with equal ones.
std::string long_sums(const OpLine& line);

}  // namespace property

/// Returns the operations without a case with a size of 0, or of 1, or without a large case.
std::string missing_sizes(const std::vector<OpLine>& table);

/// Checks one property of every line, each in a section of its name.
void check_each(const std::vector<OpLine>& table, std::string (*property)(const OpLine&));
/// Checks properties of an operation that is in no table and may close over leaves.
void check_op(const Op& op, const std::vector<Case>& cases, const CheckOptions& options = {});

inline Tensor random(const Shape& shape, DType dtype = DType::f64, double low = -2, double high = 2,
                     uint64_t seed = 1) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_uniform(t, Generator(seed), low, high);
  return t;
}

/// Returns whether |a - b| <= tolerance (1 + |b|) for all elements; false if any is NaN.
bool close(const Tensor& a, const Tensor& b, double tolerance);

/// Returns the value of op and the gradients of all inputs (zeros if undefined) for a cotangent
/// that depends on the seed only.
std::vector<Tensor> run(const Op& op, const std::vector<Tensor>& inputs, uint64_t seed = 1);

}  // namespace longhand::test
