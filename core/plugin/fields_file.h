// The text of NAME.fields.toml.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmx/plugin.h"

namespace lmx {

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
