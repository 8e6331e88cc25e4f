// Units of gradients on their way: reduced one after the other, beside backward where that is possible.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "lmx/sync.h"

namespace lmx {

struct CommTimes {
  double busy = 0;     // seconds in which gradients travelled
  double exposed = 0;  // those of them in which the rank had nothing else to do; the rest was hidden behind backward
};

// A unit of the last step on this rank: when its gradients were complete, when it began and ceased to travel, in
// seconds since begin_step(), and the bytes of it.
struct UnitTime {
  std::string first;  // of its parameters
  double ready = 0, begin = 0, end = 0;
  int64_t sent = 0, received = 0;
};

// What a unit is expected to move in a step of several ranks: bytes that one sends, and what stays.
struct UnitPlan {
  int64_t sent = 0;
  KeptBytes kept;
};

}  // namespace lmx

namespace lmx::train {

// Runs jobs in the order of post(): on a thread of its own, or, without one, in drain(). Virtual ranks go without: a
// rank that waited for others in the middle of its backward would hold its activations meanwhile.
class UnitQueue {
 public:
  explicit UnitQueue(bool beside);
  ~UnitQueue();
  UnitQueue(const UnitQueue&) = delete;
  void post(std::function<void()> job);
  // Returns when every job is done; throws what a job threw, after which the others were not begun.
  void drain();
  CommTimes take_times();

 private:
  void run_one(const std::function<void()>& job);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool busy_ = false, ending_ = false;
  std::exception_ptr error_;
  CommTimes times_;
  std::thread thread_;
};

}  // namespace lmx::train
