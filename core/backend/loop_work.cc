#include "backend/loop_work.h"

#include "backend/cuda.h"
#include "lmx/error.h"
#include "lmx/kernels.h"

namespace lmx {

LoopWork*& loop_work() {
  thread_local LoopWork* work = nullptr;
  return work;
}

namespace detail {

bool describes_work() {
  const LoopWork* work = loop_work();
  return work && work->text;
}

void describe_work(const std::type_info& args, const void* bytes, size_t size) {
  const auto* type = &args;
  loop_work()->text->append(reinterpret_cast<const char*>(&type), sizeof type);
  loop_work()->describe(bytes, size);
}

}  // namespace detail

void replay_steps(Context& ctx, const std::function<void(Context&)>& steps) {
  if (ctx.device.kind == Device::Kind::cpu) return steps(ctx);
  LMX_CHECK(!loop_work(), "a loop within a loop");
  cuda_device(ctx.device).replay(ctx, steps);
}

}  // namespace lmx
