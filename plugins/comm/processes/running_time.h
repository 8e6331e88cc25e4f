// A clock for time limits. It does not count the time in which the process was stopped (SIGSTOP): a rank that was
// stopped together with the others must not treat them as lost when the job continues.
#pragma once

#include <algorithm>
#include <chrono>

namespace lmx::processes {

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
