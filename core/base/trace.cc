#include "lmx/trace.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/json_object.h"
#include "base/table.h"
#include "lmx/error.h"

namespace lmx {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  const char* name;
  double begin_us, end_us;
  int thread;
};

}  // namespace

struct Tracer::Impl {
  Clock::time_point start = Clock::now();
  mutable std::mutex mutex;
  std::vector<Event> events;
  std::map<std::thread::id, int> threads;  // small numbers in order of first appearance; each has a lane in a viewer

  std::vector<Event> copy() const {
    const std::lock_guard lock(mutex);
    return events;
  }
};

Tracer::Tracer() : impl_(std::make_unique<Impl>()) {}
Tracer::~Tracer() = default;

double Tracer::now_us() const {
  return std::chrono::duration<double, std::micro>(Clock::now() - impl_->start).count();
}

void Tracer::add(const char* name, double begin_us, double end_us) {
  const std::lock_guard lock(impl_->mutex);
  const int next = static_cast<int>(impl_->threads.size());
  const int thread = impl_->threads.try_emplace(std::this_thread::get_id(), next).first->second;
  impl_->events.push_back({name, begin_us, end_us, thread});
}

void Tracer::clear() {
  const std::lock_guard lock(impl_->mutex);
  impl_->events.clear();
  impl_->start = Clock::now();
}

void Tracer::write(const std::string& path) const {
  const std::vector<Event> events = impl_->copy();
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) throw RunError(str("[trace] cannot write ", path, ": ", std::strerror(errno)));
  const int64_t pid = getpid();
  std::fputs("{\"traceEvents\":[", file);
  const char* separator = "\n";
  for (const Event& e : events) {
    JsonObject event;
    event.add("ph", "X").add("name", e.name).add("ts", e.begin_us, 3).add("dur", e.end_us - e.begin_us, 3);
    event.add("pid", pid).add("tid", int64_t{e.thread});
    std::fputs((separator + event.text()).c_str(), file);
    separator = ",\n";
  }
  std::fputs("\n],\"displayTimeUnit\":\"ms\"}\n", file);
  errno = 0;
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || failed) {
    throw RunError(str("[trace] cannot write ", path, ": ", errno ? std::strerror(errno) : "write error"));
  }
}

std::string Tracer::table() const {
  struct Row {
    std::string_view name;
    double total_us = 0;
    int64_t count = 0;
  };
  std::map<std::string_view, Row> by_name;
  for (const Event& e : impl_->copy()) {
    Row& row = by_name[e.name];
    row.name = e.name;
    row.total_us += e.end_us - e.begin_us;
    ++row.count;
  }
  std::vector<Row> rows;
  for (const auto& [name, row] : by_name) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.total_us > b.total_us; });
  const auto fixed = [](double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.3f", value);
    return std::string(text);
  };
  std::vector<std::vector<std::string>> cells{{"span", "calls", "total ms", "mean ms"}};
  for (const Row& row : rows)
    cells.push_back({std::string(row.name), std::to_string(row.count), fixed(row.total_us / 1e3),
                     fixed(row.total_us / 1e3 / static_cast<double>(row.count))});
  std::string out;
  for (const std::string& line : table_lines(cells, {.left = 1, .gap = 0, .least = {4, 10, 12, 12}}))
    out += line + "\n";
  return out;
}

}  // namespace lmx
