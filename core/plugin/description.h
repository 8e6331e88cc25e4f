// NAME.fields.toml beside NAME.so: the fields of a plugin, written by its build, which loads the library once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmx/plugin.h"

namespace lmx {

// The fields in the description beside `info.path`. nullopt if there is none for exactly this library and this core, or
// if it cannot be read; the library must then be loaded.
std::optional<std::vector<FieldInfo>> described_fields(const PluginInfo& info);

// The path of the library that contains this code.
std::string core_library();

}  // namespace lmx
