// Whether operations record themselves for a backward pass.
#pragma once

namespace longhand {

/// True at first; per thread.
bool grad_enabled();

/// While one lives on this thread, nothing is recorded: results need no gradient.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// While one lives, operations are recorded, even inside a NoGrad.
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
