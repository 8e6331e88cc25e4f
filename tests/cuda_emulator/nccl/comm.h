// The shared memory through which the emulated devices of a job meet, and the connections between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nccl/nccl_api.h"
#include "stream.h"

namespace nccl_emulator {

// The memory that the emulated NCCL of several processes shares, and transfers through it.
//
// A ring of bytes leads from each rank to each other one. A message is a tag and its data. The memory has no name in
// the file system, so nothing is left of it however the processes end.
inline constexpr int kMostRanks = 16;
inline constexpr size_t kRingBytes = size_t{256} << 10;

struct Ring {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) unsigned char bytes[kRingBytes];
};

struct Member {
  std::atomic<int> pid, device, joined;
};

// All zero at first.
struct Segment {
  uint64_t cookie;
  std::atomic<int> waiting;  // ranks that have waited for another one for some time
  Member members[kMostRanks];
  Ring rings[kMostRanks][kMostRanks];  // [from][to]
};

// Makes a segment, which `id` then names.
bool make_segment(ncclUniqueId& id);
// Null if the process that made it has ended.
std::shared_ptr<Segment> open_segment(const ncclUniqueId& id);

enum class Kind : uint32_t { message, broadcast, all_gather, all_reduce };
const char* name_of(Kind kind);

// The properties of a message that must be equal on both sides.
struct Tag {
  Kind kind = Kind::message;
  int32_t type = 0;
  uint64_t count = 0;
  uint64_t number = 0;  // of the collective
  bool operator==(const Tag&) const = default;
};

struct Transfer {
  bool in = false;
  int peer = 0;
  unsigned char* data = nullptr;  // only read if `in` is false
  size_t bytes = 0;
  Tag tag = {};
  uint64_t moved = 0;  // bytes of the tag and the data
  uint64_t end = 0;    // of a message that is sent: position in the ring
};

// Completes all transfers of a rank; those of one ring in their order. A message that is sent is complete when it has
// been received. Returns early if `aborted` becomes true. Fault: the tags differ, or nothing moves for a long time.
void complete(Segment& segment, int rank, std::vector<Transfer>& transfers, const std::atomic<bool>& aborted);

// A communicator of the emulated NCCL and its operations.
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
