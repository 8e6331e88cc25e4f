// The time that a rank computes in a step, from the products and tensors of a counted step; and the time of collectives
// on the links of a machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/memory/counted.h"
#include "app/plan/machine.h"
#include "sync/unit_queue.h"

namespace lmx::app::plan {

// Seconds on one device, without other ranks.
struct Work {
  double passes = 1;                      // forward and backward passes of a rank's step; the last one may be a part
  double forward_s = 0, backward_s = 0;   // of one pass
  std::map<std::string, double> ready_s;  // by parameter: from the begin of backward until its gradient is complete
  double update_s = 0;                    // clipping and optimizer
  double clip_s = 0;                      // the part of it for clipping
  // Replaces the times of a pass by measured ones. The gradients stay complete after the same parts of backward.
  void set_pass(double forward, double backward);
};

// A product of a pass, forward or backward, or of an update.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  bool repeated = false;  // with the same second factor at each time step, which is packed once
  auto operator<=>(const ProductShape&) const = default;
};
// Those of a step, each once: the products whose times a plan needs. `within`: also those that a kernel computes beside
// other work, which are products by themselves on a CPU only.
std::vector<ProductShape> product_shapes(const RankCount& count, bool within);

// Estimates, from docs/plan.md:
//
// - The products of a pass and what is between them are those of the counted step. A product takes
//   DeviceConfig::product_s().
// - Each byte of an activation that a kernel allocates is written once and read once; backward also reads the bytes
//   that forward has written.
// - The kernels between two products take at least launch_us each. On a device that replays() each of them takes
//   replay_us beside its bytes, and the host starts the kernels outside of replayed loops, launch_us each, while the
//   device computes: the longer of both times counts.
// - The optimizer reads value, gradient and state and writes value and state, of all rows that the step changes;
//   clipping reads the gradients once more. Its products (Muon) take DeviceConfig::product_s() each.
Work work_of(const Recipe& recipe, const Network& network, const Shares& shares, const RankCount& count,
             const DeviceConfig& device);

// How collectives move their data. In all of them a rank sends `sent` bytes as the ledger counts them: those of a ring,
// 2 (G-1)/G n for a sum of n bytes (Patarasuk and Yuan 2009, section 3), or (G-1) n for a gathered part of n bytes.
//
//   pairwise      lmx itself: G-1 rounds. In round s rank r sends to rank r + s.
//   ring          2 (G-1) or G-1 rounds, each to the next rank; one rank of a node sends to the next node
//   tree          as much data as a ring, in log2 G rounds
//   hierarchical  a ring in each node, and rings between the ranks with the same place in each node
//   automatic     the fastest of these for the size of each message, as libraries choose
enum class Algorithm : uint8_t { pairwise, ring, tree, hierarchical, automatic };
Algorithm algorithm_named(const std::string& name);  // UserError: with the nearest name
const char* name_of(Algorithm algorithm);

// The data of a unit that a rank sends, as its strategy states them: bytes, the part of them for ranks of other nodes,
// and the number of collectives.
struct Sent {
  int64_t bytes = 0, between_nodes = 0, collectives = 0;
};

// The exchange of a unit.
struct Transfer {
  double seconds = 0;
  int64_t node_bytes = 0, network_bytes = 0;  // that a rank sends inside its node and to other nodes, on average
};
// A strategy that itself exchanges less between nodes than inside them (allreduce with two levels) is a hierarchy of
// lmx's own collectives in any case but `hierarchical`: one level after the other.
Transfer transfer(const Sent& sent, int ranks, const LinksConfig& links, Algorithm algorithm);

// The mean over the ranks of the part of the other ranks that are on other nodes of `node_ranks` ranks. At least two
// ranks.
double crossing_part(int64_t ranks, int64_t node_ranks);

}  // namespace lmx::app::plan
