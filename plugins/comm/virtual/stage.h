// Who may run: the ranks are threads, of which a few compute at a time while the others wait.
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

// Thrown in ranks that wait in vain because another one has failed; the group reports that one's error instead.
struct Aborted : std::runtime_error {
  explicit Aborted(const std::exception_ptr& cause);
};

// A rank runs only while it holds one of `slots`, which go round in the order in which ranks became ready. It gives its
// slot back whenever it waits, so what it computes next finds the caches and freed memory of the last.
//
// All state of what ranks wait for is guarded by mutex(); wait() and wake() want it held.
class Stage {
 public:
  Stage(int ranks, int slots);

  std::mutex& mutex() { return mutex_; }
  void enter(int rank);                            // takes a slot
  void leave(int rank, std::exception_ptr error);  // the rank's body ended; an error ends everyone's waiting
  // Gives the slot back until `ready()`, which is asked again after every wake(rank). `what` is for the message when
  // all ranks wait for each other, an InternalError in each of them. What is ready stays so when another rank fails:
  // of an error that all are told of in a collective each learns by itself.
  void wait(int rank, std::unique_lock<std::mutex>& lock, const char* what, const std::function<bool()>& ready);
  void wake(int rank);  // its condition may have come true
  bool left(int rank) const { return seats_[static_cast<size_t>(rank)].left; }
  std::exception_ptr error() const { return error_; }

 private:
  struct Seat {
    std::condition_variable called;
    bool running = false, queued = false, left = false;
    const char* waits_for = nullptr;  // null while it runs or is queued
  };
  void queue(int rank);
  void hand_out();
  void check_deadlock();

  std::mutex mutex_;
  std::vector<Seat> seats_;
  std::deque<int> queue_;
  int free_;
  std::exception_ptr error_;
};

}  // namespace lmx::virtual_ranks
