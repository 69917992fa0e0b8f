#include "longhand/train/run/process.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

// The only state that a handler may access.
std::atomic<bool> stop_requested{false};
std::atomic<bool> save_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_stop(int signal) {
  if (stop_requested.exchange(true)) _exit(128 + signal);
}

void on_save(int) { save_requested = true; }

// Process-wide state, because signals are process-wide.
std::atomic<bool> is_caught{false};
constexpr std::array<std::pair<int, void (*)(int)>, 5> handlers = {
    {{SIGINT, on_stop},
     {SIGTERM, on_stop},
     {SIGHUP, on_stop},
     {SIGUSR1, on_save},
     // A closed output pipe is no reason to lose a run.
     {SIGPIPE, nullptr}}};
std::array<struct sigaction, handlers.size()> before;

}  // namespace

SignalRequests::SignalRequests() {
  check(!is_caught.exchange(true),
        "signals: a SignalRequests already exists; expected at most one per process");
  stop_requested = save_requested = false;
  for (size_t i = 0; i < handlers.size(); ++i) {
    const auto [signal, handler] = handlers[i];
    sigaction(signal, nullptr, &before[i]);
    if (signal == SIGHUP && before[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = handler ? handler : SIG_IGN;
    // Interrupted reads and writes are restarted.
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
