#include "train/signals.h"

#include <atomic>
#include <cstring>

#include "lmx/error.h"
#include "lmx/launch.h"

namespace lmx {
namespace {

// A signal handler may access lock-free atomics only. Threads other than the interrupted one also read the variable.
std::atomic<int> g_received = 0;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  g_received = signal;
}

struct Handled {
  int signal;
  bool once;  // the second signal has its default effect
};
constexpr std::array<Handled, 6> kHandled{
    {{SIGINT, true}, {SIGTERM, true}, {SIGHUP, false}, {SIGPIPE, false}, {SIGUSR1, false}, {SIGUSR2, false}}};

}  // namespace

SignalGuard::SignalGuard() {
  g_received = 0;
  for (size_t i = 0; i < kHandled.size(); ++i) {
    const auto [signal, once] = kHandled[i];
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = once ? static_cast<int>(SA_RESETHAND | SA_RESTART) : SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, nullptr, &before_[i]);
    if (!stays_ignored(signal)) sigaction(signal, &action, nullptr);
  }
}

SignalGuard::~SignalGuard() {
  for (size_t i = 0; i < kHandled.size(); ++i) sigaction(kHandled[i].signal, &before_[i], nullptr);
}

int SignalGuard::received() {
  const int signal = g_received;
  return signal == 0 || signal == SIGINT ? signal : SIGTERM;
}

void SignalGuard::end_before_training() {
  const int signal = received();
  if (signal == 0) return;
  // Rank 0 reports it for the whole job. Another rank may get the signal because the job ends with an error.
  const bool said = detect_launch().rank > 0;
  throw EndProcess(128 + signal, str("[run] ", name(signal), " before the first step: nothing was trained"), said);
}

std::string SignalGuard::name(int otherwise) {
  const int own = g_received;
  const char* abbreviation = sigabbrev_np(own != 0 ? own : otherwise);
  return std::string("SIG") + (abbreviation ? abbreviation : "?");
}

}  // namespace lmx
