#include "fault.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "memory.h"
#include "simt.h"

namespace cuda_emulator {
namespace {

struct sigaction earlier_segv, earlier_ill;

void on_signal(int number, siginfo_t* info, void*) {
  if (number == SIGSEGV) {
    const std::string shared = shared_memory_at(info->si_addr), device = describe_address(info->si_addr);
    if (!shared.empty()) fault(shared);
    if (!device.empty()) fault("the host accessed device memory: ", device);
  }
  // The compiler's check of alignment ends in an illegal instruction (-fsanitize-undefined-trap-on-error).
  if (number == SIGILL && running_kernel()) fault("unaligned access to memory");
  sigaction(number, number == SIGSEGV ? &earlier_segv : &earlier_ill, nullptr);  // the instruction is repeated
}

}  // namespace

void fault(const std::string& text) {
  const std::string message = "[emulated device] " + where_running() + text + "\n";
  (void)!write(STDERR_FILENO, message.data(), message.size());
  std::abort();
}

std::string wanted_error() {
  const char* given = std::getenv("LMX_EMULATED_ERROR");
  return given ? given : "";
}

void install_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A fiber's stack may be too small for the handler, so it has a separate one.
    constexpr size_t kStack = size_t{1} << 17;
    static char stack[kStack];
    const stack_t alternative{.ss_sp = stack, .ss_flags = 0, .ss_size = kStack};
    sigaltstack(&alternative, nullptr);
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &earlier_segv);
    sigaction(SIGILL, &action, &earlier_ill);
  });
}

}  // namespace cuda_emulator
