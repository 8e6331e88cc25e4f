// Heartbeats over Gloo.
#pragma once

#include <gloo/context.h>

#include <memory>

#include "processes/link.h"

namespace lmx_gloo {

// `context`: connections for heartbeats alone.
std::unique_ptr<lmx::processes::BeatLink> make_beats(std::shared_ptr<gloo::Context> context);

}  // namespace lmx_gloo
