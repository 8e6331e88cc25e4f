#include "lmx/trace.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/json_object.h"
#include "base/output_file.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  const char* name;
  Tracer::Moment begin, end;
  int thread;
};

// Begin and end of a span in a row of the trace.
struct Interval {
  const char* name;
  double begin_us, end_us;
  int row;
};

}  // namespace

struct Tracer::Impl {
  Clock::time_point start = Clock::now();
  mutable std::mutex mutex;
  std::vector<Event> events;
  std::map<std::thread::id, int> threads;  // small numbers in order of first appearance; each has a lane in a viewer
  std::unique_ptr<DeviceClock> device;
  double device_start_us = 0;  // point 0 of the device's clock

  double now_us() const { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }
  void restart_device() {
    if (!device) return;
    device->restart();
    device_start_us = now_us();
  }
  std::vector<Interval> of_host() const {
    std::vector<Interval> all;
    for (const Event& e : events) all.push_back({e.name, e.begin.host_us, e.end.host_us, e.thread});
    return all;
  }
  // The work of two threads may run at the same time, so each thread has a row of the device, too.
  std::vector<Interval> of_device() const {
    std::vector<Interval> all;
    if (!device) return all;
    const std::vector<double> times = device->times_us();
    const auto at = [&](const Moment& m) { return device_start_us + times.at(static_cast<size_t>(m.device)); };
    for (const Event& e : events)
      if (e.begin.device >= 0 && e.end.device >= 0)
        all.push_back({e.name, at(e.begin), at(e.end), kDeviceRow + e.thread});
    return all;
  }
};

DeviceClock::~DeviceClock() = default;
Tracer::Tracer() : impl_(std::make_unique<Impl>()) {}
Tracer::~Tracer() = default;

void Tracer::measure_device(std::unique_ptr<DeviceClock> clock) {
  const std::lock_guard lock(impl_->mutex);
  impl_->device = std::move(clock);
  impl_->restart_device();
}

Tracer::Moment Tracer::now() const {
  return {impl_->now_us(), impl_->device ? impl_->device->mark() : -1};
}

void Tracer::add(const char* name, const Moment& begin, const Moment& end) {
  const std::lock_guard lock(impl_->mutex);
  const int next = static_cast<int>(impl_->threads.size());
  const int thread = impl_->threads.try_emplace(std::this_thread::get_id(), next).first->second;
  impl_->events.push_back({name, begin, end, thread});
}

void Tracer::clear() {
  const std::lock_guard lock(impl_->mutex);
  impl_->events.clear();
  impl_->start = Clock::now();
  impl_->restart_device();
}

void Tracer::write(const std::string& path) const {
  std::unique_lock lock(impl_->mutex);
  std::vector<Interval> spans = impl_->of_host();
  const std::vector<Interval> of_device = impl_->of_device();
  lock.unlock();
  spans.insert(spans.end(), of_device.begin(), of_device.end());
  OutputFile file(path);
  const int64_t pid = getpid();
  std::string text = "{\"traceEvents\":[";
  const char* separator = "\n";
  for (const Interval& e : spans) {
    JsonObject event;
    event.add("ph", "X").add("name", e.name).add("ts", e.begin_us, 3).add("dur", e.end_us - e.begin_us, 3);
    event.add("pid", pid).add("tid", int64_t{e.row});
    text += separator + event.text();
    separator = ",\n";
    if (text.size() > 1 << 20) {
      file.write(text);
      text.clear();
    }
  }
  file.write(text + "\n],\"displayTimeUnit\":\"ms\"}\n");
  file.close();
}

std::string Tracer::table() const {
  struct Row {
    std::string_view name;
    double total_us = 0, device_us = 0;
    int64_t count = 0;
  };
  const std::lock_guard lock(impl_->mutex);
  std::map<std::string_view, Row> by_name;
  for (const Interval& e : impl_->of_host()) {
    Row& row = by_name[e.name];
    row.name = e.name;
    row.total_us += e.end_us - e.begin_us;
    ++row.count;
  }
  for (const Interval& e : impl_->of_device()) by_name[e.name].device_us += e.end_us - e.begin_us;
  std::vector<Row> rows;
  for (const auto& [name, row] : by_name) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.total_us > b.total_us; });
  const auto fixed = [](double us) { return format("%.3f", us / 1e3); };
  std::vector<std::vector<std::string>> cells{{"span", "calls", "total ms", "mean ms"}};
  std::vector<size_t> least{4, 10, 12, 12};
  for (const Row& row : rows)
    cells.push_back({std::string(row.name), std::to_string(row.count), fixed(row.total_us),
                     fixed(row.total_us / static_cast<double>(row.count))});
  if (impl_->device) {
    least.push_back(12);
    cells[0].push_back("device ms");
    for (size_t i = 0; i < rows.size(); ++i) cells[i + 1].push_back(fixed(rows[i].device_us));
  }
  std::string out;
  for (const std::string& line : table_lines(cells, {.left = 1, .gap = 0, .least = least})) out += line + "\n";
  return out;
}

}  // namespace lmx
