#include "app/records/run_status.h"

#include <nlohmann/json.hpp>

#include "app/records/line_file.h"

namespace lmx_cli::jobs {
namespace {

std::string text_at(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

RunStatus read_status(const std::string& run) {
  const auto json = nlohmann::json::parse(read_text(run + "/status.json"), nullptr, false);
  if (!json.is_object()) return {};
  const auto step = json.find("step");
  const bool counted = step != json.end() && step->is_number_integer();
  return {text_at(json, "state"), text_at(json, "cause"), text_at(json, "reason"), counted ? step->get<int64_t>() : 0,
          text_at(json, "time")};
}

}  // namespace lmx_cli::jobs
