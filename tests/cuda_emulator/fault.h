// Errors that a real device reports badly or not at all, each of which ends the process with one message on stderr; and
// the error of a real device that a test wants.
#pragma once

#include <sstream>
#include <string>

namespace cuda_emulator {

[[noreturn]] void fault(const std::string& text);

template <class... Parts>
[[noreturn]] void fault(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  fault(text.str());
}

// The value of LMX_EMULATED_ERROR at this moment (docs/development.md), or an empty string.
std::string wanted_error();

// Makes a message of SIGSEGV and SIGILL where the cause is known: an access to device memory by the host, an access
// beyond shared memory, an unaligned access in a kernel. Other signals go to the handler that was installed before.
void install_handlers();

}  // namespace cuda_emulator
