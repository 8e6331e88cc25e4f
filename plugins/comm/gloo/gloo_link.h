// Gloo's messages for a group of processes.
#pragma once

#include <gloo/context.h>

#include <functional>
#include <memory>

#include "processes/link.h"

namespace lmx_gloo {

// `context`: the connections of the collectives. `more` makes further connections between all ranks; collective.
std::unique_ptr<lmx::processes::Link> make_link(std::shared_ptr<gloo::Context> context,
                                                lmx::processes::Watchdog& watchdog,
                                                std::function<std::shared_ptr<gloo::Context>()> more);

}  // namespace lmx_gloo
