#include "base/json_object.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lmx {
namespace {

// A byte that is not UTF-8 becomes the replacement character, because a JSON file must be UTF-8.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

JsonObject& JsonObject::raw(std::string_view name, const std::string& json) {
  if (!members_.empty()) members_ += ',';
  members_.append(json_text(name)).append(1, ':').append(json);
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, int64_t value) {
  return raw(name, std::to_string(value));
}

JsonObject& JsonObject::add(std::string_view name, double value) {
  const std::string text = number_text(value);
  return raw(name, std::isfinite(value) ? text : json_text(text));
}

JsonObject& JsonObject::add(std::string_view name, double value, int decimals) {
  return raw(name, format("%.*f", decimals, value));
}

JsonObject& JsonObject::add(std::string_view name, std::string_view value) {
  return raw(name, json_text(value));
}

}  // namespace lmx
