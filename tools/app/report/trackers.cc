#include "app/report/trackers.h"

#include <ctime>
#include <filesystem>

#include "app/report/page.h"
#include "base/files.h"
#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

namespace fs = std::filesystem;

// The points of a sweep and the cells of an experiment belong to the folder that has them all.
std::string group_of(const fs::path& run) {
  fs::path parent = run.parent_path();
  if (parent.filename() == "points" || parent.filename() == "cells") parent = parent.parent_path();
  return parent.filename().string();
}

}  // namespace

double seconds_of(const std::string& time) {
  std::tm parts{};
  const char* end = strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S%z", &parts);
  if (!end || *end) return 0;
  const int64_t east = parts.tm_gmtoff;  // timegm() sets it to 0
  return static_cast<double>(timegm(&parts) - east);
}

TrackedRun tracked_run(const Report& run) {
  TrackedRun out;
  fs::path path = fs::absolute(run.directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  out.key = lmx::sha256_of_text(lmx::str(path.string(), " ", run.began));
  out.name = path.filename().string();
  out.group = group_of(path);
  out.began = seconds_of(run.began);
  if (run.status.state != "running") out.ended = seconds_of(run.status.time);
  const Clock clock = clock_of(run.records);
  size_t window = 0;  // of train records
  for (const RunRecord& record : run.records) {
    if (record.split == "rank" || record.split == "change") continue;
    window += record.split == "train";
    TrackedRun::Moment& moment = out.steps[record.step];
    moment.time = out.began + (window > 0 ? 3600 * clock.hours[window - 1] : 0);
    for (const auto& [key, value] : record.values) moment.values[record.split + "/" + key] = value;
  }
  return out;
}

}  // namespace lmx_cli::reports
