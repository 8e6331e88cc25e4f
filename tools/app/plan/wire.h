// The time of collectives on the links of a machine.
#pragma once

#include <cstdint>
#include <string>

#include "app/plan/machine.h"
#include "sync/unit_queue.h"

namespace lmx::plan {

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

}  // namespace lmx::plan
