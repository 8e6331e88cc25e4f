// Time spans for `--trace`, written as a Chrome trace (chrome://tracing, ui.perfetto.dev).
#pragma once

#include <memory>
#include <string>

#include "lmx/api.h"

namespace lmx {

class LMX_API Tracer {
 public:
  Tracer();
  ~Tracer();
  double now_us() const;
  void add(const char* name, double begin_us, double end_us);  // thread-safe; `name` must be a literal
  void write(const std::string& path) const;                   // RunError if the file cannot be written
  std::string table() const;                                   // total time by name, longest first
  void clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One time span, from construction to destruction; no cost if `tracer` is null.
class Span {
 public:
  Span(Tracer* tracer, const char* name) : tracer_(tracer), name_(name), begin_(tracer ? tracer->now_us() : 0) {}
  ~Span() {
    if (tracer_) tracer_->add(name_, begin_, tracer_->now_us());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Tracer* tracer_;
  const char* name_;
  double begin_;
};

}  // namespace lmx
