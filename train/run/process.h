// What a run needs of the process it lives in: signals as requests to stop and to save.
#pragma once

namespace longhand::train {

/// While one lives, SIGINT, SIGTERM and SIGHUP ask to stop, and a second one of them ends the
/// process at once with 128 + its number; SIGUSR1 asks to save; SIGPIPE is ignored. A SIGHUP that
/// is ignored already (nohup) stays so. The destructor restores what was before. At most one lives
/// at a time: the constructor throws Error otherwise.
class SignalRequests {
 public:
  SignalRequests();
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  /// A signal that asks to stop has come; for Observer::should_stop.
  bool stop() const;
  /// SIGUSR1 has come since the last call that said so; for Observer::should_save.
  bool take_save();
};

}  // namespace longhand::train
