// Gloo's messages for a group of processes.
#pragma once

#include <gloo/context.h>

#include <functional>
#include <memory>

#include "peer_memory.h"
#include "processes/link.h"

namespace lmx_gloo {

// `context`: the connections of the collectives. `more` makes further connections between all ranks; collective.
std::unique_ptr<lmx::processes::Link> make_link(std::shared_ptr<gloo::Context> context,
                                                std::unique_ptr<PeerMemory> memory, lmx::processes::Watchdog& watchdog,
                                                std::function<std::shared_ptr<gloo::Context>()> more);

}  // namespace lmx_gloo
