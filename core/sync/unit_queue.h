// A queue of units of gradients, which are reduced one after the other, in parallel with backward if possible.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lmx/sync.h"

namespace lmx {

struct CommTimes {
  double busy = 0;     // seconds of gradient exchange
  double exposed = 0;  // those during which the rank only waited; the others overlapped with backward
};

// A unit of the last step on this rank: when its gradients were complete and when its exchange began and ended, in
// seconds since begin_step(), its bytes, and the processor time of the thread that exchanged it.
struct UnitTime {
  std::string first = {};  // name of its first parameter
  double ready = 0, begin = 0, end = 0;
  int64_t sent = 0, received = 0;
  double cpu = 0;
};

// The expected exchange of a unit in a step of several ranks: bytes that one rank sends, in how many collectives, bytes
// of its memory that it reads and writes beside them, bytes that it keeps, and the part of the sent bytes that crosses
// nodes (0 if the nodes have different numbers of ranks).
struct UnitPlan {
  std::string rule;  // its name in `sync:`
  std::vector<std::string> params;
  int64_t sent = 0, collectives = 0, moved = 0;
  KeptBytes kept;
  int64_t sent_between_nodes = 0;
};

}  // namespace lmx

namespace lmx::train {

// Runs jobs in the order of post(): on a separate thread or, without one, in drain(). Virtual ranks use no thread: a
// rank that waits for others in the middle of its backward would keep its activations in memory during the wait.
class UnitQueue {
 public:
  explicit UnitQueue(bool beside);
  ~UnitQueue();
  UnitQueue(const UnitQueue&) = delete;
  void post(std::function<void()> job);
  // Returns when every job is done. If a job throws, the remaining jobs are dropped, and drain() throws that exception.
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
