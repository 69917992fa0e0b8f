// Whether operations are recorded for a backward pass.
#pragma once

namespace longhand {

/// Whether operations are recorded on this thread. Default: true.
bool grad_enabled();

namespace detail {

/// Sets grad_enabled() during its lifetime.
class Recording {
 public:
  explicit Recording(bool enabled);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  bool before_;
};

}  // namespace detail

/// During its lifetime, operations on this thread are not recorded: results need no gradient.
class NoGrad : detail::Recording {
 public:
  NoGrad() : Recording(false) {}
};

/// During its lifetime, operations on this thread are recorded, even inside a NoGrad.
class EnableGrad : detail::Recording {
 public:
  EnableGrad() : Recording(true) {}
};

}  // namespace longhand
