// The devices of all ranks.
#pragma once

#include "lmx/comm.h"

namespace lmx_nccl {

// Collective. UserError, the same on all ranks: NCCL is missing on a rank, some ranks compute on the CPU and others do
// not, or two ranks have the same device.
void require_exchange(lmx::Communicator& host, lmx::Device device);

}  // namespace lmx_nccl
