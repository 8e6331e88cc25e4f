// Numbers in JSON files. JSON has no NaN or infinities, so they are written as strings, the same as in metrics.jsonl
// (runfiles/metrics.cc).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace lmx_cli {

using Json = nlohmann::ordered_json;

Json json_number(double value);

// Sets `key` to `value` if there is one. Numbers go through json_number(): all digits, and strings for NaN and
// infinities.
void put(Json& object, const char* key, const std::optional<double>& value);

// Returns nullopt if `json` is neither a number nor one of "NaN", "Infinity", "-Infinity".
std::optional<double> number_of(const Json& json);
std::optional<double> number_of(const nlohmann::json& json);

}  // namespace lmx_cli
