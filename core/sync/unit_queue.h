// A queue of units of gradients, which are reduced one after the other, in parallel with backward if possible.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmx/sync.h"

namespace lmx {

class CudaDevice;
class StreamPoint;

struct CommTimes {
  double busy = 0;     // seconds of exchanges of gradients or values
  double exposed = 0;  // those during which the rank only waited; the others overlapped with computation
  void operator+=(const CommTimes& more) {
    busy += more.busy;
    exposed += more.exposed;
  }
};

// The bytes of a unit that a rank exchanged in a step.
struct UnitBytes {
  int64_t sent = 0, received = 0, sent_between_nodes = 0, received_between_nodes = 0;
  int64_t collectives = 0;  // one after the other; a sum over ranks is two, which scatter and gather its parts
  int64_t moved = 0;        // in the rank's own memory beside the collectives, on a device that counts
  void add(const std::vector<LedgerEntry>& lines, size_t from = 0);  // those from number `from` on
};

// A unit of the last step on this rank: when its gradients were complete and when its exchange began and ended, in
// seconds since begin_step(), its bytes, and the processor time of the thread that exchanged it.
struct UnitTime {
  std::string rule = {};  // its name in `sync:`
  std::vector<std::string> params = {};
  double ready = 0, begin = 0, end = 0;
  UnitBytes bytes = {};
  double cpu = 0;
  int64_t period = 1;         // steps between two such exchanges
  int64_t delay = 0;          // steps that are computed before its result is used
  bool after_update = false;  // values are exchanged, not gradients
};

// Runs jobs in the order of post(): on a separate thread or, without one, in drain(). Virtual ranks use no thread: a
// rank that waits for others in the middle of its backward would keep its activations in memory during the wait.
//
// With a thread and a CUDA device, jobs enqueue their work on the device's exchange stream. It waits for the stream of
// the thread that posts at the moment that post() gets, and that stream waits for all jobs in drain(). Times are then
// times of the device, because the host is only busy with enqueuing; a step's times are known when the host has waited
// for the device after drain().
class UnitQueue {
 public:
  // A moment of this rank's work: of the host, or of the stream of the thread that calls now().
  struct Moment {
    std::chrono::steady_clock::time_point host;
    std::shared_ptr<const StreamPoint> device;  // null: of the host
  };
  // Seconds since begin_step().
  struct JobTime {
    double ready = 0, begin = 0, end = 0;
  };

  explicit UnitQueue(bool beside, Device device = {});
  ~UnitQueue();
  UnitQueue(const UnitQueue&) = delete;
  // Forgets the times of earlier jobs and waits, which take_times() has counted as far as the device has done them.
  void begin_step();
  Moment now() const;
  // `job` may use what this thread has computed until `ready`, and the tensors `used`, which any thread may free at any
  // time. Contexts of this thread have to be changed by use_stream_of_thread() before the job uses them.
  void post(Moment ready, std::function<void()> job, std::vector<Tensor> used = {});
  // Returns when every job is done or, on a device, enqueued. If a job throws, the remaining jobs are dropped, and
  // drain() throws that exception.
  void drain();
  bool drained() const { return !posted_; }  // no job was posted since the last drain()
  CommTimes take_times();                    // since the last call
  // Times of the jobs since begin_step(), in the order of post(). Zeros if the device has not done a job.
  std::vector<JobTime> job_times() const;

 private:
  struct Job {
    std::function<void()> run;
    Moment ready, begin, end;
  };
  void run_one(Job job);
  void work();
  void count_times();

  CudaDevice* const device_;  // null: jobs use no separate stream
  const bool at_once_;        // on a device that counts, post() runs jobs, in the same order in every run
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, ending_ = false;
  bool posted_ = false;  // a job since the last drain()
  std::exception_ptr error_;
  std::vector<std::shared_ptr<void>> shares_;      // of the tensors that posted jobs use
  Moment start_;                                   // of begin_step()
  std::vector<std::pair<Moment, Moment>> drains_;  // of this step: the begin and the end of each drain()
  std::vector<Job> done_;                          // of this step
  size_t counted_jobs_ = 0, counted_drains_ = 0;   // those of done_ and drains_ that times_ contains
  CommTimes times_;
  std::thread thread_;
};

}  // namespace lmx
