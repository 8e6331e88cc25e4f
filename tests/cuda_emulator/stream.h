// Streams, events and graphs of the emulated device.
//
// An operation that is enqueued runs late: only when the host waits for it, or when another stream's operation that the
// host waits for has to wait for it. Code that forgets to wait therefore reads wrong data in every run. Where several
// streams may continue, the scrambled order (simt.h) chooses one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "include/cuda_runtime_api.h"

namespace cuda_emulator {

// The device does one thing at a time, whichever threads of the host use it.
std::recursive_mutex& device_mutex();

struct Stream;

// An operation waits until `position` operations of `stream` have run, if `stream` is set; else it runs `work`.
struct Operation {
  std::function<void()> work;
  std::shared_ptr<Stream> stream = nullptr;
  uint64_t position = 0;
};

struct Stream {
  std::deque<Operation> queue;
  uint64_t issued = 0, done = 0;                              // operations
  std::shared_ptr<std::vector<Operation>> capture = nullptr;  // what is recorded instead of being enqueued
  bool capture_failed = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;  // of the capture
  std::thread::id capturing;                                 // the thread that began it
  int device = 0;
};

// Null is the stream 0.
std::shared_ptr<Stream> stream_of(cudaStream_t handle);
cudaStream_t make_stream(int device);
cudaError_t destroy_stream(cudaStream_t handle);

void enqueue(cudaStream_t handle, std::function<void()> work);
// Runs a stream until `position` of its operations are done.
void run_until(Stream& stream, uint64_t position);
void run_stream(cudaStream_t handle);
void run_all();
// Becomes the time of the device when the stream reaches this point: the number of operations of all streams that the
// device has run.
std::shared_ptr<uint64_t> enqueue_clock(cudaStream_t handle);

cudaError_t begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode);
cudaError_t end_capture(cudaStream_t handle, cudaGraph_t* graph);
// An operation that may not be part of a graph, such as an allocation. It is refused, and the captures that it disturbs
// become invalid: those that this thread began, and with cudaStreamCaptureModeGlobal those of every thread.
bool refuse_in_capture();

}  // namespace cuda_emulator

// The types behind CUDA's handles.
struct CUstream_st {
  std::shared_ptr<cuda_emulator::Stream> stream;
};
struct CUevent_st {
  std::shared_ptr<cuda_emulator::Stream> stream = nullptr;  // null: never recorded
  uint64_t position = 0;
  bool timed = true;
  std::shared_ptr<uint64_t> time = nullptr;  // of the device, when the stream has reached the event
  bool asked = false;                        // cudaEventQuery() has said once that the event is not ready
  int device = 0;
};
struct CUgraph_st {
  std::vector<cuda_emulator::Operation> operations;
};
struct CUgraphExec_st {
  std::vector<cuda_emulator::Operation> operations;
  void* memory;  // of the device
};
