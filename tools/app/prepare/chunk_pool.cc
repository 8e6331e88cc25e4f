#include "app/prepare/chunk_pool.h"

#include <exception>
#include <thread>
#include <vector>

namespace lmx::data {

void work_on_chunks(int threads, const ChunkWork& work) {
  std::mutex mutex;
  int64_t failed_chunk = -1;
  std::exception_ptr error;
  auto run = [&](int thread) {
    int64_t reading = 0;  // an error of the reader itself counts as later than that of any chunk
    try {
      for (;;) {
        reading = INT64_MAX;
        const int64_t index = work.take(thread);
        if (index < 0) return;
        reading = index;
        work.visit(thread);
      }
    } catch (...) {
      work.stop();
      {
        const std::lock_guard lock(mutex);
        if (!error || reading < failed_chunk) {
          error = std::current_exception();
          failed_chunk = reading;
        }
      }
      if (work.failed) work.failed();
    }
  };
  std::vector<std::jthread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(run, t);
  run(0);
  pool.clear();  // joins
  if (error) std::rethrow_exception(error);
}

}  // namespace lmx::data
