#include "train/signals.h"

namespace lmx::train {
namespace {

// What a handler may touch is a global of this type and nothing else.
volatile std::sig_atomic_t g_received = 0;

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
