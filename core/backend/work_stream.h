// The stream on which a thread enqueues its work of a device. An exchange of data with other devices, and the kernels
// that encode, sum and decode the data, run on a separate stream, in parallel with the work that other threads enqueue.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmx {

enum class WorkStream : uint8_t { compute, exchange };
inline constexpr size_t kWorkStreams = 2;

// The stream of the calling thread; compute, unless an OnStream says otherwise.
WorkStream work_stream();

// While it lives, the calling thread enqueues its work on `stream`. A Context that was made before has the stream of
// that time: see use_stream_of_thread().
class OnStream {
 public:
  explicit OnStream(WorkStream stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  WorkStream before_;
};

}  // namespace lmx
