#include "comm/rank_device.h"

#include "backend/cuda.h"
#include "lmx/device_comm.h"
#include "lmx/launch.h"

namespace lmx::comm {

Context rank_context(Communicator& comm) {
  Context ctx;
  ctx.rank = comm.rank();
  ctx.ranks = comm.size();
  ctx.allocator = ctx.host = comm.allocator();
  ctx.comm = &comm;
  ctx.threads = comm.threads();
  return ctx;
}

Device device_of_rank(const std::string& name, const std::string& place, const Communicator& comm) {
  Device device = device_named(name, place);
  const bool chosen = name != "cuda" && name != "auto";
  if (device.kind == Device::Kind::cuda && !chosen && comm.size() > 1 && !comm.shares_memory())
    device.index = detect_launch().local_rank % load_cuda();
  return device;
}

void compute_with_ranks_on(Context& ctx, Device device) {
  compute_on(ctx, device);
  if (device != Device{}) ctx.comm->use_device(ctx.allocator, ctx.host);
  if (auto* const moves = dynamic_cast<DeviceMoves*>(ctx.comm); moves && ctx.comm->size() > 1) moves->join(device);
}

}  // namespace lmx::comm
