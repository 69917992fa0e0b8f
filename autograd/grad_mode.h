// Whether operations are recorded for a backward pass.
#pragma once

namespace longhand {

/// Whether operations are recorded on this thread. Default: true.
bool grad_enabled();

/// During its lifetime, operations on this thread are not recorded: results need no gradient.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// During its lifetime, operations on this thread are recorded, even inside a NoGrad.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool before_;
};

}  // namespace longhand
