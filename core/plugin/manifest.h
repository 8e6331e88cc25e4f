// What describes a plugin before it is loaded: plugin.toml, and NAME.fields.toml beside NAME.so.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/plugin.h"

namespace lmx {

// Reads a plugin.toml. `path` of the result is the library that must be located beside it (NAME.so). UserError with
// file:line:column: syntax, missing, unknown or empty keys, an unknown kind, a name that is not an identifier.
PluginInfo read_manifest(const std::filesystem::path& file);

// The key `needs` of plugin.toml: the software that the library requires on the machine ("Open MPI (...)"), or "".
std::string needs_of(const std::filesystem::path& file);

// The kind of that name ("model"); nullopt if there is none.
std::optional<PluginKind> kind_from_name(std::string_view name);

// Every plugin.toml in `directory`, sorted; searches two levels of folders (the tree is <kind>/<name>/plugin.toml).
std::vector<std::filesystem::path> find_manifests(const std::filesystem::path& directory);

// The text of NAME.fields.toml.

// A plugin's fields, and the plugin that they belong to.
struct FieldsFile {
  std::string kind;     // of the plugin
  std::string library;  // the build id of its library
  std::string core;     // the build id of the core that loaded it
  std::vector<FieldInfo> fields;
};

// nullopt if the text was not written by fields_file_text().
std::optional<FieldsFile> parse_fields_file(const std::string& text);
std::string fields_file_text(const FieldsFile& file);

}  // namespace lmx
