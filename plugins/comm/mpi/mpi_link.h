// MPI's messages for a group of processes.
#pragma once

#include <mpi.h>

#include <memory>

#include "processes/link.h"

namespace lmx_mpi {

// Heartbeats over a separate link. Collective.
std::unique_ptr<lmx::processes::BeatLink> make_beats();
// Collective.
std::unique_ptr<lmx::processes::Link> make_link(lmx::processes::Watchdog& watchdog);

}  // namespace lmx_mpi
