// JSON of other programs.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/repeated_keys.h"
#include "lmx/error.h"

namespace lmx::app {

inline constexpr int kMostJsonDepth = 64;

// The depth of the objects and arrays of a JSON text, and the number of its keys: each has a colon.
struct JsonShape {
  int depth = 0;
  size_t keys = 0;
};
inline JsonShape shape_of_json(std::string_view text) {
  JsonShape shape;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '{' || c == '['))
      shape.depth = std::max(shape.depth, ++depth);
    else if (!in_string && (c == '}' || c == ']'))
      --depth;
    else if (!in_string && c == ':')
      ++shape.keys;
  }
  return shape;
}

// The keys of all objects, without repetitions.
template <class Json>
size_t keys_of_json(const Json& value) {
  size_t keys = value.is_object() ? value.size() : 0;
  for (const Json& own : value)
    if (own.is_structured()) keys += keys_of_json(own);
  return keys;
}

// The first key that an object has twice. Too slow for every text: the callback is called for each value.
inline std::string repeated_key(const std::string& text) {
  RepeatedKeys keys;
  std::string repeated;
  const auto check = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (keys.found(depth, event, value) && repeated.empty()) repeated = value.get<std::string>();
    return true;
  };
  [[maybe_unused]] const auto all = nlohmann::json::parse(text, check);
  return repeated;
}

// Parses a JSON object. UserError, beginning with `path`: no JSON, no object, nested too deeply, or a text that readers
// of JSON take differently: an object that has a key twice, or a NUL byte, at which this parser would end.
template <class Json = nlohmann::ordered_json>
Json parse_object(const std::string& text, const std::string& path) {
  if (const size_t nul = text.find('\0'); nul != std::string::npos)
    throw UserError(str(path, " is no JSON: its byte ", nul, " is NUL"));
  const JsonShape shape = shape_of_json(text);
  if (shape.depth > kMostJsonDepth) throw UserError(path + " is nested too deeply");
  Json object = Json::parse(text, nullptr, false);
  if (object.is_discarded()) throw UserError(path + " is no JSON");
  if (!object.is_object()) throw UserError(path + " is no JSON object");
  if (keys_of_json(object) < shape.keys)
    throw UserError(str(path, " has the key '", repeated_key(text), "' twice in one object"));
  return object;
}

}  // namespace lmx::app
