// longhand.check(): the conformance suite on a function of arrays. The function takes the place of
// a variant of the library (conformance::Substitution), whose parameters, options and capabilities
// it has, and whose gradients replace those that it does not return.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <pybind11/stl/filesystem.h>

#include "longhand/attention/conformance/tools.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/python/arrays.h"
#include "longhand/data/hdf5.h"

namespace longhand::python {
namespace {

using namespace attention;
using namespace attention::conformance;
using namespace py::literals;

/// The value of padding elements when the function is called.
constexpr double padding_value = 3;

/// Elements beyond the range of f32 become ±1e30.
Tensor saturated_f32(const Tensor& x) {
  Tensor out = x.contiguous().clone();
  if (out.dtype() == DType::f64)
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data<double>()[i] = std::clamp(out.data<double>()[i], -1e30, 1e30);
  return out.to(DType::f32);
}

/// The parameters of a callable by name, and whether they must be given.
std::map<std::string, bool> parameters_of(const py::object& function) {
  std::map<std::string, bool> out;
  const py::module_ inspect = py::module_::import("inspect");
  py::object signature;
  try {
    signature = inspect.attr("signature")(function);
  } catch (const py::error_already_set&) {
    return out;  // of a built-in function
  }
  const py::object kind = inspect.attr("Parameter");
  for (const py::handle item : signature.attr("parameters").attr("values")()) {
    const py::object of = item.attr("kind");
    if (of.equal(kind.attr("VAR_POSITIONAL")) || of.equal(kind.attr("VAR_KEYWORD"))) continue;
    out[py::str(item.attr("name"))] = item.attr("default").is(kind.attr("empty"));
  }
  return out;
}

/// The function to check, and the variant whose place it takes.
class Subjected {
 public:
  Subjected(py::object function, py::object vjp, const std::string& name, const Options& options,
            bool f32)
      : function_(std::move(function)), vjp_(std::move(vjp)), options_(options), f32_(f32) {
    check<ConfigError>(PyCallable_Check(function_.ptr()),
                       "check: expected a function of q, k and v");
    static const std::set<std::string> arguments{"x",    "lengths", "mask",      "keep",
                                                 "bias", "causal",  "parameters"};
    const std::vector<std::string> known = names_of(spec(name).options);
    const auto parameters = parameters_of(function_);
    for (const auto& [parameter, required] : parameters) {
      const bool option = std::find(known.begin(), known.end(), parameter) != known.end();
      if (option || arguments.count(parameter)) takes_.insert(parameter);
      static const std::set<std::string> first{"q", "k", "v", "query", "key", "value"};
      check<ConfigError>(
          option || arguments.count(parameter) || !required || first.count(parameter),
          "check: the function requires \"", parameter,
          "\"; expected q, k, v, x, lengths, mask, "
          "keep, bias, causal, parameters or an option of ",
          name);
    }
  }

  bool takes(const std::string& name) const { return takes_.count(name) > 0; }
  bool takes_padding() const { return takes("lengths") || takes("mask"); }
  bool has_vjp() const { return !vjp_.is_none(); }
  int64_t calls = 0;  // of the function
  bool interrupted = false;

  /// Whether the function can be this variant: it has these options or takes those that differ.
  bool applies_to(const Config& config, bool causal) const {
    if (config.causal != causal && !takes("causal")) return false;
    Config own = config;
    own.options = options_;
    const EffectiveValues values = check_options(config.name, config);
    EffectiveValues given = check_options(config.name, own);
    for (const auto& [key, value] : values) {
      const auto found = given.find(key);
      if (!takes(key) && (found == given.end() || found->second.value != value.value)) return false;
      if (found != given.end()) given.erase(found);
    }
    return std::all_of(given.begin(), given.end(),
                       [&](const auto& each) { return takes(each.first); });
  }

  void replace(Variant& variant) {
    variant.substitute([this, &variant, inside = false](const Inputs& in, const Mask& mask,
                                                        const Variable& own) mutable -> Variable {
      if (inside || (mask.keep.defined() && !takes("keep")) ||
          (mask.bias.defined() && !takes("bias")))
        return own;
      ++calls;
      const int64_t H = variant.config().heads;
      const Variable x = variant.capabilities().uses_x ? in.x : Variable();
      Variables inputs{in.q, for_all_heads(in.k, H), for_all_heads(in.v, H)};
      if (x.defined()) inputs.push_back(x);
      std::vector<Tensor> arrays;
      for (const Variable& each : inputs) arrays.push_back(each.value());
      const Tensor value = call(variant, function_, arrays, mask, 1)[0];
      if (!has_vjp())
        return record("function", value, {own},
                      [](const Tensor& gradient, std::span<GradSlot> to) { to[0].take(gradient); });
      const size_t count = inputs.size();
      // Parameters get the gradients of the library.
      inside = true;
      inputs.push_back(variant.forward(
          {in.q.detach(), in.k.detach(), in.v.detach(), x.defined() ? x.detach() : x}, mask, {}));
      inside = false;
      return record("function", value, inputs,
                    [=, this, &variant](const Tensor& gradient, std::span<GradSlot> to) {
                      std::vector<Tensor> given = arrays;
                      given.insert(given.begin() + 3, gradient);
                      const auto found = call(variant, vjp_, given, mask, static_cast<int>(count));
                      for (size_t i = 0; i < count; ++i)
                        if (to[i]) to[i].take(found[i]);
                      if (to[count]) to[count].take(gradient);
                    });
    });
  }

 private:
  // Takes q, k, v, further arrays of one shape, and x if the variant reads it; returns `results`
  // arrays, cleared at padding.
  std::vector<Tensor> call(const Variant& variant, const py::object& function,
                           std::vector<Tensor> arrays, const Mask& mask, int results) {
    const Tensor& q = arrays[0];
    const int64_t B = q.size(0), N = q.size(1);
    if (!mask.lengths.defined()) return call_padded(variant, function, arrays, {}, mask, results);
    const Mask known{.lengths = mask.lengths.contiguous()};
    if (takes_padding()) {
      for (size_t i = 0; i < arrays.size(); ++i)  // results at padding are ignored: no gradient
        arrays[i] = with_padding(arrays[i], known, results > 1 && i == 3 ? 0 : padding_value);
      auto found = call_padded(variant, function, arrays, known.lengths, mask, results);
      for (Tensor& each : found)  // what is finite there is ignored; NaN would spread
        if (all_finite(each)) each = with_padding(each, known, 0);
      return found;
    }
    // A function that does not support padding gets each sequence without it.
    std::vector<Tensor> found;
    for (int i = 0; i < results; ++i)
      found.push_back(Tensor::zeros(i < 3 ? arrays[i].shape() : arrays.back().shape(), q.dtype()));
    for (int64_t b = 0; b < B; ++b) {
      const auto n = static_cast<int64_t>(known.lengths.at({b}));
      if (n == 0) continue;
      std::vector<Tensor> cut;
      for (const Tensor& array : arrays) cut.push_back(one(array, b, std::min(n, N)));
      const auto of_one = call_padded(variant, function, cut, {}, mask, results);
      for (int i = 0; i < results; ++i) copy_into(one(found[i], b, n), of_one[i]);
    }
    return found;
  }

  std::vector<Tensor> call_padded(const Variant& variant, const py::object& function,
                                  const std::vector<Tensor>& arrays, Tensor lengths,
                                  const Mask& mask, int results) {
    const Config& config = variant.config();
    const Tensor& q = arrays[0];
    const int64_t B = q.size(0);
    const bool narrow = f32_ && q.dtype() == DType::f64;
    const auto array = [&](const Tensor& t) { return array_of(narrow ? saturated_f32(t) : t); };
    const size_t positional = arrays.size() - (config.capabilities.uses_x ? 1 : 0);
    py::tuple args(positional);
    for (size_t i = 0; i < positional; ++i) args[i] = array(arrays[i]);
    py::dict named;
    const auto give = [&](const char* name, auto value) {
      if (takes(name)) named[name] = value();
    };
    if (!lengths.defined())
      lengths = Tensor::full({B}, static_cast<double>(arrays[1].size(1)), DType::i32);
    give("x", [&]() -> py::object {
      if (!config.capabilities.uses_x) return py::none();
      return array(arrays.back());
    });
    give("lengths", [&] { return array_of(lengths); });
    give("mask", [&] {
      const int64_t M = arrays[1].size(1);
      return booleans_of(real_tokens(lengths, M).reshape({B, M}));
    });
    give("keep", [&]() -> py::object {
      if (!mask.keep.defined()) return py::none();
      return booleans_of(mask.keep.contiguous());
    });
    give("bias", [&]() -> py::object {
      if (!mask.bias.defined()) return py::none();
      return array(mask.bias.value());
    });
    give("causal", [&] { return py::bool_(config.causal); });
    give("parameters", [&] {
      py::dict state;
      for (const auto& [name, tensor] : variant.state_dict())
        state[py::str(name)] = is_float(tensor.dtype()) ? array(tensor) : array_of(tensor);
      return state;
    });
    for (const auto& [key, value] : check_options(config.name, config))
      give(key.c_str(), [&v = value.value] { return py::cast(v); });

    std::vector<Tensor> found;
    try {
      py::object result = function(*args, **named);
      if (results == 1) {
        found.push_back(tensor_of(result, "the result of the function"));
      } else {
        const auto list = py::reinterpret_steal<py::list>(PySequence_List(result.ptr()));
        if (!list) throw py::error_already_set();
        check<ShapeError>(
            static_cast<int>(list.size()) == results, "vjp: expected ", results,
            results == 4 ? " gradients, of q, k, v and x, got " : " gradients, of q, k and v, got ",
            list.size());
        for (const py::handle each : list)
          found.push_back(tensor_of(each, "a gradient of the function"));
      }
    } catch (const py::error_already_set& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) interrupted = true;
      throw;
    }
    const DType expected = narrow ? DType::f32 : q.dtype();
    for (int i = 0; i < results; ++i) {
      Tensor& each = found[i];
      const Shape& shape = i < 3 ? arrays[i].shape() : arrays.back().shape();
      check<ShapeError>(each.shape() == shape, "the function returned an array of shape ",
                        each.shape(), "; expected ", shape, ", (batch, tokens, heads, head_dim)");
      check<ShapeError>(each.dtype() == expected, "the function returned ",
                        numpy_name(each.dtype()), " for ", numpy_name(expected),
                        "; one that computes in float32 is checked with dtype=\"float32\"");
      each = each.to(q.dtype()).contiguous().clone();  // the function may reuse its memory
    }
    return found;
  }

  py::object function_, vjp_;
  Options options_;
  bool f32_;
  std::set<std::string> takes_;
};

/// Moves the parameters of the variant that the function is compared with from their initial
/// values, many of which are 0 or 1.
void move_parameters(Variant& variant) {
  uint64_t seed = 100;
  for (auto& [name, parameter] : variant.named_parameters()) {
    Tensor& value = parameter.mutable_value();
    copy_into(
        value,
        (Variable(value) + Variable(normal(value.shape(), ++seed, value.dtype(), 0.1))).value());
  }
}

/// The same results as the variant of the library with the same parameters.
void reference(const Subject& subject, Findings& f) {
  const auto own = subject.make({.max_length = 131}), other = subject.make({.max_length = 131});
  own->substitute({});
  move_parameters(*own);
  move_parameters(*other);
  double worst = 0;
  for (const std::vector<int32_t>& n : {std::vector<int32_t>{1, 1}, {13, 13}, {13, 8}, {131, 70}}) {
    f.context(concat_message("sequences of ", n[0], " and ", n[1], " tokens"));
    const Sample x = sample({2, n[0], 2, 4});
    const Mask mask = n[0] == n[1] ? Mask{} : lengths(n);
    worst = std::max(worst, each_near(f, "compared with the library", run(*other, x, mask),
                                      run(*own, x, mask), 1e-9));
  }
  f.measured("differs by ", worst);
}

/// Two calls with the same arrays give bitwise identical results and do not write to them.
void deterministic(const Subject& subject, Findings& f) {
  const auto variant = subject.make({.max_length = 67});
  const Sample x = sample({2, 67, 2, 4}), before = x.each([](const Tensor&t) { return t.clone(); });
  const Tensor first = forward(*variant, x);
  f.expect(identical(x.q, before.q) && identical(x.k, before.k) && identical(x.v, before.v),
           "the function writes to its arguments");
  const Tensor second = forward(*variant, before);
  f.expect(identical(first, second), "two calls with the same arrays differ by ",
           distance(first, second));
}

/// Runs in f64 the golden cases of the variant in a folder whose options the function has.
void golden(const std::string& name, const std::filesystem::path& folder, bool causal,
            Subjected& function, Findings& f) {
  std::vector<std::filesystem::path> files;
  check<DataError>(std::filesystem::is_directory(folder), "golden: ", folder, " is not a folder");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  int64_t cases = 0, others = 0;
  for (const auto& path : files) {
    const data::Hdf5Reader file = data::Hdf5Reader::open(path);
    if (file.attribute_as<std::string>("/", "kind") != "attention") continue;
    const py::dict given =
        py::module_::import("json").attr("loads")(file.attribute_as<std::string>("/", "config"));
    const auto text = [&](const char* key) {
      return given.contains(key) ? py::str(given[key]).cast<std::string>() : std::string();
    };
    if (text("type") != name) continue;
    const auto by_token = [&](const char* dataset) {
      return file.read(dataset).to(DType::f64).transpose(1, 2).contiguous();
    };
    const Tensor q = by_token("q");
    Config config{.heads = q.size(2), .head_dim = q.size(3), .max_length = q.size(1)};
    for (const auto& [key, value] : given) {
      const auto option = py::str(key).cast<std::string>();
      if (option == "causal")
        config.causal = value.cast<bool>();
      else if (option == "max_len")
        config.max_length = value.cast<int64_t>();
      else if (option == "kernel" && name == "performer" && text("kernel") == "softmax")
        config.options.set(option, std::string("positive"));  // the estimator's name there
      else if (option != "type")
        config.options.set(option, option_value(option, value));
    }
    std::unique_ptr<Variant> variant;
    try {
      variant = make(name, nn::root(DType::f64), config);
    } catch (const ConfigError&) {  // a case of an operation below the variant
    }
    const bool uses_x = variant && variant->capabilities().uses_x;
    if (!variant || variant->config().causal != config.causal ||
        !function.applies_to(variant->config(), causal) || (uses_x && !file.has("x"))) {
      ++others;
      continue;
    }
    f.context(path.stem().string());
    auto state = variant->state_dict();
    if (file.has("params"))
      for (const std::string& each : file.datasets("params"))
        copy_into(state.at(each), file.read("params/" + each));
    function.replace(*variant);
    Mask mask;
    if (file.has("key_keep")) {
      const Tensor keep = file.read("key_keep").to(DType::f64);
      std::vector<int32_t> n;
      for (int64_t b = 0; b < keep.size(0); ++b)
        n.push_back(static_cast<int32_t>(
            std::lround(sum(Variable(keep.select(0, b)), {0}).value().item())));
      mask = lengths(n);
    }
    const Variable x = uses_x ? Variable(file.read("x").to(DType::f64)) : Variable();
    const Tensor out =
        variant
            ->forward({Variable(q), Variable(by_token("k")), Variable(by_token("v")), x}, mask, {})
            .value();
    near(f, "the result and the golden numbers", out, by_token("out"), 1e-9);
    ++cases;
  }
  f.context("");
  f.expect(cases > 0, "no golden case of ", name, " in ", folder, " has these options");
  f.measured(cases, cases == 1 ? " case" : " cases", "; ", others,
             " of other options, or of operations below the variant");
}

/// The results of all checks of a function.
struct Report {
  std::string title;
  std::vector<CheckResult> results;
  std::map<std::string, std::string> skipped;  // why, by check

  bool passed() const { return failed().empty(); }
  std::vector<std::string> failed() const {
    std::vector<std::string> out;
    for (const CheckResult& each : results)
      if (!each.passed()) out.push_back(each.check);
    return out;
  }
  std::string text() const {
    std::string out = concat_message(title, ": ", results.size() - failed().size(), " of ",
                                     results.size(), " checks passed");
    for (const CheckResult& each : results) {
      out += "\n  " + std::string(each.passed() ? "passed  " : "FAILED  ") + each.check;
      if (!each.measured.empty()) out += ": " + each.measured;
      for (const std::string& failure : each.failures) out += "\n            " + failure;
    }
    std::map<std::string, std::string> checks;  // by reason
    for (const auto& [name, why] : skipped) checks[why] += (checks[why].empty() ? "" : ", ") + name;
    for (const auto& [why, names] : checks) out += "\n  not run " + names + ": " + why;
    return out;
  }
};

/// The invariants for which the function has what they need; `skipped` receives the others.
std::vector<std::string> usual_checks(const std::optional<std::string>& name,
                                      const Subjected& function,
                                      std::map<std::string, std::string>& skipped) {
  std::vector<std::string> out{"shapes", "batch", "causality", "precision"};
  const auto add = [&](const char* each, bool possible, const char* needs) {
    if (possible)
      out.emplace_back(each);
    else
      skipped[each] = concat_message("the function has no ", needs);
  };
  const bool keep = function.takes("keep");
  add("padding", function.takes_padding(), "mask or lengths");
  add("nothing-to-attend", function.takes_padding() || keep, "mask, lengths or keep");
  if (!name) return out;
  out.insert(out.end(), {"permutation", "values", "large-norms", "exactness", "definition"});
  add("prefixes", function.takes("causal"), "argument causal, for both forms");
  add("masks", keep && function.takes("bias"), "keep and bias");
  add("gradients", function.has_vjp(), "vjp");
  return out;
}

Report check_function(const py::object& function, const std::optional<std::string>& name_,
                      std::optional<bool> causal, const py::object& vjp, const std::string& dtype,
                      std::optional<double> tolerance,
                      const std::optional<std::vector<std::string>>& checks,
                      const std::optional<std::filesystem::path>& golden_folder,
                      const py::kwargs& given) {
  // Without a name, softmax takes the variant's place, and nothing is compared with its results.
  const std::string name = name_.value_or("softmax");
  const Options options = options_of("attention", given);
  const bool f32 = float_dtype(dtype) == DType::f32;
  Subjected subjected(function, vjp, name, options, f32);
  check<ConfigError>(name_ || !golden_folder,
                     "check: golden numbers are those of a variant; give its name");

  std::vector<Check> known = invariant_checks();
  if (spec(name).weights) known.push_back({{"definition", ""}, conformance::definition});
  Report report{name_.value_or("function"), {}, {}};
  std::set<std::string> wanted, ran;
  std::vector<std::string> all{"reference", "deterministic", "golden"};
  for (const Check& each : known) all.push_back(each.description.name);
  for (const Evidence& each : spec(name).evidence) all.push_back(each.name);
  if (checks) {
    for (const std::string& each : *checks) {
      check<ConfigError>(std::find(all.begin(), all.end(), each) != all.end(),
                         "check: unknown check \"", each, "\"", suggestion(each, all),
                         "; expected of: ", comma_list(all));
      wanted.insert(each);
    }
  } else {
    const auto usual = usual_checks(name_, subjected, report.skipped);
    wanted.insert(usual.begin(), usual.end());
    wanted.insert("deterministic");
    if (name_) wanted.insert("reference");
    if (golden_folder)
      wanted.insert("golden");
    else if (name_)
      report.skipped["golden"] = "expected golden=FOLDER, tests/data/golden of the sources";
    for (const Evidence& each : name_ ? spec(name).evidence : std::vector<Evidence>())
      if (f32)
        report.skipped[each.name] = "it has the tolerances of float64; expected dtype=\"float64\"";
      else
        wanted.insert(each.name);
  }

  OptionSet set;
  for (const std::string& key : options.keys()) set.emplace_back(key, options.find(key)->value);
  const Capabilities can = capabilities_of(name, set);
  std::vector<bool> forms{causal.value_or(can.causal_only)};
  if (!causal && subjected.takes("causal") && can.causal && !can.causal_only) forms = {false, true};

  for (const bool form : forms) {
    check_options(
        name, {.heads = 2, .head_dim = 4, .max_length = 16, .causal = form, .options = options});
    const Substitution substitution(
        name,
        [&](Variant& variant) {
          if (subjected.applies_to(variant.config(), form)) subjected.replace(variant);
        },
        tolerance.value_or(f32 ? 1e-4 : 0));
    const auto run_check = [&](const std::string& what, bool only_if_called, const auto& body) {
      if (!wanted.count(what)) return;
      subjected.calls = 0;
      CheckResult result = timed(report.title, what, body);
      if (subjected.interrupted) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        throw py::error_already_set();
      }
      if (forms.size() == 2 && form) result.check += " (causal)";
      if (!subjected.calls && only_if_called) return;
      ran.insert(what);
      report.results.push_back(std::move(result));
    };
    const Subject subject{name, set, form};
    run_check("reference", false, [&](Findings& f) { reference(subject, f); });
    run_check("deterministic", false, [&](Findings& f) { deterministic(subject, f); });
    for (const Check& each : known)
      run_check(each.description.name, true, [&](Findings& f) { each.run(subject, f); });
    if (golden_folder && form == forms.front())
      run_check("golden", false,
                [&](Findings& f) { golden(name, *golden_folder, form, subjected, f); });
    if (form == forms.front())
      for (const Evidence& each : spec(name).evidence) run_check(each.name, true, each.run);
  }
  for (const std::string& each : wanted)
    if (!ran.count(each))
      report.skipped[each] = "no case of it has the options and the form of the function";
  return report;
}

}  // namespace

void define_check(py::module_& m) {
  py::class_<CheckResult>(m, "Result")
      .def_readonly("name", &CheckResult::check)
      .def_readonly("failures", &CheckResult::failures)
      .def_readonly("measured", &CheckResult::measured)
      .def_readonly("seconds", &CheckResult::seconds)
      .def_property_readonly("passed", &CheckResult::passed)
      .def("__repr__",
           [](const CheckResult& r) { return r.check + (r.passed() ? ": passed" : ": FAILED"); });
  py::class_<Report>(m, "Report")
      .def_property_readonly("passed", &Report::passed)
      .def_property_readonly("failed", &Report::failed, "The names of the checks that failed.")
      .def_readonly("skipped", &Report::skipped, "The checks that were not run, and why.")
      .def("__len__", [](const Report& r) { return r.results.size(); })
      .def("__getitem__",
           [](const Report& r, size_t i) {
             if (i >= r.results.size()) throw py::index_error();
             return r.results[i];
           })
      .def("__repr__", &Report::text);
  m.def("check", &check_function, "function"_a, none("name"), py::kw_only(), none("causal"),
        none("vjp"), "dtype"_a = "float64", none("tolerance"), none("checks"), none("golden"),
        "Checks a function of q, k and v, (batch, tokens, heads, head_dim) each, as the "
        "conformance suite checks the variant `name`. It is given what its parameters name: x, "
        "lengths, mask, keep, bias, "
        "causal, parameters, and options of the variant.");
}

}  // namespace longhand::python
