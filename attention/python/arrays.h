// Conversion between tensors and NumPy arrays, which share their memory. Arrays are exchanged
// through Python's buffer protocol, so that the module works with every version of NumPy.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "longhand/autograd/variable.h"
#include "longhand/core/error.h"
#include "longhand/core/options.h"

namespace longhand::python {

namespace py = pybind11;

/// The object that numpy.asarray() makes an array of; it keeps the tensor alive.
struct Memory {
  Tensor tensor;
};

/// Returns an array that shares the memory of the tensor.
py::object array_of(const Tensor& tensor);
/// The same for elements 0 and 1, as booleans.
py::object booleans_of(const Tensor& tensor);

/// Returns a tensor that shares the memory of an array, which it keeps alive. Other objects are
/// converted by numpy.asarray(); an array with negative strides, or whose elements are not aligned,
/// is copied. Booleans are u8. Throws ShapeError for elements of another type, naming `what`.
Tensor tensor_of(py::handle array, const std::string& what);
/// The same for an argument that may be None, which gives an undefined tensor.
Tensor optional_tensor_of(py::handle array, const std::string& what);

/// "float32" or "float64". Throws ConfigError for any other name.
DType float_dtype(const std::string& name);
std::string numpy_name(DType dtype);

/// The value of an option: boolean, integer, number, string, or list of integers or of strings.
OptionValue option_value(const std::string& name, py::handle value);
/// The options given as keywords, in a section of this name.
Options options_of(const std::string& section, const py::kwargs& given);

/// An argument that is None by default.
inline py::arg_v none(const char* name) { return py::arg(name) = py::none(); }

/// In check.cpp: check() and what it returns.
void define_check(py::module_& m);
/// In definitions.cpp.
void define_definitions(py::module_& m);

}  // namespace longhand::python

namespace pybind11::detail {

// Arguments and results of the definitions.
template <>
struct type_caster<longhand::Tensor> {
  PYBIND11_TYPE_CASTER(longhand::Tensor, const_name("array"));
  bool load(handle source, bool) {
    value = longhand::python::optional_tensor_of(source, "definitions");
    return true;
  }
  static handle cast(const longhand::Tensor& tensor, return_value_policy, handle) {
    return longhand::python::array_of(tensor).release();
  }
};
template <>
struct type_caster<longhand::Variable> {
  PYBIND11_TYPE_CASTER(longhand::Variable, const_name("array"));
  bool load(handle source, bool) {
    const longhand::Tensor tensor = longhand::python::optional_tensor_of(source, "definitions");
    value = tensor.defined() ? longhand::Variable(tensor) : longhand::Variable();
    return true;
  }
  static handle cast(const longhand::Variable& variable, return_value_policy, handle) {
    return longhand::python::array_of(variable.value()).release();
  }
};

}  // namespace pybind11::detail
