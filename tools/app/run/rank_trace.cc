#include "app/run/rank_trace.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::train {
namespace {

using Json = nlohmann::ordered_json;

// An anonymous file in memory.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("lmx-trace", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw RunError(str("[trace] no memory for its spans: ", std::strerror(errno)));
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return str("/proc/self/fd/", descriptor_); }

 private:
  int descriptor_;
};

Json name_of(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string rank_rows(const Tracer& tracer, int rank) {
  const MemoryFile file;
  tracer.write(file.path());
  Json spans = Json::parse(read_file(file.path()))["traceEvents"];
  int threads = 0;
  std::set<int> on_device;  // threads whose work the device has done
  for (Json& span : spans) {
    span["pid"] = rank;
    const int row = span["tid"];
    if (row < Tracer::kDeviceRow)
      threads = std::max(threads, row + 1);
    else
      on_device.insert(row - Tracer::kDeviceRow);
  }
  const std::string own = str("rank ", rank);
  const auto of_thread = [](const std::string& text, int t) { return t ? str(text, ", thread ", t + 1) : text; };
  Json rows = Json::array({name_of("process_name", rank, 0, own)});
  rows.push_back(
      {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", rank}, {"tid", 0}, {"args", {{"sort_index", rank}}}});
  for (int t = 0; t < threads; ++t) rows.push_back(name_of("thread_name", rank, t, of_thread(own, t)));
  for (const int t : on_device)
    rows.push_back(name_of("thread_name", rank, Tracer::kDeviceRow + t, of_thread(own + ", device", t)));
  rows.insert(rows.end(), spans.begin(), spans.end());
  return rows.dump();
}

void write_rank_trace(const std::string& path, const std::vector<std::string>& rows) {
  Json all = Json::array();
  for (const std::string& text : rows)
    for (Json& row : Json::parse(text)) all.push_back(std::move(row));
  write_file(path, Json{{"traceEvents", all}, {"displayTimeUnit", "ms"}}.dump() + "\n");
}

}  // namespace lmx::train
