#include "runfiles/open_window.h"

#include <nlohmann/json.hpp>

#include "lmx/error.h"

namespace lmx {
namespace {

using Json = nlohmann::json;

constexpr const char* kPrefix = "window.rank.";

Json health_json(const CodecHealth& h) {
  return {h.values, h.underflow, h.overflow, h.error, h.norm, h.residual};
}

CodecHealth health_from(const Json& json) {
  CodecHealth h;
  h.values = json.at(0).get<int64_t>();
  h.underflow = json.at(1).get<int64_t>();
  h.overflow = json.at(2).get<int64_t>();
  h.error = json.at(3).get<double>();
  h.norm = json.at(4).get<double>();
  h.residual = json.at(5).get<double>();
  return h;
}

OpenWindow window_from(const Json& json) {
  OpenWindow w;
  w.steps = json.at("steps").get<int64_t>();
  w.times.busy = json.at("times").at(0).get<double>();
  w.times.exposed = json.at("times").at(1).get<double>();
  for (const Json& row : json.at("traffic"))
    w.traffic[{row.at(0).get<std::string>(), row.at(1).get<std::string>()}] = {
        row.at(2).get<int64_t>(),
        row.at(3).get<int64_t>(),
        row.at(4).get<int64_t>(),
        row.at(5).get<double>(),
        row.size() > 6 ? row.at(6).get<int64_t>() : 0,
        row.size() > 6 ? row.at(7).get<int64_t>() : 0};
  for (const auto& [name, health] : json.at("health").items()) w.health[name] = health_from(health);
  return w;
}

}  // namespace

void OpenWindow::add(const OpenWindow& later) {
  steps += later.steps;
  times += later.times;
  for (const auto& [key, sum] : later.traffic) traffic[key].add(sum);
  for (const auto& [name, h] : later.health) {
    CodecHealth& own = health[name];
    own.residual = 0;
    own.add(h);
  }
}

std::string OpenWindow::to_json() const {
  Json rows = Json::array(), errors = Json::object();
  for (const auto& [key, sum] : traffic) {
    rows.push_back({key.first, key.second, sum.calls, sum.sent, sum.received, sum.seconds});
    if (sum.sent_between_nodes + sum.received_between_nodes == 0) continue;
    rows.back().push_back(sum.sent_between_nodes);
    rows.back().push_back(sum.received_between_nodes);
  }
  for (const auto& [name, h] : health) errors[name] = health_json(h);
  return Json{{"steps", steps}, {"times", {times.busy, times.exposed}}, {"traffic", rows}, {"health", errors}}.dump();
}

OpenWindow open_window(const std::vector<std::string>& texts, const std::string& from) {
  OpenWindow sum;
  try {
    for (const std::string& text : texts) {
      OpenWindow one = window_from(Json::parse(text));
      if (sum.steps > 0) one.steps = 0;  // all ranks count the same steps
      sum.add(one);
    }
  } catch (const Json::exception&) {
    throw UserError(str("[resume] ", from, "/state.json: what a rank has counted since the last record is damaged"));
  }
  return sum;
}

std::map<std::string, std::string> window_texts(const std::vector<std::string>& ranks) {
  std::map<std::string, std::string> numbers;
  for (size_t r = 0; r < ranks.size(); ++r) numbers[str(kPrefix, r)] = ranks[r];
  return numbers;
}

std::vector<std::string> windows_of(const std::map<std::string, std::string>& numbers, int rank, int size) {
  std::vector<std::string> texts;
  for (int r = rank;; r += size) {
    const auto found = numbers.find(str(kPrefix, r));
    if (found == numbers.end()) return texts;
    texts.push_back(found->second);
  }
}

}  // namespace lmx
