#include "longhand/attention/python/arrays.h"

#include <algorithm>

namespace longhand::python {
namespace {

py::object numpy(const char* name) { return py::module_::import("numpy").attr(name); }

// The dtype of a format of struct.pack(), if there is one.
std::optional<DType> dtype_of_format(const std::string& format, py::ssize_t bytes) {
  if (format == "f") return DType::f32;
  if (format == "d") return DType::f64;
  if (format == "B" || format == "?") return DType::u8;
  if (format == "i" || format == "l" || format == "q") return bytes == 4 ? DType::i32 : DType::i64;
  return std::nullopt;
}

}  // namespace

py::object array_of(const Tensor& tensor) {
  return numpy("asarray")(py::cast(Memory{tensor}, py::return_value_policy::move));
}

py::object booleans_of(const Tensor& tensor) {
  return array_of(tensor).attr("view")(numpy("bool_"));
}

Tensor tensor_of(py::handle array, const std::string& what) {
  py::object object = py::isinstance<py::buffer>(array) ? py::reinterpret_borrow<py::object>(array)
                                                        : numpy("asarray")(array);
  for (const bool copied : {false, true}) {
    auto info =
        std::make_unique<py::buffer_info>(py::reinterpret_borrow<py::buffer>(object).request());
    const std::optional<DType> dtype = dtype_of_format(info->format, info->itemsize);
    check<ShapeError>(dtype.has_value(), what,
                      ": expected an array of float32, float64, int32, int64 or bool, got ",
                      py::str(numpy("asarray")(object).attr("dtype")).cast<std::string>());
    check<ShapeError>(info->ndim <= Shape::max_rank, what, ": expected at most ", Shape::max_rank,
                      " axes, got ", info->ndim);
    Shape strides;
    bool fits = reinterpret_cast<uintptr_t>(info->ptr) % info->itemsize == 0;
    for (const py::ssize_t bytes : info->strides) {
      fits = fits && bytes >= 0 && bytes % info->itemsize == 0;
      strides.push_back(bytes / info->itemsize);
    }
    if (!fits && !copied) {
      object = numpy("array")(object, py::arg("order") = "C");
      continue;
    }
    const Shape shape(std::vector<int64_t>(info->shape.begin(), info->shape.end()));
    const void* const data = info->ptr;
    // The last tensor may be destroyed by a thread that does not hold the GIL.
    const std::shared_ptr<const void> owner(info.release(), [](py::buffer_info* held) {
      const py::gil_scoped_acquire gil;
      delete held;
    });
    return Tensor::borrow(data, shape, strides, *dtype, owner);
  }
  throw Error(what + ": numpy.array() returned memory that is not aligned");
}

Tensor optional_tensor_of(py::handle array, const std::string& what) {
  return array.is_none() ? Tensor() : tensor_of(array, what);
}

DType float_dtype(const std::string& name) {
  check<ConfigError>(name == "float32" || name == "float64",
                     "dtype: expected \"float32\" or \"float64\", got \"", name, "\"");
  return name == "float32" ? DType::f32 : DType::f64;
}

std::string numpy_name(DType dtype) {
  static constexpr const char* names[] = {"float32", "float64", "int32", "int64", "uint8"};
  return names[static_cast<size_t>(dtype)];
}

OptionValue option_value(const std::string& name, py::handle value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (PyIndex_Check(value.ptr()))
    return py::int_(py::reinterpret_borrow<py::object>(value)).cast<int64_t>();
  if (PyNumber_Check(value.ptr()))
    return py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>();
  check<ConfigError>(py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value), name,
                     ": expected a boolean, a number, a text or a list, got ",
                     py::str(py::type::of(value)).cast<std::string>());
  const auto items = py::reinterpret_borrow<py::sequence>(value);
  const auto is_text = [](py::handle item) { return py::isinstance<py::str>(item); };
  if (items.size() && std::all_of(items.begin(), items.end(), is_text))
    return value.cast<std::vector<std::string>>();
  return value.cast<std::vector<int64_t>>();
}

Options options_of(const std::string& section, const py::kwargs& given) {
  Options options(section);
  for (const auto& [key, value] : given) {
    const auto name = py::str(key).cast<std::string>();
    options.set(name, option_value(section + "." + name, value));
  }
  return options;
}

}  // namespace longhand::python
