// Signals of the process as requests to stop and to save.
#pragma once

namespace longhand::train {

/// During its lifetime, SIGINT, SIGTERM, SIGHUP and SIGUSR2 request a stop, and a second one of them ends
/// the process at once with 128 + its number (SIGUSR2 is for launchers that pass it on, but end the
/// processes themselves soon after a SIGTERM); SIGUSR1 requests saving; SIGPIPE and SIGXFSZ are ignored, so
/// that writing fails instead. A SIGHUP that is already ignored (nohup) stays ignored.
///
/// May be nested: the outermost one installs the handlers, and its destructor restores those before.
/// So a program can catch signals from its start, before it knows what will respond to them.
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

  /// For work that does not respond to requests: restores the handlers of SIGINT, SIGTERM, SIGHUP,
  /// SIGUSR1 and SIGUSR2, and lets them handle signals that have arrived.
  static void decline();
};

}  // namespace longhand::train
