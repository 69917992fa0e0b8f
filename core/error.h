// The exceptions of the library, which never prints, aborts or exits.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace longhand {

/// Base class of everything the library throws. The message names the subject, the value found and
/// the value expected.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Shapes or dtypes that do not match.
struct ShapeError : Error {
  using Error::Error;
};
/// An invalid configuration, flag or option.
struct ConfigError : Error {
  using Error::Error;
};
/// A data file or checkpoint that is missing, damaged or in an unexpected format.
struct DataError : Error {
  using Error::Error;
};
/// Training produced a loss or gradient that is not finite, or an outlier.
struct DivergedError : Error {
  using Error::Error;
};

/// Streams the parts, in order, into one string.
template <class... Parts>
std::string concat_message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws E with the streamed parts as its message unless ok. The message is formatted only then.
template <class E = Error, class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(concat_message(parts...));
}

}  // namespace longhand
