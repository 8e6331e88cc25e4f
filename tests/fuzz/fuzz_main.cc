// libFuzzer's entry. LMX_FUZZ_TARGET is one function of targets.h. An exception of it ends the process, which is a
// finding.
#include <cstddef>
#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lmx::fuzz::LMX_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
