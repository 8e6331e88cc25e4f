// A communicator of the emulated NCCL and its operations.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shared.h"
#include "stream.h"

namespace nccl_emulator {

struct Op {
  Kind kind = Kind::message;
  const void* from = nullptr;  // null: a message that is received
  void* to = nullptr;          // null: a message that is sent
  size_t count = 0;
  ncclDataType_t type = ncclUint8;
  int peer = 0;  // of a message; the root of a broadcast
  size_t bytes() const { return count * (type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : 1); }
};

// REQUIRES: it lives as long as its operations are in a queue. Its thread runs them when another rank waits, because a
// device works without its host: a rank whose host does something else would otherwise never serve the others. The
// thread also notices the end of other ranks' processes.
class Comm {
 public:
  Comm(std::shared_ptr<Segment> segment, int rank, int ranks, int device);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  void join();
  // ncclInProgress until all ranks have joined; an error: see last_error().
  ncclResult_t joined();
  // Enqueues one group. REQUIRES: device_mutex() is held.
  void enqueue(cudaStream_t stream, std::vector<Op> ops);
  void fail(ncclResult_t error, const std::string& text);
  void end();  // its thread

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  int queued() const { return queued_; }

  std::atomic<bool> aborted{false};
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::atomic<bool> unasked{false};  // the result of the last call has not been asked for
  std::string last_error;            // written before `error`
  int calls = 0;                     // of operations

 private:
  void run(const std::vector<Op>& ops);
  void add(const Op& op, std::vector<Transfer>& transfers, std::vector<std::vector<unsigned char>>& parts);
  void help();
  void run_queued();
  void look_for_the_dead();

  std::shared_ptr<Segment> segment_;
  int rank_, ranks_, device_;
  std::atomic<int> queued_{0};
  uint64_t collectives_ = 0;
  std::shared_ptr<cuda_emulator::Stream> stream_;  // of the last operation
  uint64_t position_ = 0;                          // after which the last operation has run
  std::atomic<bool> ended_{false};
  std::thread helper_;
};

}  // namespace nccl_emulator
