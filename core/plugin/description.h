// NAME.fields.toml beside NAME.so: its fields, which a plugin's build writes down when it has loaded the library once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmx/plugin.h"

namespace lmx {

// What the description beside `info.path` says; nullopt where there is none that is of this very library and this core,
// or none that can be read: then only the library itself knows.
std::optional<std::vector<FieldInfo>> described_fields(const PluginInfo& info);

// The path of the library that this code is in.
std::string core_library();

}  // namespace lmx
