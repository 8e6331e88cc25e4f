// Handles crashes: the process writes a line to stderr, and status.json no longer says "running".
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace lmx {

// After this call a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) writes one line to stderr. Then the signal ends
// the process as it would have without the handler. The line names the plugin if the crash happened in one of its
// functions (according to in_plugin() or the address of the instruction). A signal that already has a handler (for
// example a sanitizer's) is left unchanged.
void report_crashes();

// During its lifetime, a crash replaces the status file `path`. The new file has the state "failed", and its reason
// names the signal and the plugin. The signal handler makes only async-signal-safe calls. Only one object may exist at
// a time. REQUIRES: report_crashes() has been called.
class CrashStatus {
 public:
  // `host` is the value of the key `host`. `step` is read during the crash, so it must outlive this object.
  CrashStatus(const std::string& path, const std::string& host, const std::atomic<int64_t>& step);
  ~CrashStatus();
  CrashStatus(const CrashStatus&) = delete;
  CrashStatus& operator=(const CrashStatus&) = delete;
};

}  // namespace lmx
