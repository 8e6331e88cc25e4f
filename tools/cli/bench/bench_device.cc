#include "cli/bench/bench_device.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/table.h"

namespace lmx_cli {
namespace {

using lmx::DeviceCounts;

// The kinds of copies in the order of output.
struct Kind {
  const char* name;
  DeviceCounts::Moved DeviceCounts::*moved;
};
constexpr Kind kKinds[] = {{"uploads", &DeviceCounts::uploads},
                           {"downloads", &DeviceCounts::downloads},
                           {"copies", &DeviceCounts::copies},
                           {"fills", &DeviceCounts::fills}};

}  // namespace

nlohmann::ordered_json counts_json(const DeviceCounts& counts) {
  nlohmann::ordered_json json{{"launches", counts.all_launches()}};
  for (const Kind& kind : kKinds) {
    const DeviceCounts::Moved& moved = counts.*kind.moved;
    json[kind.name] = {{"times", moved.times}, {"bytes", moved.bytes}};
  }
  json["waits"] = counts.waits;
  json["launches_by_name"] = counts.launches;
  return json;
}

std::string counts_table(const DeviceCounts& counts) {
  std::vector<std::pair<std::string, int64_t>> launches(counts.launches.begin(), counts.launches.end());
  std::stable_sort(launches.begin(), launches.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::vector<std::string>> cells{{"of one step", "times", "bytes"}};
  for (const auto& [name, times] : launches) cells.push_back({name, std::to_string(times), ""});
  cells.push_back({"all launches", std::to_string(counts.all_launches()), ""});
  for (const Kind& kind : kKinds) {
    const DeviceCounts::Moved& moved = counts.*kind.moved;
    cells.push_back({kind.name, std::to_string(moved.times), std::to_string(moved.bytes)});
  }
  cells.push_back({"waits", std::to_string(counts.waits), ""});
  std::string out;
  for (const std::string& line : lmx::table_lines(cells, {.left = 1, .gap = 2, .least = {}})) out += line + "\n";
  return out;
}

}  // namespace lmx_cli
