#include "backend/cuda.h"
#include "backend/loop_work.h"
#include "lmx/error.h"

namespace lmx {
namespace {

DeviceCounts::Moved difference(const DeviceCounts::Moved& now, const DeviceCounts::Moved& before) {
  return {now.times - before.times, now.bytes - before.bytes};
}

}  // namespace

int64_t DeviceCounts::all_launches() const {
  int64_t all = 0;
  for (const auto& [name, times] : launches) all += times;
  return all;
}

DeviceCounts DeviceCounts::since(const DeviceCounts& before) const {
  DeviceCounts counts{{},
                      difference(uploads, before.uploads),
                      difference(downloads, before.downloads),
                      difference(copies, before.copies),
                      difference(fills, before.fills),
                      waits - before.waits};
  for (const auto& [name, times] : launches) {
    const auto earlier = before.launches.find(name);
    const int64_t added = times - (earlier == before.launches.end() ? 0 : earlier->second);
    if (added > 0) counts.launches.emplace(name, added);
  }
  return counts;
}

DeviceCounts CudaDevice::counts() const {
  const std::lock_guard lock(counting_);
  return counts_;
}

// The kernels and copies of a captured loop are part of a graph, which counts as one launch.
void CudaDevice::count_launch(std::string_view name) {
  if (loop_work()) return;
  const std::lock_guard lock(counting_);
  const auto found = counts_.launches.find(name);
  found == counts_.launches.end() ? (void)counts_.launches.emplace(name, 1) : (void)++found->second;
}

void CudaDevice::count_moved(DeviceCounts::Moved DeviceCounts::*moved, int64_t bytes) {
  if (loop_work()) return;
  const std::lock_guard lock(counting_);
  ++(counts_.*moved).times;
  (counts_.*moved).bytes += bytes;
}

void CudaDevice::count_wait() {
  const std::lock_guard lock(counting_);
  ++counts_.waits;
}

void CudaDevice::guard_waits(std::shared_ptr<const WaitGuard> guard) {
  const std::lock_guard lock(counting_);
  guard_.swap(guard);
}

std::shared_ptr<const WaitGuard> CudaDevice::wait_guard() const {
  const std::lock_guard lock(counting_);
  return guard_;
}

namespace cuda {

int begin_launch(const Context& ctx, const char* op) {
  const LoopWork* loop = loop_work();
  LMX_CHECK(!loop || !loop->stream || loop->stream == ctx.stream, op,
            " in a loop that is replayed uses another context than the loop's: its work would be done once");
  CudaDevice& device = cuda_device(ctx.device);
  LMX_CHECK(device.stream() == ctx.stream || loop, op,
            " uses the context of a thread that enqueues on another stream (use_stream_of_thread())");
  device.count_launch(op);
  return loop && loop->stream ? 0 : device.capability();
}

void launch_failed(const Context& ctx, const char* op, const char* error) {
  // If the device has failed, a fence says so in the words of every other failed call. While a loop is captured, which
  // allows no fence, the code that captures asks.
  if (!loop_work()) cuda_device(ctx.device).fence()->wait();
  throw RunError(str("[", op, "] launch failed: ", error));
}

}  // namespace cuda
}  // namespace lmx
