// Writes a JSON object on one line, member by member, for files with one record per line. nlohmann::json would change
// their bytes: it writes 50.0 for the double 50, sorts the members, and has no fixed number of decimals. Files in which
// this does not matter are written with nlohmann::json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmx {

class JsonObject {
 public:
  JsonObject& add(std::string_view name, int64_t value);
  // As number_text() writes it; values that are not finite become strings.
  JsonObject& add(std::string_view name, double value);
  JsonObject& add(std::string_view name, double value, int decimals);
  JsonObject& add(std::string_view name, std::string_view value);
  JsonObject& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonObject& raw(std::string_view name, const std::string& json);

  std::string members_;
};

}  // namespace lmx
