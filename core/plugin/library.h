// Loading a plugin's shared library and checking that it fits this build.
#pragma once

#include <string>

#include "lmx/plugin.h"

namespace lmx {

// The build id that the library's file tells without being loaded; "" where it tells none, which only loading settles.
// UserError as load_plugin()'s where ABI or build differ from this lmx's.
std::string check_build(const PluginInfo& info);

// Loads `info.path` for good (handles are never closed: objects, exceptions and functions of a plugin outlive every
// scope) and returns its descriptor. UserError that names the file: missing, no shared library, unresolved symbols, no
// `lmx_plugin`, another ABI or build, a kind or name that differs from plugin.toml.
const PluginDescriptor* load_plugin(const PluginInfo& info);

}  // namespace lmx
