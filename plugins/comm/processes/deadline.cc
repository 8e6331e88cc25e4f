#include "deadline.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"

namespace lmx::processes {

Deadline::Deadline(double seconds, const std::string& name, const std::string& message, const WaitNote& note) {
  if (seconds <= 0 && !note.text) return;
  thread_ = std::thread([this, seconds, note, prefix = str("[", name, "] "), message] {
    double waited = 0;
    std::string known;
    if (note.text && (seconds <= 0 || note.seconds < seconds)) {
      if (!lasts(note.seconds)) return;
      if (const std::string text = note.text(); !text.empty()) log_warn(prefix + text);
      waited = note.seconds;
    }
    if (seconds <= 0 || !lasts(seconds - waited)) return;
    if (note.text) known = note.text();
    const std::string text = str(prefix, message, known.empty() ? "" : ": ", known);
    log(LogLevel::error, text + "; the run ends");
    leave_termination_note(text);
    _exit(1);  // the rank's own thread is blocked inside the library and cannot react
  });
}

bool Deadline::lasts(double seconds) {
  std::unique_lock lock(mutex_);
  constexpr double kLookS = 0.1;
  for (RunningTime waited(5 * kLookS); waited.seconds() < seconds; waited.advance()) {
    const std::chrono::duration<double> next(std::min(kLookS, seconds - waited.seconds()));
    if (met_changed_.wait_for(lock, next, [this] { return met_; })) return false;
  }
  return true;
}

Deadline::~Deadline() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  met_changed_.notify_one();
  thread_.join();
}

}  // namespace lmx::processes
