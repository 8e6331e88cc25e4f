// An offline run of Weights & Biases, which `wandb sync` sends. The messages are those of wandb_internal.proto, whose
// field numbers are stated beside the names.
#include <algorithm>
#include <boost/crc.hpp>
#include <cmath>
#include <filesystem>

#include "app/report/trackers.h"
#include "base/output_file.h"
#include "base/protobuf.h"
#include "base/text.h"
#include "lmx/api.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

namespace fs = std::filesystem;
using lmx::str;
using lmx::protobuf::bytes_field;
using lmx::protobuf::number_field;

constexpr size_t kBlock = 32768, kFrame = 7;  // bytes of a block, and of checksum, length and type before a fragment

// Values that are not finite are the words NaN, Infinity and -Infinity, as W&B writes them.
// HistoryItem and SummaryItem: nested_key = 2, value_json = 16. ConfigItem: key = 1, value_json = 16.
std::string item(int key_field, const std::string& key, const std::string& json) {
  return bytes_field(1, bytes_field(key_field, key) + bytes_field(16, json));
}

// Timestamp: seconds = 1.
std::string timestamp(double seconds) {
  return number_field(1, std::llround(seconds));
}

// RunRecord: run_id = 1, project = 3, config = 4, display_name = 8, host = 13, start_time = 17.
std::string run_message(const Report& report, const TrackedRun& run, const std::string& id) {
  std::string config;
  for (const auto& [key, value] : lmx::parse_yaml_file(report.directory + "/config.yaml").entries)
    config += item(1, key, lmx::to_json(value));
  config += item(1, "lmx", report.start);
  return bytes_field(1, id) + bytes_field(3, run.group) + bytes_field(4, config) + bytes_field(8, run.name) +
         bytes_field(13, start_text(report, "/host/name")) + bytes_field(17, timestamp(run.began));
}

// The items of one step, and those that W&B adds itself.
std::string items_of(int64_t step, const TrackedRun::Moment& moment, double began) {
  std::string items = item(2, "_step", std::to_string(step)) + item(2, "_timestamp", lmx::number_text(moment.time)) +
                      item(2, "_runtime", lmx::number_text(moment.time - began));
  for (const auto& [name, value] : moment.values) items += item(2, name, lmx::number_text(value));
  return items;
}

// Record: num = 1, history = 2, summary = 3, run = 17, exit = 18, header = 21.
class Records {
 public:
  void add(int field, const std::string& message) {
    all_.push_back(number_field(1, static_cast<int64_t>(all_.size() + 1)) + bytes_field(field, message));
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

std::vector<std::string> records_of(const Report& report, const TrackedRun& run, const std::string& id) {
  Records out;
  out.add(21, bytes_field(1, bytes_field(1, str("lmx ", lmx::kVersion))));  // version_info = 1: producer = 1
  out.add(17, run_message(report, run, id));
  TrackedRun::Moment last;
  for (const auto& [step, moment] : run.steps) {
    out.add(2, items_of(step, moment, run.began) + bytes_field(2, number_field(1, step)));  // step = 2: num = 1
    last.time = moment.time;
    for (const auto& [name, value] : moment.values) last.values[name] = value;
  }
  if (run.steps.empty()) return out.all();
  out.add(3, items_of(run.steps.rbegin()->first, last, run.began));
  // exit_code = 1, runtime = 2. A run that trains has none, and its file goes on.
  const std::string& state = report.status.state;
  if (state != "running" && !state.empty())
    out.add(18, number_field(1, state == "done" || state == "paused" ? 0 : 1) +
                    number_field(2, std::llround(last.time - run.began)));
  return out.all();
}

}  // namespace

std::string leveldb_log(std::string_view header, const std::vector<std::string>& records) {
  std::string out(header);
  for (std::string_view rest : records) {
    for (bool first = true, whole = false; !whole; first = false) {
      const size_t room = kBlock - out.size() % kBlock;
      if (room < kFrame) out.append(room, '\0');
      const size_t size = std::min(rest.size(), (room < kFrame ? kBlock : room) - kFrame);
      whole = size == rest.size();
      const char type = first && whole ? 1 : first ? 2 : whole ? 4 : 3;  // full, first, last, middle
      boost::crc_32_type crc;
      crc.process_byte(static_cast<unsigned char>(type));
      crc.process_bytes(rest.data(), size);
      out += lmx::protobuf::fixed(static_cast<uint32_t>(crc.checksum())) +
             lmx::protobuf::fixed(static_cast<uint16_t>(size)) + type;
      out += rest.substr(0, size);
      rest.remove_prefix(size);
    }
  }
  return out;
}

std::string write_wandb(const Report& report, const std::string& folder) {
  const TrackedRun run = tracked_run(report);
  const std::string id = run.key.substr(0, 8);
  const auto began = static_cast<std::time_t>(run.began);
  std::tm utc{};
  gmtime_r(&began, &utc);
  char time[16];
  std::strftime(time, sizeof time, "%Y%m%d_%H%M%S", &utc);
  const fs::path path = fs::path(folder) / str("offline-run-", time, "-", id);
  std::error_code error;
  fs::create_directories(path / "files", error);  // write_file() reports a failure
  // ":W&B", a magic number, version 0.
  lmx::write_file((path / str("run-", id, ".wandb")).string(),
                  leveldb_log(std::string(":W&B\xE1\xBE\0", 7), records_of(report, run, id)));
  return path.string();
}

}  // namespace lmx_cli::reports
