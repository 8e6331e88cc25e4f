#include "train/traffic.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "train/components.h"

namespace lmx::train {

void TrafficCounter::add(const std::vector<LedgerEntry>& entries) {
  for (const LedgerEntry& e : entries) {
    for (TrafficTable* table : {&window_, &total_}) {
      TrafficSum& sum = (*table)[{e.group, e.collective}];
      ++sum.calls;
      sum.sent += e.sent;
      sum.received += e.received;
      sum.seconds += e.seconds;
    }
  }
}

TrafficSum sum_of(const TrafficTable& table) {
  TrafficSum all;
  for (const auto& [key, sum] : table) {
    all.calls += sum.calls;
    all.sent += sum.sent;
    all.received += sum.received;
    all.seconds += sum.seconds;
  }
  return all;
}

Record rank_record(int64_t step, int rank, const TrafficTable& table, const MemoryStats& memory) {
  Record record{step, "rank", {{"rank", static_cast<double>(rank)}}};
  for (const auto& [key, sum] : table) {
    const std::string name = str("comm/", key.first, "/", key.second, "/");
    record.values.emplace_back(name + "sent_bytes", static_cast<double>(sum.sent));
    record.values.emplace_back(name + "received_bytes", static_cast<double>(sum.received));
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

void add_health(Record& record, const std::map<std::string, CodecHealth>& health) {
  for (const auto& [param, h] : health) {
    const std::string name = "codec/" + param + "/";
    const auto of = [&](int64_t count) { return h.values ? static_cast<double>(count) / static_cast<double>(h.values) : 0.0; };
    record.values.emplace_back(name + "underflow", of(h.underflow));
    record.values.emplace_back(name + "overflow", of(h.overflow));
    record.values.emplace_back(name + "relative_error", h.norm > 0 ? std::sqrt(h.error / h.norm) : 0.0);
    if (h.residual > 0) record.values.emplace_back(name + "residual_norm", std::sqrt(h.residual));
  }
}

std::vector<std::string> traffic_lines(const TrafficTable& table) {
  size_t group = 5, collective = 10;
  for (const auto& [key, sum] : table) {
    group = std::max(group, key.first.size());
    collective = std::max(collective, key.second.size());
  }
  const auto padded = [](std::string text, size_t width, bool right) {
    const std::string space(width - std::min(width, text.size()), ' ');
    return right ? space + text : text + space;
  };
  const auto line = [&](const std::string& a, const std::string& b, const std::string& c, const std::string& d,
                        const std::string& e) {
    return str(padded(a, group, false), "  ", padded(b, collective, false), "  ", padded(c, 9, true), "  ",
               padded(d, 9, true), "  ", padded(e, 9, true));
  };
  std::vector<std::string> lines{line("group", "collective", "calls", "sent", "received")};
  for (const auto& [key, sum] : table)
    lines.push_back(
        line(key.first, key.second, count_text(sum.calls), bytes_text(sum.sent), bytes_text(sum.received)));
  return lines;
}

}  // namespace lmx::train
