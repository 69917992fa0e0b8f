// Element types of tensors, and the dispatch from a run-time DType to a compile-time type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "longhand/core/error.h"

namespace longhand {

enum class DType : uint8_t { f32, f64, i32, i64, u8 };  // tables below have this order

constexpr size_t size_of(DType dtype) {
  constexpr size_t sizes[] = {4, 8, 4, 8, 1};
  return sizes[static_cast<size_t>(dtype)];
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"f32", "f64", "i32", "i64", "u8"};
  return names[static_cast<size_t>(dtype)];
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

constexpr bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;

/// Selects the float or the double version of a function, such as one of a C library, by T.
template <class T, class F, class D>
constexpr auto for_type(F of_float, D of_double) {
  if constexpr (dtype_of<T> == DType::f32)
    return of_float;
  else
    return of_double;
}

/// Calls `f.operator()<T>()` with T = float or double. Throws ShapeError for any other dtype.
template <class F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    default:
      throw ShapeError(concat_message("expected a tensor of f32 or f64, got ", dtype));
  }
}

/// Calls `f.operator()<T>()` with the element type of any dtype.
template <class F>
decltype(auto) dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    default:
      return dispatch_float(dtype, f);
  }
}

}  // namespace longhand
