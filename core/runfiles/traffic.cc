#include "runfiles/traffic.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "lmx/error.h"

namespace lmx {
namespace {

constexpr const char* kAllTraffic = "";  // a rule's name is never empty

}  // namespace

void TrafficSum::add(const TrafficSum& other) {
  calls += other.calls;
  sent += other.sent;
  received += other.received;
  seconds += other.seconds;
  sent_between_nodes += other.sent_between_nodes;
  received_between_nodes += other.received_between_nodes;
}

void TrafficCounter::add(const std::vector<LedgerEntry>& entries) {
  for (const LedgerEntry& e : entries)
    window_[{e.group, e.collective}].add(
        {1, e.sent, e.received, e.seconds, e.sent_between_nodes, e.received_between_nodes});
}

void TrafficCounter::record(const TrafficTable& table, int64_t steps) {
  for (const auto& [key, sum] : table) recorded_[key].add(sum);
  recorded_steps_ += steps;
}

std::string TrafficCounter::to_json() const {
  nlohmann::json table = nlohmann::json::array();
  for (const auto& [key, sum] : recorded_)
    table.push_back({key.first, key.second, sum.calls, sum.sent, sum.received, sum.sent_between_nodes});
  return nlohmann::json{{"steps", recorded_steps_}, {"table", table}}.dump();
}

TrafficSum sum_of(const TrafficTable& table) {
  TrafficSum all;
  for (const auto& [key, sum] : table) all.add(sum);
  return all;
}

TrafficSum sum_of_steps(const TrafficTable& table) {
  TrafficSum all;
  for (const auto& [key, sum] : table)
    if (key.first != "checkpoint" && key.first != "control") all.add(sum);
  return all;
}

double seconds_at_servers(const TrafficTable& table) {
  double seconds = 0;
  for (const auto& [key, sum] : table)
    if (key.second == "pull" || key.second == "push" || key.second == "turn") seconds += sum.seconds;
  return seconds;
}

Record rank_record(int64_t step, int rank, const TrafficTable& table, const MemoryStats& memory, int nodes) {
  Record record{step, "rank", {{"rank", static_cast<double>(rank)}}};
  for (const auto& [key, sum] : table) {
    const std::string name = str("comm/", key.first, "/", key.second, "/");
    record.values.emplace_back(name + "sent_bytes", static_cast<double>(sum.sent));
    record.values.emplace_back(name + "received_bytes", static_cast<double>(sum.received));
    if (nodes == 1) continue;
    record.values.emplace_back(name + "sent_between_nodes_bytes", static_cast<double>(sum.sent_between_nodes));
    record.values.emplace_back(name + "received_between_nodes_bytes", static_cast<double>(sum.received_between_nodes));
  }
  for (int c = 0; c < kMemClasses; ++c)
    record.values.emplace_back(str("memory/", name_of(static_cast<MemClass>(c)), "_peak_bytes"),
                               static_cast<double>(memory.peak[static_cast<size_t>(c)]));
  record.values.emplace_back("memory/total_peak_bytes", static_cast<double>(memory.total_peak));
  record.values.emplace_back("comm_s", sum_of(table).seconds);
  for (const auto& [key, sum] : table)
    record.values.emplace_back(str("comm/", key.first, "/", key.second, "/s"), sum.seconds);
  return record;
}

std::map<std::string, CodecHealth> health_of(const std::vector<std::string>& lines) {
  std::map<std::string, CodecHealth> all;
  for (const std::string& line : lines) {
    const nlohmann::json record = nlohmann::json::parse(line);
    std::map<std::string, double> values;
    for (const auto& [key, value] : record.items()) {
      if (key.starts_with(kHealthPrefix))
        values[key] = value.is_string() ? number_from_text(value.get<std::string>()) : value.get<double>();
    }
    for (const auto& [param, h] : health_in(values)) all[param].add(h);
  }
  return all;
}

namespace {

// Sum and maximum over ranks.
struct Spread {
  double sum = 0, most = 0;
  void add(double value) {
    sum += value;
    most = std::max(most, value);
  }
};
struct SpreadLine {
  Spread calls, sent, received, between;
};

// Values by group and collective; ("all", "") is the total of a rank.
std::map<std::pair<std::string, std::string>, SpreadLine> spread_of(const std::vector<std::string>& ranks) {
  std::map<std::pair<std::string, std::string>, SpreadLine> lines;
  for (const std::string& text : ranks) {
    const nlohmann::json rank = nlohmann::json::parse(text);
    const double steps = std::max(1.0, rank["steps"].get<double>());
    double calls = 0, sent = 0, received = 0, between = 0;
    for (const nlohmann::json& row : rank["table"]) {
      SpreadLine& line = lines[{row[0].get<std::string>(), row[1].get<std::string>()}];
      line.calls.add(row[2].get<double>() / steps);
      line.sent.add(row[3].get<double>() / steps);
      line.received.add(row[4].get<double>() / steps);
      line.between.add(row[5].get<double>() / steps);
      calls += row[2].get<double>() / steps;
      sent += row[3].get<double>() / steps;
      received += row[4].get<double>() / steps;
      between += row[5].get<double>() / steps;
    }
    SpreadLine& all = lines[{kAllTraffic, ""}];
    all.calls.add(calls);
    all.sent.add(sent);
    all.received.add(received);
    all.between.add(between);
  }
  return lines;
}

}  // namespace

std::vector<std::string> traffic_lines(const std::vector<std::string>& ranks) {
  const auto n = static_cast<double>(ranks.size());
  const auto lines = spread_of(ranks);
  const bool levels = lines.at({kAllTraffic, ""}).between.most > 0;
  std::vector<std::vector<std::string>> rows{
      {"group", "collective", "calls", "sent", "most sent", "received", "most received"}};
  if (levels) rows[0].insert(rows[0].end(), {"sent to other nodes", "most sent"});
  const auto bytes = [](double value) { return bytes_text(std::llround(value)); };
  const auto add = [&](const std::string& group, const std::string& collective, const SpreadLine& l) {
    rows.push_back({group, collective, format("%.3g", l.calls.sum / n), bytes(l.sent.sum / n), bytes(l.sent.most),
                    bytes(l.received.sum / n), bytes(l.received.most)});
    if (levels) rows.back().insert(rows.back().end(), {bytes(l.between.sum / n), bytes(l.between.most)});
  };
  for (const auto& [key, line] : lines)
    if (key.first != kAllTraffic) add(key.first, key.second, line);
  add("all", "", lines.at({kAllTraffic, ""}));
  return table_lines(rows, {.left = 2});
}

}  // namespace lmx
