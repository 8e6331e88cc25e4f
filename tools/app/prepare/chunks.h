// The chunks of a text: threads that process them, and the strings in each of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "app/corpora/sources.h"

namespace lmx::app {

// Threads that process chunks of a text, and the order in which they may write.

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

// The strings in a chunk of a file: its lines, a field of its records, or its documents.

struct TextRecord {
  std::string_view text;  // valid only during the visit
  std::string_view raw;   // the line or record of the chunk that contains it
  int64_t line = 0;       // 0-based line in the chunk where `raw` begins
};

// UserError: a CSV record without the column or without an end, a line that is not a JSON object with the field.
void for_each_record(const SourceFile& file, const Chunk& chunk, const std::function<void(const TextRecord&)>& visit);

// Throws the UserError for the first byte of record.raw that is not UTF-8. REQUIRES: such a byte exists.
[[noreturn]] void refuse_invalid_utf8(const SourceFile& file, const Chunk& chunk, std::string_view raw);

}  // namespace lmx::app
