// Checks that a message has the length that its receiver expects. Gloo itself does not: it accepts a message that is
// too short, and ends the process of a receiver whose buffer is too short.
#pragma once

#include <cstdint>

namespace lmx_gloo {

// The slot of the messages with this tag and this length. Messages of other lengths have other slots, so that none of
// them is ever written to a buffer that is too short for it. `tag`: 0 to 2^24 - 1. `bytes`: 0 to 2^40 - 1, and less
// than 2^32 where Gloo's own collectives use the same connections, because their slots begin at 2^56.
constexpr uint64_t slot_of(int tag, int64_t bytes) {
  return static_cast<uint64_t>(tag) | static_cast<uint64_t>(bytes) << 24;
}

// InternalError if rank `from` has sent another number of bytes than this rank expects.
void check_length(int from, int64_t sent, int rank, int64_t expected);

}  // namespace lmx_gloo
