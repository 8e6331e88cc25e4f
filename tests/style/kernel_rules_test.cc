// Rules for arguments of CUDA kernels that no test on the emulated device can check, because one compiler makes both
// sides there.
#include <gtest/gtest.h>

#include "source_files.h"

namespace lmx_style {
namespace {

// nvcc 13.0 gives the members after a [[no_unique_address]] member other offsets in device code than in host code, so
// a kernel that gets such a struct reads wrong addresses. A struct that derives from the empty one has one layout.
TEST(KernelRules, NoArgumentHasAMemberWithoutAnAddress) {
  for (const SourceFile& file : source_files({"core", "plugins"}, kCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const size_t found = line.find("no_unique_address");
      if (found == std::string::npos || line.rfind("//", found) != std::string::npos) continue;
      ADD_FAILURE() << file.path << ':' << i + 1 << ": device code may place the members after it elsewhere; derive "
                    << "the struct from the empty one";
    }
  }
}

}  // namespace
}  // namespace lmx_style
