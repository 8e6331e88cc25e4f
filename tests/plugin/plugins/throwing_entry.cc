// A plugin whose entry point throws.
#include <stdexcept>

#include "lmx/plugin.h"

extern "C" LMX_API const lmx::PluginDescriptor* lmx_plugin() {
  throw std::runtime_error("no licence on this host");
}
