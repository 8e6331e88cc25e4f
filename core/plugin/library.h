// Loading a plugin's shared library and checking that it fits this build.
#pragma once

#include <string>

#include "lmx/plugin.h"

namespace lmx {

// The build id that is stored in the library's file, read without loading it; "" if the file has none, and then only
// loading shows whether it fits. UserError as for load_plugin() if ABI or build differ from this lmx.
std::string check_build(const PluginInfo& info);

// Loads `info.path` permanently and returns its descriptor. Handles are never closed, because objects, exceptions and
// functions of a plugin outlive every scope. UserError that names the file: missing, not a shared library, unresolved
// symbols, no `lmx_plugin`, another ABI or build, a kind or name that differs from plugin.toml.
const PluginDescriptor* load_plugin(const PluginInfo& info);

}  // namespace lmx
