// Numbers in JSON files. JSON has no NaN or infinities, so they are written as strings, the same as in metrics.jsonl
// (runfiles/metrics.cc).
#pragma once

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lmx_cli {

using Json = nlohmann::ordered_json;

inline Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// Sets `key` to `value` if there is one. Numbers go through json_number(): all digits, and strings for NaN and
// infinities.
inline void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = json_number(*value);
}

// Returns nullopt if `json` is neither a number nor one of "NaN", "Infinity", "-Infinity".
template <class Json>
std::optional<double> number_of(const Json& json) {
  using Limits = std::numeric_limits<double>;
  if (json.is_number()) return json.template get<double>();
  const std::string text = json.is_string() ? json.template get<std::string>() : "";
  if (text == "NaN") return Limits::quiet_NaN();
  if (text == "Infinity") return Limits::infinity();
  if (text == "-Infinity") return -Limits::infinity();
  return std::nullopt;
}

}  // namespace lmx_cli
