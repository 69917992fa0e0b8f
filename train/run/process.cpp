#include "longhand/train/run/process.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

// All that a handler may touch.
std::atomic<bool> stop_requested{false};
std::atomic<bool> save_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_stop(int signal) {
  if (stop_requested.exchange(true)) _exit(128 + signal);
}

void on_save(int) { save_requested = true; }

// Process-wide state, as signals are.
std::atomic<bool> is_caught{false};
constexpr std::array<std::pair<int, void (*)(int)>, 5> handlers = {
    {{SIGINT, on_stop},
     {SIGTERM, on_stop},
     {SIGHUP, on_stop},
     {SIGUSR1, on_save},
     // Nobody reads what is printed any more: no reason to lose a run.
     {SIGPIPE, nullptr}}};
std::array<struct sigaction, handlers.size()> before;

}  // namespace

SignalRequests::SignalRequests() {
  check(!is_caught.exchange(true),
        "signals: another SignalRequests lives; a process has one set of signal handlers");
  stop_requested = save_requested = false;
  for (size_t i = 0; i < handlers.size(); ++i) {
    const auto [signal, handler] = handlers[i];
    sigaction(signal, nullptr, &before[i]);
    if (signal == SIGHUP && before[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = handler ? handler : SIG_IGN;
    // Reads and writes that were interrupted go on by themselves.
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

SignalRequests::~SignalRequests() {
  for (size_t i = 0; i < handlers.size(); ++i) sigaction(handlers[i].first, &before[i], nullptr);
  is_caught = false;
}

bool SignalRequests::stop() const { return stop_requested; }

bool SignalRequests::take_save() { return save_requested.exchange(false); }

}  // namespace longhand::train
