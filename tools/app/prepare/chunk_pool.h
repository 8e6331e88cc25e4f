// Threads that process chunks of a text, and the order in which they may write.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace lmx::data {

struct ChunkWork {
  std::function<int64_t(int thread)> take;  // reads this thread's next chunk; returns its index, or -1 at the end
  std::function<void(int thread)> visit;    // processes the chunk that this thread took last
  std::function<void()> stop;               // ends the reading: no further chunks
  std::function<void()> failed = {};        // called as soon as there is an error
};

// Runs until no chunk is left, on `threads` threads. Of several errors, the one of the earliest chunk is thrown, for
// any number of threads.
void work_on_chunks(int threads, const ChunkWork& work);

// Lets threads through in the order of their chunks.
class Turnstile {
 public:
  bool wait_for(int64_t turn) {  // false once another thread has failed
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return broken_ || next_ == turn; });
    return !broken_;
  }
  void pass() {
    const std::lock_guard lock(mutex_);
    ++next_;
    changed_.notify_all();
  }
  void break_open() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ = 0;
  bool broken_ = false;
};

}  // namespace lmx::data
