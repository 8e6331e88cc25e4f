// Units of gradients on their way: reduced one after the other, beside backward where that is possible.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "lmx/sync.h"

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
