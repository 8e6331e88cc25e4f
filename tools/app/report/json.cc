#include <iostream>
#include <nlohmann/json.hpp>

#include "app/records/records.h"
#include "app/report/report.h"
#include "sync/unit_queue.h"

namespace lmx_cli::reports {
namespace {

Json record_json(const std::optional<RunRecord>& record) {
  if (!record) return nullptr;
  Json json{{"step", record->step}};
  for (const auto& [key, value] : record->values) json[key] = json_number(value);
  return json;
}

Json times_json(const Report& r) {
  if (!r.on_a_wire) return nullptr;
  const CommTimes& t = r.times;
  Json json{{"busy_s", t.busy},
            {"hidden_s", t.hidden()},
            {"exposed_s", t.exposed},
            {"could_be_hidden_s", t.possible},
            {"units", Json::array()}};
  for (const UnitTimes& u : t.units)
    json["units"].push_back({{"first", u.first},
                             {"bytes", u.bytes},
                             {"ready_s", u.ready},
                             {"begin_s", u.begin},
                             {"end_s", u.end},
                             {"hidden_s", u.hidden},
                             {"exposed_s", u.exposed}});
  return json;
}

}  // namespace

void print_json(const Report& r) {
  Json json{{"format", 1},      {"run", r.directory},     {"step", r.step},
            {"ranks", r.ranks}, {"state", state_text(r)}, {"start", Json::parse(r.start)}};
  json["train"] = record_json(r.train);
  json["valid"] = record_json(r.valid);
  json["best"] = record_json(r.best);
  json["translation"] = record_json(r.translation);
  if (r.translation) json["translation"]["split"] = r.translation->split;
  json["traffic"] = Json::array();
  for (const auto& [key, line] : r.traffic) {
    json["traffic"].push_back({{"group", key.first},
                               {"collective", key.second},
                               {"sent_bytes_per_rank_and_step", line.mean},
                               {"sent_bytes_per_step_max", line.max},
                               {"received_bytes_per_rank_and_step", line.received},
                               {"sent_bytes_total", line.total}});
    if (line.between_nodes) json["traffic"].back()["sent_between_nodes_bytes_per_rank_and_step"] = *line.between_nodes;
  }
  json["comm_times"] = times_json(r);
  json["memory"] = Json::object();
  for (const auto& [name, line] : r.memory)
    json["memory"][name] = {{"rank_0_peak_bytes", line.first}, {"max_peak_bytes", line.max}};
  json["rows"] = r.rows;
  json["strategy"] = Json::object();
  for (const auto& [key, value] : r.strategy) json["strategy"][key] = json_number(value);
  json["codec"] = Json::object();
  for (const auto& [name, c] : r.codec)
    json["codec"][name] = {{"entries", c.values},
                           {"underflow", c.underflow},
                           {"overflow", c.overflow},
                           {"relative_error", json_number(c.relative_error())},
                           {"residual_norm", json_number(std::sqrt(c.residual))}};
  json["staleness"] = Json::object();
  for (const auto& [rule, histogram] : r.staleness)
    for (const auto& [behind, updates] : histogram) json["staleness"][rule][std::to_string(behind)] = updates;
  std::cout << json.dump(1) << "\n";
}

}  // namespace lmx_cli::reports
