// `--json` of commands: prints their results as one JSON value to stdout (docs/json.md).
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/records/json_number.h"

namespace lmx_cli {

using Json = nlohmann::ordered_json;

// Adds the flag --json.
void add_json(CLI::App& command, bool& json);

// Sets `key` to `value` if there is one. Numbers go through json_number(): all digits, and strings for NaN and
// infinities.
inline void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = json_number(*value);
}

// Prints a value. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& value);

}  // namespace lmx_cli
