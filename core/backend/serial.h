// Fewer threads than allowed. Work that is counted and not done has loops without threads: it is the same in every run,
// and possible in a process that was forked, in which the threads of OpenMP do not exist.
#pragma once

namespace lmx {

// While it lives, parallel_for() of this thread runs its loops itself, and num_threads() is 1.
class Serial {
 public:
  explicit Serial(bool serial);
  ~Serial();
  Serial(const Serial&) = delete;
  Serial& operator=(const Serial&) = delete;

 private:
  bool before_;
};

// num_threads() of this thread without a Serial.
int allowed_threads();

// While it lives, this thread's loops and products use at most `most` threads.
class ThreadLimit {
 public:
  explicit ThreadLimit(int most);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

}  // namespace lmx
