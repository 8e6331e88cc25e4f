// A descriptor of the same ABI that ends before its factory.
#include <cstddef>

#include "lmx/plugin.h"

extern "C" LMX_API const lmx::PluginDescriptor* lmx_plugin() {
  static const lmx::PluginDescriptor descriptor{offsetof(lmx::PluginDescriptor, factory),
                                                lmx::kAbi,
                                                LMX_FULL_BUILD_ID,
                                                lmx::PluginKind::batcher,
                                                "test_short",
                                                nullptr,
                                                nullptr,
                                                nullptr,
                                                nullptr};
  return &descriptor;
}
