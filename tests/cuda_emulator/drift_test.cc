// The emulator's headers against NVIDIA's, which the build found: equal values, sizes and parameters. Otherwise what
// passes on the emulated device could fail to compile, or do something else, on a real one.
#include <gtest/gtest.h>

#include "include/cublasLt.h"
#include "include/cuda_runtime.h"
#include "include/cudnn.h"

#include "drift_table.h"

namespace cuda_drift {

Table nvidia();

TEST(Drift, TheEmulatorDeclaresWhatNvidiaDoes) {
#if LMX_CUDA_HEADERS
  const Table theirs = nvidia();
  for (const auto& [name, text] : table()) {
    EXPECT_EQ(text, theirs.at(name)) << name;
  }
#else
  GTEST_SKIP() << "the build found no CUDA Toolkit";
#endif
}

}  // namespace cuda_drift
