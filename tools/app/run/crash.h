// Crashes: the process writes a line to stderr, and status.json no longer says "running".
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace lmx {

// From here on a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) writes one line to stderr before the signal ends the
// process as it would have. The line names the plugin if the crash happened in a function of it (in_plugin(), or by the
// address of the instruction). A signal that has a handler already (a sanitizer's) is left alone.
void report_crashes();

// While it lives, a crash replaces the status file `path` by one whose state is "failed" and whose reason names the
// signal and the plugin. The handler makes only calls that are safe in it. One at a time. Needs report_crashes().
class CrashStatus {
 public:
  // `host` is the value of the key of this name. `step` is read at the crash, so it must outlive this object.
  CrashStatus(const std::string& path, const std::string& host, const std::atomic<int64_t>& step);
  ~CrashStatus();
  CrashStatus(const CrashStatus&) = delete;
  CrashStatus& operator=(const CrashStatus&) = delete;
};

}  // namespace lmx
