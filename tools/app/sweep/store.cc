#include "app/sweep/store.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/records/records.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::sweep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json request_json(const Request& r) {
  Json json{{"recipe", r.recipe},
            {"overrides", r.overrides},
            {"config_dirs", r.config_dirs},
            {"plugin_dirs", r.plugin_dirs},
            {"seeds", r.seeds},
            {"ranks", r.ranks},
            {"random", r.random},
            {"random_seed", r.random_seed},
            {"metric", r.metric.text()},
            {"maximize", r.metric.maximize},
            {"halving", nullptr}};
  if (r.halving.eta) json["halving"] = {{"eta", r.halving.eta}, {"min", r.halving.min}};
  return json;
}

Request read_request(const Json& json) {
  Request r;
  r.recipe = json.at("recipe");
  r.overrides = json.at("overrides").get<std::vector<std::string>>();
  r.config_dirs = json.at("config_dirs").get<std::vector<std::string>>();
  r.plugin_dirs = json.at("plugin_dirs").get<std::vector<std::string>>();
  r.seeds = json.at("seeds").get<std::vector<int64_t>>();
  r.ranks = json.value("ranks", std::vector<int64_t>{});
  r.random = json.at("random");
  r.random_seed = json.at("random_seed");
  r.metric = parse_metric(json.at("metric"), json.at("maximize"));
  if (json.at("halving").is_object()) r.halving = {json["halving"].at("eta"), json["halving"].at("min")};
  return r;
}

Json axis_json(const Axis& axis) {
  Json json{{"name", axis.name}, {"values", axis.values}};
  if (axis.interval) {
    json["interval"] = {axis.interval->first, axis.interval->second};
    json["logarithmic"] = axis.logarithmic;
  }
  return json;
}

Axis read_axis(const Json& json) {
  Axis axis{json.at("name"), json.at("values").get<std::vector<std::string>>(), {}, json.value("logarithmic", false)};
  if (json.contains("interval")) axis.interval = {json["interval"].at(0), json["interval"].at(1)};
  return axis;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw RunError(str("[sweep] cannot create ", path, ": ", error.message()));
}

Plan read_json(const Json& json, const Folder& folder) {
  Plan plan;
  plan.name = json.at("name");
  plan.request = read_request(json.at("request"));
  for (const Json& axis : json.at("axes")) plan.axes.push_back(read_axis(axis));
  for (const Json& entry : json.at("points")) {
    Point point;
    point.id = entry.at("id");
    point.place = entry.at("place").get<Place>();
    point.configuration = entry.at("configuration");
    if (point.place.size() != plan.axes.size()) throw UserError(str("point ", point.id, " is not on the axes"));
    point.yaml = read_text(folder.recipe(point));
    if (point.yaml.empty()) throw UserError(str(folder.recipe(point), " is missing"));
    read_resources(point);
    plan.points.push_back(std::move(point));
  }
  if (plan.points.empty()) throw UserError("it has no points");
  return plan;
}

}  // namespace

void write_plan(const Plan& plan, const Folder& folder) {
  make_folder(folder.path + "/points");
  Json json{{"format", 1}, {"name", plan.name}, {"request", request_json(plan.request)}, {"axes", Json::array()}};
  for (const Axis& axis : plan.axes) json["axes"].push_back(axis_json(axis));
  json["points"] = Json::array();
  for (const Point& point : plan.points) {
    write_file(folder.recipe(point), point.yaml);
    json["points"].push_back({{"id", point.id}, {"place", point.place}, {"configuration", point.configuration}});
  }
  write_file(folder.path + "/sweep.json", json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Plan read_plan(const Folder& folder) {
  const std::string path = folder.path + "/sweep.json";
  if (!holds_sweep(folder.path)) throw UserError(str("[sweep] ", folder.path, " holds no sweep: it has no sweep.json"));
  try {
    return read_json(Json::parse(read_text(path)), folder);
  } catch (const Json::exception& e) {
    throw UserError(str("[sweep] ", path, " is damaged: ", e.what()));
  } catch (const UserError& e) {
    throw UserError(str("[sweep] ", path, " is damaged: ", e.what()));
  }
}

bool holds_sweep(const std::string& directory) {
  std::error_code error;
  return fs::exists(directory + "/sweep.json", error);
}

std::string make_sweep_directory(const std::string& name) {
  const std::string parent = "runs/sweeps/" + name, base = parent + "/" + local_time("%Y-%m-%d_%H%M%S");
  make_folder(parent);
  std::error_code error;
  std::string path = base;
  for (int suffix = 2; !fs::create_directory(path, error); ++suffix) {
    if (error) throw RunError(str("[sweep] cannot create ", path, ": ", error.message()));
    path = str(base, "-", suffix);
  }
  return path;
}

std::string newest_sweep(const std::string& name) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, std::string>> sweeps;
  for (const auto& entry : fs::directory_iterator("runs/sweeps/" + name, error)) {
    const fs::path file = entry.path() / "sweep.json";
    if (fs::exists(file, error)) sweeps.emplace_back(fs::last_write_time(file, error), entry.path().string());
  }
  return sweeps.empty() ? "" : std::max_element(sweeps.begin(), sweeps.end())->second;
}

std::string request_difference(const Request& there, const Request& here) {
  const Json a = request_json(there), b = request_json(here);
  std::string text;
  for (const auto& [key, value] : a.items())
    if (key != "plugin_dirs" && value != b.at(key))
      text += str(text.empty() ? "" : "; ", key, " ", value.dump(), " there, ", b.at(key).dump(), " here");
  return text;
}

}  // namespace lmx::app::sweep
