// Messages between two processes, beside the collectives.
#pragma once

#include <gloo/context.h>

#include <memory>
#include <vector>

#include "lmx/comm.h"
#include "waits.h"

namespace lmx_gloo {

// `context`: connections for these messages alone. `waits` must live longer than the connections.
std::vector<std::unique_ptr<lmx::Connection>> make_connections(int n, std::shared_ptr<gloo::Context> context,
                                                               Waits& waits);

}  // namespace lmx_gloo
