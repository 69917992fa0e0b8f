#include "longhand/train/run/process.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace longhand::train {
namespace {

// The only state that a signal handler may access.
std::atomic<int> stop_signal{0};
std::atomic<bool> save_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_stop(int signal) {
  if (stop_signal.exchange(signal) != 0) _exit(128 + signal);
}

void on_save(int) { save_requested = true; }

// Process-wide state, because signals are process-wide.
std::atomic<int> depth{0};
struct Handled {
  int signal;
  void (*handler)(int);  // null: ignored
};
constexpr std::array<Handled, 7> handled = {{{SIGINT, on_stop},
                                             {SIGTERM, on_stop},
                                             {SIGHUP, on_stop},
                                             {SIGUSR2, on_stop},
                                             {SIGUSR1, on_save},
                                             // A closed output pipe or a file size limit is
                                             // no reason to lose a run.
                                             {SIGPIPE, nullptr},
                                             {SIGXFSZ, nullptr}}};
std::array<struct sigaction, handled.size()> before;

}  // namespace

SignalRequests::SignalRequests() {
  if (depth++ > 0) return;
  stop_signal = 0;
  save_requested = false;
  for (size_t i = 0; i < handled.size(); ++i) {
    const auto [signal, handler] = handled[i];
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
  if (--depth > 0) return;
  for (size_t i = 0; i < handled.size(); ++i) sigaction(handled[i].signal, &before[i], nullptr);
}

bool SignalRequests::stop() const { return stop_signal != 0; }

bool SignalRequests::take_save() { return save_requested.exchange(false); }

void SignalRequests::decline() {
  if (depth == 0) return;
  for (size_t i = 0; i < handled.size(); ++i)
    if (handled[i].handler) sigaction(handled[i].signal, &before[i], nullptr);
  if (const int signal = stop_signal.exchange(0)) raise(signal);
  if (save_requested.exchange(false)) raise(SIGUSR1);
}

}  // namespace longhand::train
