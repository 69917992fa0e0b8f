// Signals as requests to stop or to save.
#pragma once

namespace longhand::train {

/// While an object is alive, SIGINT, SIGTERM, SIGHUP and SIGUSR2 request a stop; a second one ends
/// the process at once with 128 + its number (SIGUSR2 is for launchers that forward it but end the
/// processes themselves soon after a SIGTERM). SIGUSR1 requests saving. SIGPIPE and SIGXFSZ are
/// ignored, so that writing fails instead. An already ignored SIGHUP (nohup) stays ignored.
///
/// Objects may be nested: the outermost one installs the handlers and restores the previous ones,
/// so a program can catch signals from its start, before it knows what will respond to them.
class SignalRequests {
 public:
  SignalRequests();
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  /// Returns whether a signal has requested a stop; for Observer::should_stop.
  bool stop() const;
  /// Returns whether SIGUSR1 arrived since the last call that returned true; for should_save.
  bool take_save();

  /// For work that does not respond to requests: restores the handlers of SIGINT, SIGTERM, SIGHUP,
  /// SIGUSR1 and SIGUSR2, and delivers to them the signals that have already arrived.
  static void decline();
};

}  // namespace longhand::train
