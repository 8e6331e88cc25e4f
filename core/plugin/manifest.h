// plugin.toml: what a plugin says about itself before it is loaded.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "lmx/plugin.h"

namespace lmx {

// Reads a plugin.toml; `path` of the result is the library that has to lie beside it (NAME.so).
// UserError with file:line:column: syntax, missing, unknown or empty keys, an unknown kind, a name that is no
// identifier.
PluginInfo read_manifest(const std::filesystem::path& file);

// What plugin.toml says that the library needs from the machine ("Open MPI (...)"), or "".
std::string needs_of(const std::filesystem::path& file);

// The kind of that name ("model"); nullopt when there is none.
std::optional<PluginKind> kind_from_name(std::string_view name);

// Every plugin.toml in `directory`, its folders and their folders (a tree is <kind>/<name>/plugin.toml), sorted.
std::vector<std::filesystem::path> find_manifests(const std::filesystem::path& directory);

}  // namespace lmx
