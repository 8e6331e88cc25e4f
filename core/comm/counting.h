// One rank of a group whose other ranks do not exist: what it would send, receive and keep is counted. Tensors of the
// device have sizes and no values (backend/counting/device.h), so a group of ten thousand ranks costs one rank.
#pragma once

#include <memory>

#include "lmx/comm.h"

namespace lmx::comm {

struct CountedRank {
  int rank = 0, ranks = 1;
  int64_t per_node = 0;   // consecutive ranks of a node; 0: all
  bool overlaps = false;  // units are exchanged during backward
  int threads = 1;
};

// Ids of words that another rank would send. Ids decide how many rows ranks have together, so they have to be real.
class PeerIds {
 public:
  virtual ~PeerIds() = default;
  // Those that `rank` sends where this rank sends `own`: ascending and each once, if `own` is.
  virtual void draw(int rank, std::span<const int32_t> own, std::span<int32_t> ids) = 0;
};

// run() calls its function for that rank only. The other ranks would send:
// - tensors without values: sizes;
// - i32 of the host: ids by `ids`;
// - other tensors of the host (numbers of rows, losses, texts): this rank's own, as if all ranks had the same.
std::unique_ptr<CommGroup> make_counting_group(const CountedRank& rank, std::shared_ptr<PeerIds> ids);

}  // namespace lmx::comm
