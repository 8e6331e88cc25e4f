// Time spans for `--trace`, written as a Chrome trace (chrome://tracing, ui.perfetto.dev).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/api.h"

namespace lmx {

// Measures when a device reaches points of its work. Thread-safe.
class LMX_API DeviceClock {
 public:
  virtual ~DeviceClock();
  virtual int64_t mark() = 0;  // the point after all work that is enqueued now; points are numbered from 0
  // Microseconds from point 0 to each point. Waits for the device.
  virtual std::vector<double> times_us() = 0;
  // Forgets all points, waits for the device and sets point 0.
  virtual void restart() = 0;
};

class LMX_API Tracer {
 public:
  // The beginning or the end of a span, for the host and, if there is a clock, for the device.
  struct Moment {
    double host_us = 0;
    int64_t device = -1;
  };

  Tracer();
  ~Tracer();
  // From now on spans are also measured on a device: from the point at which it has done all work that was enqueued
  // before the span, to the point at which it has done the work of the span.
  void measure_device(std::unique_ptr<DeviceClock> clock);
  Moment now() const;
  void add(const char* name, const Moment& begin, const Moment& end);  // thread-safe; `name` must be a literal
  // Each thread has a row, and the device has the row kDeviceRow. RunError if the file cannot be written.
  void write(const std::string& path) const;
  std::string table() const;  // total time by name, longest first; with the device's time if it is measured
  void clear();

  static constexpr int kDeviceRow = 1000;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One time span, from construction to destruction; no cost if `tracer` is null.
class Span {
 public:
  Span(Tracer* tracer, const char* name) : tracer_(tracer), name_(name) {
    if (tracer) begin_ = tracer->now();
  }
  ~Span() {
    if (tracer_) tracer_->add(name_, begin_, tracer_->now());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Tracer* tracer_;
  const char* name_;
  Tracer::Moment begin_;
};

}  // namespace lmx
