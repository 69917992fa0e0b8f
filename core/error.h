// How the library complains: it throws one of these, and never prints, aborts or exits.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace longhand {

/// Base of everything the library throws. The message names the thing, the value found and the
/// value wanted.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Shapes or dtypes that do not fit together.
struct ShapeError : Error {
  using Error::Error;
};
/// A configuration, flag or option that cannot be used.
struct ConfigError : Error {
  using Error::Error;
};
/// A data file or checkpoint that is missing, damaged or of another kind.
struct DataError : Error {
  using Error::Error;
};
/// Training produced a loss or gradient that is not finite.
struct DivergedError : Error {
  using Error::Error;
};

/// The parts streamed one after the other into one string.
template <class... Parts>
std::string concat_message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws E with the streamed parts as its message unless ok; formats only on failure.
template <class E = Error, class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(concat_message(parts...));
}

}  // namespace longhand
