#include "tests/support/op_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "longhand/autograd/ops.h"

namespace longhand::test {

std::vector<Case> awkward_shapes() {
  return {{{}},     {{0}},    {{1}},     {{7}},       {{3, 0, 2}},    {{1, 5}},
          {{5, 1}}, {{3, 4}}, {{2, 37}}, {{2, 3, 5}}, {{2, 1, 3, 2}}, {{2, 3, 2, 3}}};
}
std::vector<Case> awkward_rows() {
  std::vector<Case> cases = awkward_shapes();
  cases.erase(cases.begin());
  return cases;
}

bool close(const Tensor& a, const Tensor& b, double tolerance) {
  if (!(a.shape() == b.shape())) return false;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(x[i] - y[i]) <= tolerance * (1 + std::abs(y[i])))) return false;
  return true;
}

std::vector<Tensor> run(const Op& op, const std::vector<Tensor>& inputs, uint64_t seed) {
  Variables leaves;
  for (const Tensor& input : inputs) leaves.emplace_back(input, true);
  const Variable out = op(leaves);
  Tensor cotangent = Tensor::empty(out.shape(), out.dtype());
  fill_normal(cotangent, Generator(seed).fork("cotangent"));
  if (out.requires_grad()) backward(out, cotangent);
  std::vector<Tensor> result{out.value()};
  for (const Variable& leaf : leaves)
    result.push_back(leaf.grad().defined() ? leaf.grad()
                                           : Tensor::zeros(leaf.shape(), leaf.dtype()));
  return result;
}

namespace {

using Tensors = std::vector<Tensor>;

// What is wrong: the first three problems, each with the call that showed it.
class Problems {
 public:
  std::string where;
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= 3) text_ += "\n  " + where + ": " + concat_message(parts...);
  }
  std::string text() const {
    return count_ > 3 ? concat_message(text_, "\n  and ", count_ - 3, " more") : text_;
  }

 private:
  int64_t count_ = 0;
  std::string text_;
};

// Calls check(problems); an exception is a problem, too.
template <class Check>
std::string problems_of(const Check& check) {
  Problems problems;
  try {
    check(problems);
  } catch (const std::exception& error) {
    problems.add("threw ", error.what());
  }
  return problems.text();
}

// A way to call an operation.
struct Call {
  Case shapes;
  std::vector<Layout> layouts;      // of the arguments
  Layout seed = Layout::row_major;  // of the gradient of the result
  DType dtype = DType::f64;
  std::optional<Argument> range = {};  // of the arguments whose range is not given

  explicit Call(const Case& all) : shapes(all), layouts(all.size(), Layout::row_major) {}
};

std::string text(const Call& call) {
  std::ostringstream out;
  for (size_t i = 0; i < call.shapes.size(); ++i)
    out << (i ? ", " : "") << call.shapes[i] << " " << to_string(call.layouts[i]);
  out << "; gradient of the result " << to_string(call.seed) << "; " << call.dtype;
  return out.str();
}

Argument argument(const OpLine& line, const Call& call, size_t i) {
  if (i < line.options.arguments.size()) return line.options.arguments[i];
  return call.range.value_or(Argument{line.options.low, line.options.high});
}
bool is_real(const OpLine& line, const Call& call, size_t i) {
  return is_float(argument(line, call, i).dtype);
}
std::vector<bool> differentiable(const OpLine& line, const Call& call) {
  std::vector<bool> all;
  for (size_t i = 0; i < call.shapes.size(); ++i)
    all.push_back(argument(line, call, i).differentiable);
  return all;
}

// What fill(values) draws, rounded to f32 if `real`. Drawing takes longer than most operations: calls that differ
// in layouts, types or threads draw the same numbers once.
template <class Fill>
Tensor drawn(const Shape& shape, const std::string& from, bool real, const Fill& fill) {
  static std::map<std::string, Tensor> recent;
  if (recent.size() > 8) recent.clear();
  Tensor& values = recent[concat_message(from, " ", shape)];
  if (values.defined()) return values;
  values = Tensor::empty(shape, DType::f64);
  fill(values);
  if (real) values = values.to(DType::f32);
  return values;
}

Tensors inputs_of(const OpLine& line, const Call& call) {
  Tensors inputs;
  for (size_t i = 0; i < call.shapes.size(); ++i) {
    const Argument a = argument(line, call, i);
    const bool real = is_float(a.dtype);
    const double high = a.high + (real ? 0 : 1);
    const Tensor values = drawn(
        call.shapes[i], concat_message(line.options.seed, " ", i, " ", a.low, " ", high), real,
        [&](Tensor& t) { fill_uniform(t, Generator(line.options.seed).fork(i), a.low, high); });
    inputs.push_back(with_layout(values.to(real ? call.dtype : a.dtype), call.layouts[i]));
  }
  return inputs;
}

Tensor seed_of(const Shape& shape, const Call& call) {
  const auto fill = [&](Tensor& t) {
    call.range ? fill_uniform(t, Generator(77), 0.5, 1.5) : fill_normal(t, Generator(77));
  };
  const Tensor values = drawn(shape, call.range ? "positive" : "normal", true, fill);
  return with_layout(values.to(call.dtype), call.seed);
}

// The value, and the gradient of each argument, undefined for those that need none.
Tensors outcome(const OpLine& line, const Tensors& inputs, const std::vector<bool>& needed,
                const std::function<Tensor(const Shape&)>& seed) {
  Variables leaves;
  for (size_t i = 0; i < inputs.size(); ++i) leaves.emplace_back(inputs[i], needed[i]);
  const Variable out = line.op(leaves);
  if (out.requires_grad()) backward(out, seed(out.shape()));
  Tensors results{out.value()};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& grad = leaves[i].grad();
    results.push_back(
        needed[i] && !grad.defined() ? Tensor::zeros(inputs[i].shape(), inputs[i].dtype()) : grad);
  }
  return results;
}
Tensors outcome(const OpLine& line, const Tensors& inputs, const Call& call) {
  return outcome(line, inputs, differentiable(line, call),
                 [&](const Shape& shape) { return seed_of(shape, call); });
}
Tensors outcome(const OpLine& line, const Call& call) {
  return outcome(line, inputs_of(line, call), call);
}

// Of the line's name, what stands before a colon.
std::string name_of_operation(const OpLine& line) {
  return line.name.substr(0, line.name.find(':'));
}

std::string name_of_result(size_t i) {
  return i ? concat_message("the gradient of argument ", i - 1) : std::string("the value");
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// |found - expected| <= tolerance * (1 + |expected|), or * the largest |expected| if `by_largest`.
void compare(Problems& problems, const Tensors& found, const Tensors& expected, double tolerance,
             const std::string& of_what, bool by_largest = false) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i].defined() != expected[i].defined()) {
      problems.add(name_of_result(i), found[i].defined() ? " is defined" : " is missing");
      continue;
    }
    if (!expected[i].defined()) continue;
    if (!(found[i].shape() == expected[i].shape())) {
      problems.add(name_of_result(i), " is ", found[i].shape(), ", ", of_what, " ",
                   expected[i].shape());
      continue;
    }
    const auto x = found[i].to_vector<double>(), y = expected[i].to_vector<double>();
    double largest = 0;
    for (const double each : y) largest = std::max(largest, std::abs(each));
    for (size_t e = 0; e < x.size(); ++e) {
      const double scale = by_largest ? largest : 1 + std::abs(y[e]);
      if (std::abs(x[e] - y[e]) <= tolerance * scale) continue;
      problems.add(name_of_result(i), " has ", x[e], " at element ", e, ", ", of_what, " ", y[e],
                   " (|difference| ", std::abs(x[e] - y[e]) / scale, " > ", tolerance,
                   by_largest ? " of the largest)" : " (1 + |expected|))");
      break;
    }
  }
}

void compare_bits(Problems& problems, const Tensors& found, const Tensors& expected,
                  const std::string& of_what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!expected[i].defined() || identical(found[i], expected[i])) continue;
    const auto x = found[i].to_vector<double>(), y = expected[i].to_vector<double>();
    const auto at = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    problems.add("other bits in ", name_of_result(i), ", such as ",
                 at.first == x.end() ? 0 : *at.first, ", ", of_what, " ",
                 at.second == y.end() ? 0 : *at.second);
  }
}

// f64 differs by rounding alone, where f32 differs by the tolerance.
double tolerance_f64(const OpLine& line) {
  return std::max(1e-12, 1e-8 * line.options.f32_tolerance);
}

// All arguments in one layout; one argument in each layout; mixtures; the gradient of the result in
// each layout.
std::vector<Call> calls_of(const OpLine& line, const Case& shapes) {
  const auto layouts = all_layouts();
  const size_t n = shapes.size();
  std::vector<Call> calls;
  const auto add = [&](const Call& call) {
    const bool repeats = std::any_of(call.layouts.begin(), call.layouts.end(), repeats_elements);
    if (line.options.expanded || !repeats) calls.push_back(call);
  };
  for (const Layout layout : layouts) {
    Call all(shapes), seed(shapes);
    all.layouts.assign(n, layout);
    add(all);
    if (layout == Layout::row_major) continue;
    seed.seed = layout;
    add(seed);
    for (size_t i = 0; n > 1 && i < n; ++i) {
      Call one(shapes);
      one.layouts[i] = layout;
      add(one);
    }
  }
  for (size_t round = 0; n > 1 && round < layouts.size(); ++round) {
    Call mixed(shapes);
    for (size_t i = 0; i < n; ++i) mixed.layouts[i] = layouts[(round + 5 * i) % layouts.size()];
    mixed.seed = layouts[(round + 3) % layouts.size()];
    add(mixed);
  }
  return calls;
}

template <class Check>
std::string each_call(const OpLine& line, const Check& check) {
  return problems_of([&](Problems& problems) {
    for (const Case& shapes : line.cases)
      for (const Call& call : calls_of(line, shapes)) {
        problems.where = text(call);
        check(call, problems);
      }
  });
}

// For a row-major call and a mixed one of each case, in both dtypes.
template <class Check>
std::string some_calls(const OpLine& line, const Check& check) {
  return problems_of([&](Problems& problems) {
    for (const Case& shapes : line.cases)
      for (const DType dtype : {DType::f64, DType::f32}) {
        if (dtype == DType::f32 && !line.options.f32) continue;
        Call plain(shapes), mixed(shapes);
        const Layout some[] = {Layout::stride_2, Layout::reversed, Layout::holes,
                               Layout::channels_first, Layout::stride_3};
        for (size_t i = 0; i < shapes.size(); ++i) mixed.layouts[i] = some[i % 5];
        mixed.seed = Layout::holes_stride_2;
        plain.dtype = mixed.dtype = dtype;
        for (const Call& call : {plain, mixed}) {
          problems.where = text(call);
          check(call, problems);
        }
      }
  });
}

double tolerance_of(const OpLine& line, const Call& call) {
  return call.dtype == DType::f64 ? tolerance_f64(line) : line.options.f32_tolerance;
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const Tensor& t : tensors) copies.push_back(t.contiguous().clone());
  return copies;
}

void unchanged(Problems& problems, const Tensors& tensors, const Tensors& copies,
               const char* what) {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!identical(tensors[i], copies[i])) problems.add(what, " ", i, " was written to");
}

// The sum of two gradients of the same shape.
Tensor added(const Tensor& a, const Tensor& b) { return (Variable(a) + Variable(b)).value(); }
Tensor times(const Tensor& a, double factor) { return (Variable(a) * factor).value(); }

class WithThreads {
 public:
  explicit WithThreads(int n) : before_(threads()) { set_threads(n); }
  ~WithThreads() { set_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

}  // namespace

namespace property {

std::string gradients(const OpLine& line) {
  return problems_of([&](Problems& problems) {
    for (const Case& shapes : line.cases)
      for (const Call& call : calls_of(line, shapes)) {
        // Layouts that repeat elements have values of their own, with ties.
        const bool repeats =
            std::any_of(call.layouts.begin(), call.layouts.end(), repeats_elements);
        const bool plain = std::all_of(call.layouts.begin(), call.layouts.end(),
                                       [](Layout l) { return l == Layout::row_major; });
        const bool mixed = call.seed != Layout::row_major;
        if (!repeats && !(plain && !mixed) && !(mixed && !plain)) continue;
        problems.where = text(call);
        const Tensors inputs = inputs_of(line, call);
        const std::vector<bool> needed = differentiable(line, call);
        Tensors checked;
        for (size_t i = 0; i < inputs.size(); ++i)
          if (needed[i]) checked.push_back(inputs[i]);
        const GradcheckReport report = gradcheck(
            [&](const Variables& in) {
              Variables all;
              size_t next = 0;
              for (size_t i = 0; i < inputs.size(); ++i)
                all.push_back(needed[i] ? in[next++] : Variable(inputs[i]));
              return line.op(all);
            },
            checked, line.options.gradcheck);
        if (!report.ok) problems.add("gradcheck: ", report);
      }
  });
}

std::string layouts(const OpLine& line) {
  return each_call(line, [&](const Call& call, Problems& problems) {
    const Tensors inputs = inputs_of(line, call);
    Tensor seed;
    const Tensors found = outcome(line, inputs, differentiable(line, call),
                                  [&](const Shape& s) { return seed = seed_of(s, call); });
    const Tensors expected = outcome(line, copies_of(inputs), differentiable(line, call),
                                     [&](const Shape&) { return seed.contiguous().clone(); });
    compare(problems, found, expected, tolerance_f64(line), "for row-major copies");
  });
}

std::string f32(const OpLine& line) {
  if (!line.options.f32) return "";
  return each_call(line, [&](const Call& call, Problems& problems) {
    Call narrow = call;
    narrow.dtype = DType::f32;
    const Tensors found = outcome(line, narrow);
    if (found[0].dtype() != DType::f32) problems.add("the value is ", found[0].dtype());
    compare(problems, found, outcome(line, call), line.options.f32_tolerance, "in f64");
  });
}

std::string aliasing(const OpLine& line) {
  bool shared = false;
  std::string found = some_calls(line, [&](const Call& call, Problems& problems) {
    const Tensors inputs = inputs_of(line, call), copies = copies_of(inputs);
    const std::vector<bool> needed = differentiable(line, call);
    Variables leaves;
    for (size_t i = 0; i < inputs.size(); ++i) leaves.emplace_back(inputs[i], needed[i]);
    const Variable out = line.op(leaves);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (out.value().shares_memory_with(inputs[i])) {
        shared = true;
        if (!line.options.view && out.value().numel())
          problems.add("the result shares memory with argument ", i);
      }
    unchanged(problems, inputs, copies, "the forward pass: argument");
    const Tensors value = copies_of({out.value()});
    const Tensor seed = seed_of(out.shape(), call);
    const Tensors seed_copy = copies_of({seed});
    if (out.requires_grad()) backward(out, seed);
    unchanged(problems, inputs, copies, "the backward pass: argument");
    unchanged(problems, {out.value()}, value, "the backward pass: result");
    unchanged(problems, {seed}, seed_copy, "the backward pass: gradient of result");
    Tensors plain{out.value()};
    for (const Variable& leaf : leaves) plain.push_back(leaf.grad());

    // The same operation on intermediate results, with and without other owners.
    const auto behind = [&](Variables* owner) {
      Variables again;
      for (size_t i = 0; i < inputs.size(); ++i) again.emplace_back(inputs[i], needed[i]);
      const Variable result = [&] {
        Variables inner;
        for (size_t i = 0; i < inputs.size(); ++i)
          inner.push_back(needed[i] ? affine(again[i], 1) : again[i]);
        if (owner) *owner = inner;
        return line.op(inner);
      }();
      if (result.requires_grad()) backward(result, seed);
      Tensors results{result.value()};
      for (const Variable& leaf : again) results.push_back(leaf.grad());
      return results;
    };
    Variables owner;
    const Tensors alone = behind(nullptr);
    compare_bits(problems, alone, behind(&owner), "with other owners of the arguments");
    compare(problems, alone, plain, tolerance_of(line, call), "for leaves");
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!identical(owner[i].value(), copies[i]))
        problems.add("an argument that has another owner, ", i, ", was written to");

    // One variable for two arguments.
    for (size_t a = 0; a < inputs.size(); ++a)
      for (size_t b = a + 1; b < inputs.size(); ++b) {
        const Argument left = argument(line, call, a), right = argument(line, call, b);
        if (!needed[a] || !needed[b] || !(call.shapes[a] == call.shapes[b]) ||
            left.low != right.low || left.high != right.high)
          continue;
        Tensors twice = inputs;
        twice[b] = twice[a].clone();
        const Tensors apart = outcome(line, twice, call);
        Variables once;
        for (size_t i = 0; i < inputs.size(); ++i)
          once.push_back(i == b ? once[a] : Variable(inputs[i], needed[i]));
        const Variable result = line.op(once);
        if (result.requires_grad()) backward(result, seed_of(result.shape(), call));
        const Tensor& grad = once[a].grad();
        compare(
            problems,
            {result.value(), grad.defined() ? grad : Tensor::zeros(inputs[a].shape(), call.dtype)},
            {apart[0], added(apart[a + 1], apart[b + 1])}, tolerance_of(line, call),
            concat_message("arguments ", a, " and ", b, " of one variable, and apart"));
      }
  });
  if (line.options.view && !shared) found += "\n  no case gives a view";
  return found;
}

std::string non_finite(const OpLine& line) {
  const NonFinite rule = line.options.non_finite;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto flat = [](const Tensors& all) {
    std::vector<double> values;
    for (const Tensor& t : all)
      if (t.defined()) {
        const auto more = t.to_vector<double>();
        values.insert(values.end(), more.begin(), more.end());
      }
    return values;
  };
  const auto kind = [](double x) {
    return std::isnan(x) ? 'n' : std::isinf(x) ? (x > 0 ? '+' : '-') : '0';
  };
  return problems_of([&](Problems& problems) {
    for (const Case& shapes : line.cases) {
      // In rows of one element, results are constants that NaN affects: x - x, x / x.
      if (std::any_of(shapes.begin(), shapes.end(), [](const Shape& s) {
            return s.numel() == 0 || (s.rank() > 0 && s[-1] == 1);
          }))
        continue;
      std::vector<std::string> kinds;  // by argument, element and number, of the first call
      for (const DType dtype : {DType::f64, DType::f32})
        for (const Layout layout : {Layout::row_major, Layout::stride_2}) {
          if (dtype == DType::f32 && !line.options.f32) continue;
          Call call(shapes);
          call.layouts.assign(shapes.size(), layout);
          call.seed = layout;
          call.dtype = dtype;
          Tensors inputs = inputs_of(line, call);
          const Tensors start = outcome(line, inputs, call);
          inputs.push_back(seed_of(start[0].shape(), call));  // the last one
          const auto values = [&] {
            const Tensors arguments(inputs.begin(), inputs.end() - 1);
            return flat(outcome(line, arguments, differentiable(line, call),
                                [&](const Shape&) { return inputs.back(); }));
          };
          const std::vector<double> base = values();
          std::vector<int64_t> samples;  // the index of the first axis of each of them
          for (const Tensor& t : start)
            for (int64_t i = 0; t.defined() && i < t.numel(); ++i)
              samples.push_back(t.rank() ? i / (t.numel() / t.size(0)) : 0);
          const auto out = static_cast<size_t>(start[0].numel());
          size_t tried = 0;
          for (size_t a = 0; a < inputs.size(); ++a) {
            const bool of_result = a + 1 == inputs.size();
            if (!of_result && !is_real(line, call, a)) continue;
            const Tensor before = inputs[a];
            const auto row = before.to_vector<double>();
            const auto sample = [&](size_t e) {
              return before.rank() ? static_cast<int64_t>(e) / (before.numel() / before.size(0))
                                   : 0;
            };
            const Argument range = of_result ? Argument{} : argument(line, call, a);
            std::vector<size_t> elements{0, row.size() / 2, row.size() - 1};
            elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
            if (row.empty()) elements.clear();
            for (const size_t e : elements) {
              const auto with = [&](double x) {
                auto changed = row;
                changed[e] = x;
                inputs[a] = with_layout(Tensor::from(changed, before.shape()).to(dtype), layout);
                auto result = values();
                inputs[a] = before;
                return result;
              };
              std::vector<bool> affected(base.size());
              for (const double part : {0.0, 0.37, 0.83, 1.0}) {
                const auto moved = with(range.low + part * (range.high - range.low));
                for (size_t j = 0; j < base.size(); ++j)
                  if (!same(moved[j], base[j])) affected[j] = true;
              }
              for (const double x : {nan, inf, -inf}) {
                // An argument of one sign has no infinity of the other.
                if (x > 0 ? range.high <= 0 : x < 0 && range.low >= 0) continue;
                problems.where =
                    concat_message(text(call), "; ", x, " at element ", e, " of ",
                                   of_result ? std::string("the gradient of the result")
                                             : concat_message("argument ", a));
                if (line.options.non_finite == NonFinite::refused && !of_result) {
                  try {
                    with(x);
                    problems.add("no error");
                  } catch (const Error& error) {
                    inputs[a] = before;
                    if (std::string(error.what()).find("finite") == std::string::npos) throw;
                  }
                  continue;
                }
                const auto found = with(x);
                std::string classes;
                for (size_t j = 0; j < found.size(); ++j) {
                  classes += kind(found[j]);
                  const auto what = [&] {
                    return j < out ? concat_message("element ", j, " of the value")
                                   : concat_message("element ", j - out, " of the gradients");
                  };
                  const bool may_change = affected[j] || rule == NonFinite::products ||
                                          (rule == NonFinite::samples && samples[j] == sample(e));
                  if (!may_change && !same(found[j], base[j]))
                    problems.add(what(), ", which no finite number there affects, changes from ",
                                 base[j], " to ", found[j]);
                  const bool may_hide = j >= out && (rule == NonFinite::samples ||
                                                     (rule == NonFinite::selects && !of_result));
                  if (affected[j] && std::isnan(x) && !std::isnan(found[j]) && !may_hide)
                    problems.add(what(), " is ", found[j], " in spite of NaN");
                }
                if (tried == kinds.size())
                  kinds.push_back(classes);
                else if (kinds[tried] != classes)
                  problems.add("classes of numbers are ", classes, ", in f64 and row-major ",
                               kinds[tried]);
                ++tried;
              }
            }
          }
        }
    }
  });
}

std::string accumulation(const OpLine& line) {
  return some_calls(line, [&](const Call& call, Problems& problems) {
    const Tensors inputs = inputs_of(line, call);
    const std::vector<bool> needed = differentiable(line, call);
    const Tensors once = outcome(line, inputs, call);
    Tensors expected{once[0]}, doubled{times(once[0], 2)};
    Variables leaves, used;
    for (size_t i = 0; i < inputs.size(); ++i) {
      leaves.emplace_back(inputs[i], needed[i]);
      used.emplace_back(inputs[i], needed[i]);
      expected.emplace_back();
      doubled.emplace_back();
      if (!needed[i]) continue;
      const Tensor earlier = random(inputs[i].shape(), call.dtype, -1, 1, 90 + i);
      backward(sum(leaves[i] * Variable(earlier)));
      expected.back() = added(once[i + 1], earlier);
      doubled.back() = times(once[i + 1], 2);
    }
    const double tolerance = tolerance_of(line, call);
    const auto grads = [&](const Variable& out, const Variables& of) {
      if (out.requires_grad()) backward(out, seed_of(out.shape(), call));
      Tensors results{out.value()};
      for (size_t i = 0; i < of.size(); ++i)
        results.push_back(needed[i] && !of[i].grad().defined()
                              ? Tensor::zeros(inputs[i].shape(), call.dtype)
                              : of[i].grad());
      return results;
    };
    compare(problems, grads(line.op(leaves), leaves), expected, tolerance,
            "with the gradient of an earlier pass");
    if (!is_float(once[0].dtype())) return;
    compare(problems, grads(line.op(used) + line.op(used), used), doubled, tolerance,
            "as twice that of one use");
  });
}

std::string dry(const OpLine& line) {
  return some_calls(line, [&](const Call& call, Problems& problems) {
    const Tensors inputs = inputs_of(line, call);
    const std::vector<bool> all = differentiable(line, call);
    const Tensors full = outcome(line, inputs, call);
    const auto seed = [&](const Shape& shape) { return seed_of(shape, call); };
    const size_t n = inputs.size();
    for (size_t mask = 0; mask + 1 < (size_t{1} << n); ++mask) {
      std::vector<bool> needed(n);
      bool any = false;
      for (size_t i = 0; i < n; ++i) any = (needed[i] = all[i] && (mask >> i & 1) != 0) || any;
      std::string dry;
      for (size_t i = 0; i < n; ++i)
        if (!needed[i]) dry += " " + std::to_string(i);
      problems.where = text(call) + "; no gradient for arguments" + dry;
      if (!any) {
        Variables constants;
        for (const Tensor& input : inputs) constants.emplace_back(input);
        const Variable out = line.op(constants);
        if (out.requires_grad()) problems.add("the result requires a gradient");
        compare_bits(problems, {out.value()}, {full[0]}, "with gradients");
        continue;
      }
      const Tensors found = outcome(line, inputs, needed, seed);
      compare_bits(problems, {found[0]}, {full[0]}, "with all gradients");
      for (size_t i = 0; i < n; ++i) {
        if (needed[i])
          compare(problems, {found[i + 1]}, {full[i + 1]}, tolerance_of(line, call),
                  concat_message("(the gradient of argument ", i, ") with all gradients"));
        else if (found[i + 1].defined())
          problems.add("argument ", i, " has a gradient");
      }
    }
    problems.where = text(call) + "; NoGrad";
    const NoGrad no_grad;
    Variables leaves;
    for (size_t i = 0; i < n; ++i) leaves.emplace_back(inputs[i], all[i]);
    const Variable out = line.op(leaves);
    // An operation may return its argument.
    const auto is_argument = [&](const Variable& leaf) {
      return leaf.value().shares_memory_with(out.value());
    };
    if (out.requires_grad() && std::none_of(leaves.begin(), leaves.end(), is_argument))
      problems.add("the result requires a gradient");
    compare_bits(problems, {out.value()}, {full[0]}, "with gradients");
  });
}

std::string errors(const OpLine& line) {
  return problems_of([&](Problems& problems) {
    const std::string name = name_of_operation(line);
    const Call call(line.cases.back());
    const Tensors inputs = inputs_of(line, call);
    if (!line.options.empty) {
      Call nothing(line.cases.back());
      for (Shape& shape : nothing.shapes) shape[0] = 0;
      problems.where = text(nothing);
      try {
        outcome(line, nothing);
        problems.add("no error");
      } catch (const ShapeError&) {
      }
    }
    const auto expect = [&](size_t i, const Tensor& given, const std::vector<std::string>& words) {
      problems.where = concat_message("argument ", i, " ",
                                      given.defined() ? name_of(given.dtype()) : "undefined");
      Variables in;
      for (size_t j = 0; j < inputs.size(); ++j)
        in.push_back(j != i ? Variable(inputs[j]) : given.defined() ? Variable(given) : Variable());
      try {
        line.op(in);
        problems.add("no error");
      } catch (const ShapeError& error) {
        for (const std::string& word : words)
          if (std::string(error.what()).find(word) == std::string::npos)
            problems.add("the message lacks \"", word, "\": ", error.what());
      }
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Argument a = argument(line, call, i);
      if (!a.optional) expect(i, {}, {});
      if (!is_float(a.dtype)) continue;
      if (!line.options.any_dtype)
        expect(i, Tensor::zeros(inputs[i].shape(), DType::i32), {name, "i32"});
      for (size_t j = 0; j < inputs.size(); ++j)
        if (j != i && is_real(line, call, j)) {
          expect(i, inputs[i].to(DType::f32), {name, "f32"});
          break;
        }
    }
  });
}

std::string order(const OpLine& line) {
  if (line.options.order == Order::other) return "";
  return each_call(line, [&](const Call& call, Problems& problems) {
    const Tensors inputs = inputs_of(line, call);
    if (!inputs[0].is_dense() || repeats_elements(call.layouts[0]) ||
        (line.options.order == Order::of_rows && inputs[0].strides()[inputs[0].rank() - 1] != 1))
      return;
    const Tensor out = outcome(line, inputs, call)[0];
    if (!(out.shape() == inputs[0].shape())) return;
    for (int i = 0; i < out.rank(); ++i)
      if (out.size(i) > 1 && out.numel() && out.strides()[i] != inputs[0].strides()[i])
        return problems.add("axis ", i, " of the result has stride ", out.strides()[i],
                            ", that of the first argument ", inputs[0].strides()[i]);
  });
}

std::string same_bits(const OpLine& line) {
  return problems_of([&](Problems& problems) {
    for (const Case& shapes : line.large)
      for (const bool mixed : {false, true}) {
        Call call(shapes);
        call.dtype = DType::f32;
        for (size_t i = 0; mixed && i < shapes.size(); ++i)
          call.layouts[i] = i % 2 ? Layout::stride_2 : Layout::reversed;
        problems.where = text(call) + "; 3 threads";
        const auto with = [&](int n) {
          const WithThreads threads(n);
          return outcome(line, call);
        };
        compare_bits(problems, with(3), with(1), "with one thread");
      }
  });
}

std::string long_sums(const OpLine& line) {
  if (!line.options.f32) return "";
  return problems_of([&](Problems& problems) {
    for (const Case& shapes : line.large)
      for (const Layout layout : {Layout::row_major, Layout::expand_first, Layout::expand_middle}) {
        if (layout != Layout::row_major && !line.options.expanded) continue;
        // Of two axes, the middle one is the first.
        if (layout == Layout::expand_middle &&
            std::none_of(shapes.begin(), shapes.end(), [](const Shape& x) { return x.rank() > 2; }))
          continue;
        Call call(shapes);
        call.range = Argument{0.1, 1};
        call.layouts.assign(shapes.size(), layout);
        call.seed = layout;
        problems.where = text(call);
        const Tensors expected = outcome(line, call);
        call.dtype = DType::f32;
        compare(problems, outcome(line, call), expected, line.options.long_tolerance, "in f64",
                true);
      }
  });
}

}  // namespace property

std::string missing_sizes(const std::vector<OpLine>& table) {
  std::map<std::string, std::array<bool, 3>> found;
  for (const OpLine& line : table) {
    auto& [zero, one, large] = found[name_of_operation(line)];
    large = large || !line.large.empty();
    for (const Case& shapes : line.cases)
      for (const Shape& shape : shapes) {
        zero = zero || shape.numel() == 0 || !line.options.empty;
        for (int i = 0; i < shape.rank(); ++i) one = one || shape[i] == 1;
      }
  }
  std::string missing;
  for (const auto& [name, has] : found)
    if (!has[0] || !has[1] || !has[2])
      missing += concat_message("\n  ", name, ": ", has[0] ? "" : "size 0 ",
                                has[1] ? "" : "size 1 ", has[2] ? "" : "large");
  return missing;
}

void check_each(const std::vector<OpLine>& table, std::string (*property)(const OpLine&)) {
  for (const OpLine& line : table) {
    DYNAMIC_SECTION(line.name) {
      INFO(line.name);
      CHECK(property(line) == "");
    }
  }
}

void check_op(const Op& op, const std::vector<Case>& cases, const CheckOptions& options) {
  const OpLine line{"", op, cases, {}, options};
  for (const auto property : {property::gradients, property::layouts, property::f32,
                              property::aliasing, property::non_finite, property::accumulation})
    CHECK(property(line) == "");
}

}  // namespace longhand::test
