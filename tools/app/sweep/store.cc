#include "app/sweep/store.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/records/records.h"
#include "app/sweep/journal.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::sweep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;  // of sweep.json

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
  r.random = integer_at(json, "random");
  r.random_seed = integer_at(json, "random_seed");
  r.metric = parse_metric(json.at("metric"), json.at("maximize"));
  if (const Json& halving = json.at("halving"); !halving.is_null()) {
    r.halving = {integer_at(halving, "eta"), integer_at(halving, "min")};
    check_halving(r.halving);
  }
  check_metric(r.metric, r.halving);
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

void check_axes(const Plan& plan) {
  if (!plan.has_seeds()) return;
  std::vector<std::string> seeds;
  for (const int64_t seed : plan.request.seeds) seeds.push_back(std::to_string(seed));
  if (plan.axes.empty() || plan.axes.back().name != "seed" || plan.axes.back().values != seeds)
    throw UserError("the request has seeds, so that the last axis is `seed` with their values, and it is not");
}

// Points whose places differ only in the seed are one configuration. Configurations are counted from 0.
void check_points(const Plan& plan) {
  if (plan.points.empty()) throw UserError("it has no points");
  std::map<Place, size_t> configurations;
  std::set<std::string> ids;
  std::set<Place> places;
  for (const Point& point : plan.points) {
    const auto is_on = [](const std::string& value, const Axis& axis) {
      return axis.interval || std::find(axis.values.begin(), axis.values.end(), value) != axis.values.end();
    };
    if (!std::equal(point.place.begin(), point.place.end(), plan.axes.begin(), plan.axes.end(), is_on))
      throw UserError(str("point ", point.id, " is not on the axes"));
    if (!ids.insert(point.id).second || !places.insert(point.place).second)
      throw UserError(str("point ", point.id, " is there twice"));
    const Place own(point.place.begin(), point.place.end() - (plan.has_seeds() ? 1 : 0));
    const size_t configuration = configurations.emplace(own, configurations.size()).first->second;
    if (configuration != point.configuration)
      throw UserError(str("the configuration of point ", point.id, " is not ", configuration));
  }
}

Plan read_json(const Json& json) {
  if (integer_at(json, "format") != kFormat)
    throw UserError(str("'format' is ", json["format"].dump(), ", and this lmx reads format ", kFormat));
  Plan plan;
  plan.name = json.at("name");
  plan.directory = json.value("directory", "");
  plan.request = read_request(json.at("request"));
  for (const Json& axis : json.at("axes")) plan.axes.push_back(read_axis(axis));
  check_axes(plan);
  for (const Json& entry : json.at("points")) {
    Point point;
    point.id = entry.at("id");
    point.place = entry.at("place").get<Place>();
    point.configuration = static_cast<size_t>(integer_at(entry, "configuration"));
    point.sha256 = entry.value("sha256", "");
    plan.points.push_back(std::move(point));
  }
  check_points(plan);
  return plan;
}

void read_recipe(Point& point, const std::string& file) {
  point.yaml = read_text(file);
  if (point.yaml.empty()) throw UserError(str("[sweep] ", file, " is missing or empty"));
  if (!point.sha256.empty() && point.sha256 != sha256_of_text(point.yaml))
    throw UserError(str("[sweep] ", file, " has changed since the sweep began, so that it is no longer the recipe of ",
                        "point ", point.id, "; restore the file, or start a new sweep with other values"));
  read_resources(point, file);
}

std::string without_prefix(const std::string& message) {
  const std::string prefix = "[sweep] ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

}  // namespace

void write_plan(const Plan& plan, const Folder& folder) {
  make_folder(folder.path + "/points", "[sweep] ");
  Json json{{"format", kFormat}, {"name", plan.name}};
  if (!plan.directory.empty()) json["directory"] = plan.directory;
  json["request"] = request_json(plan.request);
  json["axes"] = Json::array();
  for (const Axis& axis : plan.axes) json["axes"].push_back(axis_json(axis));
  json["points"] = Json::array();
  for (const Point& point : plan.points) {
    write_file(folder.recipe(point), point.yaml);
    json["points"].push_back({{"id", point.id},
                              {"place", point.place},
                              {"configuration", point.configuration},
                              {"sha256", sha256_of_text(point.yaml)}});
  }
  write_file(folder.path + "/sweep.json", json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Plan read_plan(const Folder& folder) {
  const std::string path = folder.path + "/sweep.json";
  if (!holds_sweep(folder.path)) throw UserError(str("[sweep] ", folder.path, " holds no sweep: it has no sweep.json"));
  Plan plan;
  try {
    plan = read_json(Json::parse(read_text(path)));
  } catch (const Json::exception& e) {
    throw UserError(str("[sweep] ", path, " is damaged: ", e.what()));
  } catch (const UserError& e) {
    throw UserError(str("[sweep] ", path, " is damaged: ", without_prefix(e.what())));
  }
  for (Point& point : plan.points) read_recipe(point, folder.recipe(point));
  return plan;
}

bool holds_sweep(const std::string& directory) {
  std::error_code error;
  return fs::exists(directory + "/sweep.json", error);
}

std::string make_sweep_directory(const std::string& name) {
  const std::string parent = "runs/sweeps/" + name, base = parent + "/" + local_time("%Y-%m-%d_%H%M%S");
  make_folder(parent, "[sweep] ");
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
