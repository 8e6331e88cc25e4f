// Loading a plugin's shared library and checking that it fits this build.
#pragma once

#include <string>

#include "lmx/plugin.h"

namespace lmx {

// Loads `info.path` for good (handles are never closed: objects, exceptions and functions of a plugin outlive every
// scope) and returns its descriptor. UserError that names the file: missing, no shared library, unresolved symbols, no
// `lmx_plugin`, another ABI or build, a kind or name that differs from plugin.toml.
const PluginDescriptor* load_plugin(const PluginInfo& info);

// Hex SHA-256 of a file. UserError when it cannot be read.
std::string file_sha256(const std::string& path);

}  // namespace lmx
