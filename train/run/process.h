// Signals of the process as requests to stop and to save.
#pragma once

namespace longhand::train {

/// During its lifetime, SIGINT, SIGTERM and SIGHUP request a stop, and a second one of them ends the
/// process at once with 128 + its number; SIGUSR1 requests saving; SIGPIPE is ignored. A SIGHUP that
/// is already ignored (nohup) stays ignored. The destructor restores the previous handlers. At most
/// one may exist at a time: the constructor throws Error if there is another one.
class SignalRequests {
 public:
  SignalRequests();
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  /// Whether a signal has requested a stop; for Observer::should_stop.
  bool stop() const;
  /// Whether SIGUSR1 has arrived since the last call that returned true; for Observer::should_save.
  bool take_save();
};

}  // namespace longhand::train
