// The context and the device of a rank.
#pragma once

#include <string>

#include "lmx/comm.h"
#include "lmx/context.h"

namespace lmx::comm {

// A context with the number, the memory and the threads of a rank, which computes on the CPU.
Context rank_context(Communicator& comm);

// device_named() for a rank: if ranks are processes, and the name leaves the choice (`cuda`, `auto`), the ranks of a
// host take the devices that they see in turn.
Device device_of_rank(const std::string& name, const std::string& place, const Communicator& comm);

// ctx and ctx.comm compute on that device. Collective. UserError: see compute_on() and DeviceMoves::join().
void compute_with_ranks_on(Context& ctx, Device device);

}  // namespace lmx::comm
