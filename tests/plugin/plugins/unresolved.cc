// A plugin that calls a function which this lmx does not have.
#include "lmx/plugin.h"

namespace lmx {
LMX_API int of_another_release();
}

namespace {
struct EmptyConfig {
  void fields(lmx::Fields&) {}
};
int make(const lmx::Node&, const std::string&) {
  return lmx::of_another_release();
}
}  // namespace

LMX_PLUGIN(batcher, test_unresolved, EmptyConfig, make)
