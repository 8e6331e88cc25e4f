// The keys that the groups mpi and gloo share: comm: {name: mpi, ...}
#pragma once

#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::processes {

struct ProcessConfig {
  int64_t ranks = 0, ranks_per_node = 0;
  std::string reduce = "ordered";
  double heartbeat_s = 1, timeout_s = 30, lag_s = 300;
  void fields(Fields& f) {
    f.field("ranks", ranks,
            "number of processes; lmx starts them if no launcher (mpirun, srun, torchrun) has started this one; 0: the "
            "number of the launcher",
            kSizeOrNone);
    f.field(
        "ranks_per_node", ranks_per_node,
        "consecutive ranks that count as one node, for sync levels and for the bytes between nodes; 0: the ranks of "
        "a host",
        kSizeOrNone);
    f.choice("reduce", reduce, {"ordered", "native"},
             "addition in an all-reduce: by lmx in rank order, with the same bits in every group, or by the message "
             "library in any order");
    f.field("heartbeat_s", heartbeat_s, "seconds from one sign of life of a rank to the next", {0.01, 3600, false});
    f.field(
        "timeout_s", timeout_s,
        "seconds without a sign of life after which a rank counts as lost, which ends the run; at least 3 heartbeats",
        {0.1, 1e6, false});
    f.field("lag_s", lag_s,
            "seconds that ranks wait, while nothing of theirs moves, for one that lives but does not come, and at the "
            "start for one that has not joined, before the run ends; 0: for ever",
            {0, 1e7, false});
  }
  void check(const std::string& where) const {
    if (timeout_s < 3 * heartbeat_s)
      throw UserError(
          str(where, ": timeout_s ", timeout_s, " with heartbeat_s ", heartbeat_s,
              ": a rank would count as lost before it can show that it lives; give timeout_s at least 3 heartbeats"));
  }
  Traits traits() const {
    if (reduce == "native") return {{trait::kUnorderedSums, "reduce"}};
    return {};
  }
};

}  // namespace lmx::processes
