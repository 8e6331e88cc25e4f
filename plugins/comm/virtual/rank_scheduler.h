// Rank scheduler: the ranks are threads, of which only some compute at a time while the others wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace lmx::virtual_ranks {

// Thrown in ranks that wait when another rank has failed; the group reports the error of that rank instead.
struct Aborted : std::runtime_error {
  explicit Aborted(const std::exception_ptr& cause);
};

// A rank runs only while it holds one of `slots`. Slots are assigned in the order in which ranks become ready. A rank
// releases its slot whenever it waits, so the next computation finds the caches and the freed memory of the last one.
//
// mutex() guards all state that ranks wait for; the caller of wait() and wake() must hold it.
class RankScheduler {
 public:
  RankScheduler(int ranks, int slots);

  std::mutex& mutex() { return mutex_; }
  void enter(int rank);                            // waits for a slot
  void leave(int rank, std::exception_ptr error);  // the rank's body has ended; an error ends the waiting of all ranks
  // Releases the slot until `ready()` is true; calls `ready()` again after every wake(rank). `what` is for the message
  // if all ranks wait for each other, an InternalError in each of them. If `ready()` is true, wait() returns even after
  // another rank has failed: each rank gets the error of a collective from the collective itself.
  void wait(int rank, std::unique_lock<std::mutex>& lock, const char* what, const std::function<bool()>& ready);
  void wake(int rank);  // its condition may now be true
  bool left(int rank) const { return slots_[static_cast<size_t>(rank)].left; }
  std::exception_ptr error() const { return error_; }

 private:
  struct Slot {
    std::condition_variable called;
    bool running = false, queued = false, left = false;
    const char* waits_for = nullptr;  // from wait() until it runs again, otherwise null
  };
  void queue(int rank);
  void hand_out();
  void check_deadlock();

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::deque<int> queue_;
  int free_;
  std::exception_ptr error_;
};

}  // namespace lmx::virtual_ranks
