// `--json` of commands: their results as one JSON value on stdout (docs/json.md).
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/records/json_number.h"

namespace lmx_cli {

using Json = nlohmann::ordered_json;

// The flag --json.
void add_json(CLI::App& command, bool& json);

// `key`: `value`, if there is one. Numbers go through json_number(): all digits, and texts for NaN and infinities.
inline void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = json_number(*value);
}

// Bytes that are no UTF-8 become U+FFFD.
void print_json(const Json& value);

}  // namespace lmx_cli
