#include "longhand/train/cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace longhand::cli {
namespace {

// All that a handler may touch.
std::atomic<bool> stop{false};
std::atomic<bool> save{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_stop(int signal) {
  if (stop.exchange(true)) _exit(128 + signal);
}

void on_save(int) { save = true; }

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // Reads and writes that were interrupted go on by themselves.
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_signals() {
  handle(SIGINT, on_stop);
  handle(SIGTERM, on_stop);
  handle(SIGUSR1, on_save);
  // The terminal is gone, unless nohup has said not to care.
  struct sigaction before {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    handle(SIGHUP, on_stop);
  // Nobody reads what is printed any more: no reason to lose a run.
  handle(SIGPIPE, SIG_IGN);
}

bool stop_requested() { return stop; }

bool take_save_request() { return save.exchange(false); }

}  // namespace longhand::cli
