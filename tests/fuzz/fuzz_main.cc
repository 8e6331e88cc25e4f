// libFuzzer's entry; LMX_FUZZ_TARGET is one function of targets.h. What it throws ends the process: a finding.
#include <cstddef>
#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lmx::fuzz::LMX_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
