#include "cli/output/json_output.h"

#include <iostream>
#include <nlohmann/json.hpp>

namespace lmx::app::cli {

void add_json(Command command, bool& json) {
  command.add_flag("--json", json, "print the result as JSON, with all digits (docs/json.md)");
}

void print_json(const Json& value) {
  std::cout << value.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
}

namespace {

Json to_json(int64_t line, const std::string& source, const std::vector<Translation>& found) {
  Json translations = Json::array();
  for (const Translation& t : found)
    translations.push_back({{"text", t.text},
                            {"tokens", t.tokens},
                            {"logprob", json_number(t.logprob)},
                            {"score", json_number(t.score)},
                            {"length", t.length}});
  return {{"line", line}, {"source", source}, {"translations", translations}};
}

}  // namespace

std::string translations_as_json(int64_t first, std::span<const std::string> lines,
                                 const std::vector<std::vector<Translation>>& found) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i)
    text += to_json(first + static_cast<int64_t>(i), lines[i], found[i])
                .dump(-1, ' ', false, Json::error_handler_t::replace) +
            "\n";
  return text;
}

}  // namespace lmx::app::cli
