// The work of a loop that may be replayed (replay_steps()): a thread first describes it, and enqueues it only if no
// earlier loop was equal.
#pragma once

#include <cstdint>
#include <string>

namespace lmx {

struct LoopWork {
  std::string* text = nullptr;  // the work is added here, and not enqueued
  void* stream = nullptr;       // the work is captured from this stream
  int64_t pieces = 0;           // described so far

  void describe(const void* bytes, size_t size) {
    text->append(static_cast<const char*>(bytes), size);
    ++pieces;
  }
};

// The loop of this thread; null outside of loops.
LoopWork*& loop_work();

// While it lives, this thread's work belongs to the loop.
class InLoop {
 public:
  explicit InLoop(LoopWork& work) { loop_work() = &work; }
  ~InLoop() { loop_work() = nullptr; }
  InLoop(const InLoop&) = delete;
  InLoop& operator=(const InLoop&) = delete;
};

}  // namespace lmx
