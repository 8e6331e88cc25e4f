#include "app/sweep/journal.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/records/records.h"
#include "base/clock.h"

namespace lmx_cli::sweeps {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Journal::Journal(const Plan& plan, const std::string& directory) : plan_(plan), path_(directory + "/journal.jsonl") {
  static_cast<void>(jobs::read_lines(path_));  // removes an incomplete last line
  standing_ = read_standing(plan, directory);
}

void Journal::write(const Json& event) {
  Json json{{"time", lmx::local_time("%Y-%m-%dT%H:%M:%S%z")}};
  json.update(event);
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  jobs::append_line(path_, text);
  standing_.apply(plan_, text, path_);
}

void Journal::started(size_t point, int64_t until) {
  Json json{{"event", "start"}, {"point", plan_.points[point].id}, {"attempt", standing_.states[point].attempts + 1}};
  if (until > 0) json["until"] = until;
  write(json);
}

void Journal::ended(size_t point, const Judgement& how, int64_t step, std::optional<double> value, double seconds) {
  Json json{{"event", "end"},
            {"point", plan_.points[point].id},
            {"outcome", name_of(how.outcome)},
            {"step", step},
            {"value", nullptr},
            {"seconds", std::round(seconds * 1000) / 1000}};
  if (value) json["value"] = *value;
  if (!how.reason.empty()) json["reason"] = how.reason;
  write(json);
}

void Journal::measured(size_t point, std::optional<double> value) {
  Json json{{"event", "value"}, {"point", plan_.points[point].id}, {"metric", plan_.request.metric.text()}};
  json["value"] = value ? Json(*value) : Json(nullptr);
  write(json);
}

void Journal::rung(int64_t step, const std::vector<size_t>& stopped) {
  Json json{{"event", "rung"}, {"step", step}, {"stopped", Json::array()}};
  for (const size_t point : stopped) json["stopped"].push_back(plan_.points[point].id);
  write(json);
}

void Journal::submitting(const Batch& batch) {
  Json json{{"event", "submitting"}, {"batch", batch.number}, {"name", batch.name}, {"tasks", Json::array()}};
  for (const Batch::Task& task : batch.tasks) json["tasks"].push_back({{"point", task.point}, {"until", task.until}});
  write(json);
}

void Journal::submitted(int64_t batch, const std::string& job) {
  write({{"event", "submitted"}, {"batch", batch}, {"job", job}});
}

}  // namespace lmx_cli::sweeps
