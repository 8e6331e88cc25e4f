// The text of NAME.fields.toml.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmx/plugin.h"

namespace lmx {

// A plugin's fields, and of what they are the fields.
struct FieldsFile {
  std::string kind;     // the plugin's
  std::string library;  // the build id of its library
  std::string core;     // the build id of the core that loaded it
  std::vector<FieldInfo> fields;
};

// nullopt where the text is none of fields_file_text's.
std::optional<FieldsFile> parse_fields_file(const std::string& text);
std::string fields_file_text(const FieldsFile& file);

}  // namespace lmx
