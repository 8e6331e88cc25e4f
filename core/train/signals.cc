#include "train/signals.h"

#include <atomic>

namespace lmx::train {
namespace {

// A handler may touch lock-free atomics; other threads than the one that was interrupted read it, too.
std::atomic<int> g_received = 0;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  g_received = signal;
}

}  // namespace

SignalGuard::SignalGuard() {
  g_received = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_int_);
  sigaction(SIGTERM, &action, &before_term_);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGINT, &before_int_, nullptr);
  sigaction(SIGTERM, &before_term_, nullptr);
}

int SignalGuard::received() {
  return g_received;
}

}  // namespace lmx::train
