// The memory that the emulated NCCL of several processes shares, and transfers through it.
//
// A ring of bytes leads from each rank to each other one. A message is a tag and its data. The memory has no name in
// the file system, so nothing is left of it however the processes end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "nccl/nccl_api.h"

namespace nccl_emulator {

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

}  // namespace nccl_emulator
