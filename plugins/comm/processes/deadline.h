// A time limit for operations that have none in the library of messages: to join and to leave a job, every rank waits
// for all others.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lmx::processes {

// Text for a warning after `seconds`: it describes why the wait is long. `text` is called in another thread.
struct WaitNote {
  double seconds = 0;
  std::function<std::string()> text = {};
};

// Ends the process with exit code 1 and `message` of the group `name` if it still exists after `seconds`; 0: never.
// Time in which the process was stopped does not count.
class Deadline {
 public:
  Deadline(double seconds, const std::string& name, const std::string& message, const WaitNote& note = {});
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  // Returns false if the operation has come to its end after `seconds` or before.
  bool lasts(double seconds);

  std::mutex mutex_;
  std::condition_variable met_changed_;
  bool met_ = false;
  std::thread thread_;
};

// A clock for time limits. It does not count the time in which the process was stopped (SIGSTOP): a rank that was
// stopped together with the others must not treat them as lost when the job continues.

class RunningTime {
 public:
  using Clock = std::chrono::steady_clock;
  // `longest_s`: if two calls of advance() are further apart, the process was stopped for the rest of that time.
  explicit RunningTime(double longest_s) : longest_s_(longest_s), last_(Clock::now()) {}
  void advance() {
    const auto now = Clock::now();
    gap_s_ = std::chrono::duration<double>(now - last_).count();
    seconds_ += std::min(gap_s_, longest_s_);
    last_ = now;
  }
  double seconds() const { return seconds_; }  // without the time in which the process was stopped
  // Results of the last advance(): its time, the seconds since the previous call, and how many of them do not count.
  Clock::time_point last() const { return last_; }
  double gap_s() const { return gap_s_; }
  double stopped_s() const { return std::max(0.0, gap_s_ - longest_s_); }

 private:
  double longest_s_, seconds_ = 0, gap_s_ = 0;
  Clock::time_point last_;
};

}  // namespace lmx::processes
