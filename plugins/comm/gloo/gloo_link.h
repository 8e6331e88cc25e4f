// Gloo's messages for a group of processes: heartbeats, collectives, and messages between two ranks.
#pragma once

#include <gloo/context.h>

#include <functional>
#include <memory>
#include <vector>

#include "peer_memory.h"
#include "processes/link.h"
#include "waits.h"

namespace lmx_gloo {

// Heartbeats. `context`: connections for heartbeats alone.
std::unique_ptr<lmx::processes::BeatLink> make_beats(std::shared_ptr<gloo::Context> context);

// `context`: the connections of the collectives. `more` makes further connections between all ranks; collective.
std::unique_ptr<lmx::processes::Link> make_link(std::shared_ptr<gloo::Context> context,
                                                std::unique_ptr<PeerMemory> memory, lmx::processes::Watchdog& watchdog,
                                                std::function<std::shared_ptr<gloo::Context>()> more);

// Messages between two processes, beside the collectives. `context`: connections for these messages alone. `waits` must
// live longer than the connections.
std::vector<std::unique_ptr<lmx::Connection>> make_connections(int n, std::shared_ptr<gloo::Context> context,
                                                               Waits& waits);

}  // namespace lmx_gloo
