#include "app/records/json_number.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace lmx_cli {
namespace {

template <class AnyJson>
std::optional<double> read_number(const AnyJson& json) {
  using Limits = std::numeric_limits<double>;
  if (json.is_number()) return json.template get<double>();
  const std::string text = json.is_string() ? json.template get<std::string>() : "";
  if (text == "NaN") return Limits::quiet_NaN();
  if (text == "Infinity") return Limits::infinity();
  if (text == "-Infinity") return -Limits::infinity();
  return std::nullopt;
}

}  // namespace

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = json_number(*value);
}

std::optional<double> number_of(const Json& json) {
  return read_number(json);
}
std::optional<double> number_of(const nlohmann::json& json) {
  return read_number(json);
}

}  // namespace lmx_cli
