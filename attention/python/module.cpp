// The Python module longhand: attention on NumPy arrays, definitions, checks of functions, and
// tasks. See README.md.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "longhand/attention/python/arrays.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/core/parallel.h"
#include "longhand/core/version.h"
#include "longhand/data/loader.h"

namespace longhand::python {
namespace {

using namespace py::literals;

py::dict arrays_of(const nn::StateDict& tensors) {
  py::dict out;
  for (const auto& [name, tensor] : tensors) out[py::str(name)] = array_of(tensor);
  return out;
}

/// The arguments of a call.
struct Arguments {
  attention::Inputs inputs;
  attention::Mask mask;

  /// Tracks gradients of all float arrays, or of none.
  Arguments(py::handle q, py::handle k, py::handle v, py::handle x, py::handle lengths,
            py::handle keep, py::handle bias, bool gradients) {
    const auto leaf = [&](py::handle array, const char* name) {
      const Tensor tensor = optional_tensor_of(array, name);
      if (!tensor.defined()) return Variable();
      check<ShapeError>(is_float(tensor.dtype()), name, ": expected float32 or float64, got ",
                        numpy_name(tensor.dtype()));
      return Variable(tensor, gradients);
    };
    inputs = {leaf(q, "q"), leaf(k, "k"), leaf(v, "v"), leaf(x, "x")};
    mask.lengths = optional_tensor_of(lengths, "lengths");
    if (mask.lengths.defined() && mask.lengths.dtype() == DType::i64) {
      for (const int64_t n : mask.lengths.to_vector<int64_t>())
        check<ShapeError>(std::in_range<int32_t>(n),
                          "lengths: expected 0 to the number of tokens, got ", n);
      mask.lengths = mask.lengths.to(DType::i32);
    }
    mask.keep = optional_tensor_of(keep, "keep");
    mask.bias = leaf(bias, "bias");
  }

  std::map<std::string, Variable> leaves() const {
    return {
        {"q", inputs.q}, {"k", inputs.k}, {"v", inputs.v}, {"x", inputs.x}, {"bias", mask.bias}};
  }
};

/// The gradients of one call; can be used once.
class Pullback {
 public:
  Pullback(std::shared_ptr<attention::Variant> variant, const Arguments& arguments, Variable out)
      : variant_(std::move(variant)), leaves_(arguments.leaves()), out_(std::move(out)) {}

  py::dict operator()(py::handle gradient) {
    check(out_.defined(), "vjp: expected one call for each result; call vjp() again");
    const Variable out = std::move(out_);
    out_ = {};
    const Tensor seed = tensor_of(gradient, "the gradient of the result");
    check<ShapeError>(seed.dtype() == out.dtype(), "the gradient of the result: expected ",
                      numpy_name(out.dtype()), ", got ", numpy_name(seed.dtype()));
    {
      const py::gil_scoped_release release;
      variant_->zero_grad();
      if (out.requires_grad()) backward(out, seed);
    }
    nn::StateDict gradients;
    const auto take = [&](const std::string& name, Variable from) {
      if (!from.defined()) return;
      const Tensor grad = from.take_grad();
      gradients[name] = grad.defined() ? grad : Tensor::zeros(from.shape(), from.dtype());
    };
    for (const auto& [name, leaf] : leaves_) take(name, leaf);
    for (const auto& [name, parameter] : variant_->named_parameters())
      take(leaves_.contains(name) ? "parameters." + name : name, parameter);
    return arrays_of(gradients);
  }

 private:
  std::shared_ptr<attention::Variant> variant_;
  std::map<std::string, Variable> leaves_;
  Variable out_;
};

/// A variant as a function of arrays.
class Attention {
 public:
  Attention(const std::string& name, int64_t heads, int64_t head_dim, int64_t kv_heads,
            std::optional<int64_t> max_length, bool causal, const std::string& dtype, uint64_t seed,
            const std::optional<py::dict>& more, const py::kwargs& options)
      : dtype_(float_dtype(dtype)) {
    if (more)
      for (const auto& [key, value] : *more) options[key] = value;
    attention::Config config{.heads = heads,
                             .head_dim = head_dim,
                             .kv_heads = kv_heads,
                             .max_length = max_length.value_or(1),
                             .causal = causal,
                             .options = options_of("attention", options)};
    effective_ = attention::check_options(name, config);
    check<ConfigError>(
        max_length || !attention::capabilities(name, config).fixed_length, name,
        ": parameters are tied to the length; give max_length, the largest number of tokens");
    variant_ = attention::make(name, nn::root(dtype_, seed), config);
  }

  py::object call(py::handle q, py::handle k, py::handle v, py::handle x, py::handle lengths,
                  py::handle keep, py::handle bias) {
    const Arguments arguments(q, k, v, x, lengths, keep, bias, false);
    return array_of(forward(arguments, true).value());
  }

  py::tuple vjp(py::handle q, py::handle k, py::handle v, py::handle x, py::handle lengths,
                py::handle keep, py::handle bias) {
    const Arguments arguments(q, k, v, x, lengths, keep, bias, true);
    const Variable out = forward(arguments, false);
    return py::make_tuple(array_of(out.value()), Pullback(variant_, arguments, out));
  }

  py::dict parameters() const { return arrays_of(variant_->state_dict()); }
  void set_parameters(const std::map<std::string, py::object>& given) {
    nn::StateDict state = variant_->state_dict();
    for (const auto& [name, array] : given) state[name] = tensor_of(array, name);
    variant_->load_state_dict(state);
  }

  const std::string& name() const { return variant_->config().name; }
  py::dict options() const {
    py::dict out;
    for (const auto& [key, value] : effective_) out[py::str(key)] = py::cast(value.value);
    return out;
  }
  std::string text() const {
    const attention::Config& config = variant_->config();
    return concat_message("<longhand.attention ", name(), ": ", config.heads, " heads of ",
                          config.head_dim, ", ", numpy_name(dtype_),
                          config.causal ? ", causal>" : ">");
  }

 private:
  Variable forward(const Arguments& arguments, bool without_gradients) {
    const DType dtype = arguments.inputs.v.defined() ? arguments.inputs.v.dtype() : dtype_;
    check<ShapeError>(dtype == dtype_, name(), ": expected arrays of ", numpy_name(dtype_),
                      ", the dtype that it was made with, got ", numpy_name(dtype));
    const py::gil_scoped_release release;
    std::optional<NoGrad> no_grad;
    if (without_gradients) no_grad.emplace();
    return variant_->forward(arguments.inputs, arguments.mask, {});
  }

  DType dtype_;
  std::shared_ptr<attention::Variant> variant_;
  EffectiveValues effective_;
};

/// A split of a task. Each iteration is an epoch, in a new order if it is shuffled.
struct TaskBatches {
  data::Task task;
  std::string split;
  data::LoaderConfig config;
  uint64_t seed = 0;
  int64_t epochs = 0;  // begun

  const data::Dataset& dataset() const { return task.split(split); }
};

struct Epoch {
  std::shared_ptr<TaskBatches> of;
  std::unique_ptr<data::Loader> loader;
  int64_t left = 0;

  explicit Epoch(const std::shared_ptr<TaskBatches>& task)
      : of(task),
        loader(std::make_unique<data::Loader>(task->dataset(), task->config,
                                              Generator(task->seed).fork("data"))),
        left(loader->batches_per_epoch()) {
    loader->seek({.epoch = task->epochs++, .batch = 0});
  }

  py::object next() {
    if (left-- <= 0) throw py::stop_iteration();
    data::Batch batch;
    {
      const py::gil_scoped_release release;
      batch = loader->next();
    }
    static const py::handle type =
        py::module_::import("collections")
            .attr("namedtuple")("Batch", py::make_tuple("tokens", "targets", "lengths"))
            .release();
    const py::object lengths = batch.lengths.defined() ? array_of(batch.lengths) : py::none();
    return type(array_of(batch.tokens), array_of(batch.targets), lengths);
  }
};

std::shared_ptr<TaskBatches> task(const std::string& name, const std::string& split,
                                  int64_t batch_size, uint64_t seed, std::optional<bool> shuffle,
                                  const py::kwargs& options) {
  check<ConfigError>(batch_size >= 1, "task: expected a batch_size of at least 1, got ",
                     batch_size);
  Options section = options_of("data", options);
  section.set("task", name);
  data::LoaderConfig config = data::Loader::in_order(batch_size);
  config.shuffle = shuffle.value_or(split == "train");
  return std::make_shared<TaskBatches>(
      TaskBatches{data::make_task(section, seed, data::Splits::only(split)), split, config, seed});
}

void define_memory(py::module_& m) {
  py::class_<Memory>(m, "Memory", py::buffer_protocol()).def_buffer([](const Memory& memory) {
    const Tensor& t = memory.tensor;
    static constexpr const char* formats[] = {"f", "d", "i", "q",
                                              "B"};  // of f32, f64, i32, i64, u8
    const auto bytes = static_cast<py::ssize_t>(size_of(t.dtype()));
    std::vector<py::ssize_t> shape(t.shape().begin(), t.shape().end()), strides;
    for (const int64_t stride : t.strides()) strides.push_back(stride * bytes);
    return py::buffer_info(const_cast<void*>(t.address()), bytes,
                           formats[static_cast<size_t>(t.dtype())], t.rank(), shape, strides);
  });
  m.def(
      "_address",
      [](py::handle array) {
        return reinterpret_cast<uintptr_t>(tensor_of(array, "array").address());
      },
      "Where the elements of an array are for the library: for tests.");
}

void define_attention(py::module_& m) {
  py::class_<Pullback>(m, "Pullback").def("__call__", &Pullback::operator(), "gradient"_a);
  py::class_<Attention>(
      m, "attention",
      "A variant as a function: attention(name, heads=, head_dim=, causal=, **options)(q, k, v). "
      "Queries are (batch, "
      "tokens, heads, head_dim), keys and values (batch, tokens, kv_heads, head_dim).")
      .def(py::init<const std::string&, int64_t, int64_t, int64_t, std::optional<int64_t>, bool,
                    const std::string&, uint64_t, const std::optional<py::dict>&,
                    const py::kwargs&>(),
           "name"_a, py::kw_only(), "heads"_a, "head_dim"_a, "kv_heads"_a = 0, none("max_length"),
           "causal"_a = false, "dtype"_a = "float32", "seed"_a = 0, none("options"))
      .def(
          "__call__", &Attention::call, "q"_a, "k"_a, "v"_a, none("x"), none("lengths"),
          none("keep"), none("bias"),
          "The result, (batch, tokens, heads, head_dim). x: the tokens, (batch, tokens, heads * "
          "head_dim), for variants that compute gates from them. lengths: tokens of each sequence, "
          "the rest is padding. keep and bias broadcast to (batch, heads, queries, keys).")
      .def("vjp", &Attention::vjp, "q"_a, "k"_a, "v"_a, none("x"), none("lengths"), none("keep"),
           none("bias"),
           "The result, and a function that returns the gradients for the gradient of the result, "
           "by name: of the arguments and of the parameters. A parameter with the name of an "
           "argument is parameters.NAME.")
      .def_property("parameters", &Attention::parameters, &Attention::set_parameters,
                    "Parameters and buffers by name: arrays that share memory with the variant. "
                    "Assigning a dict copies the arrays that it has.")
      .def_property_readonly("name", &Attention::name)
      .def_property_readonly("options", &Attention::options,
                             "The options that apply, with their values.")
      .def("__repr__", &Attention::text);
  m.def("set_threads", &set_threads, "n"_a, "The number of threads, by default that of the cores.");
  m.def("variants", &attention::names, "The names of all variants.");
}

void define_tasks(py::module_& m) {
  const auto info = [](auto data::TaskInfo::*member) {
    return [member](const TaskBatches& self) { return self.task.info.*member; };
  };
  py::class_<Epoch>(m, "Epoch")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Epoch::next);
  py::class_<TaskBatches, std::shared_ptr<TaskBatches>>(m, "Task")
      .def("__iter__", [](const std::shared_ptr<TaskBatches>& self) { return Epoch(self); })
      .def("__len__",
           [](const TaskBatches& self) {
             const int64_t n = self.dataset().size(), b = self.config.batch_size;
             return (n + b - 1) / b;
           })
      .def_property_readonly("vocabulary", info(&data::TaskInfo::vocabulary))
      .def_property_readonly("classes", info(&data::TaskInfo::classes))
      .def_property_readonly("per_token", info(&data::TaskInfo::per_token))
      .def_property_readonly("causal", info(&data::TaskInfo::causal))
      .def_property_readonly("max_length", info(&data::TaskInfo::max_length));
  m.def("task", &task, "name"_a, "split"_a = "train", py::kw_only(), "batch_size"_a = 32,
        "seed"_a = 0, none("shuffle"),
        "The batches of a split of a task, one epoch for each iteration: (tokens, targets, "
        "lengths), int32. lengths is None if nothing is padded; targets of ignore_index do not "
        "count. The training split is shuffled.");
  m.def("tasks", &data::task_names, "The names of all tasks.");
  m.attr("ignore_index") = data::ignore_index;
}

}  // namespace
}  // namespace longhand::python

PYBIND11_MODULE(longhand, m) {
  using namespace longhand;
  namespace py = pybind11;
  m.doc() =
      "Attention variants of Longhand on NumPy arrays, their definitions, and checks of attention "
      "functions.";
  m.attr("__version__") = LONGHAND_VERSION;
  py::register_exception<Error>(m, "Error");
  python::define_memory(m);
  python::define_attention(m);
  python::define_definitions(m);
  python::define_check(m);
  python::define_tasks(m);
}
