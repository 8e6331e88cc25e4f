// A device whose tensors have sizes but no values: a step on it costs no memory and almost no time, and shows the
// memory and the exchange of the same step on a CPU or a GPU. Ids of words are in the host's memory and
// stay real, so that everything that depends on them is real as well; what the host reads from the device is zero.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/counting/record.h"
#include "backend/cuda.h"
#include "lmx/error.h"

namespace lmx {

// A step has more kernels, or exchanges more rows, than may be counted.
class TooLargeStep : public UserError {
 public:
  using UserError::UserError;
};

class CountingDevice final : public CudaDevice {
 public:
  static std::shared_ptr<CountingDevice> make(Device::Kind kind);  // counts what a device of that kind does
  ~CountingDevice() override;
  CountingDevice(const CountingDevice&) = delete;
  CountingDevice& operator=(const CountingDevice&) = delete;

  Device device() const { return device_; }
  // `ctx` computes here; its memory counts separately. On a CPU its memory of the host counts there, too.
  void place(Context& ctx);
  void count(const char* op);                                             // TooLargeStep: after some millions
  void transfer(DeviceCounts::Moved DeviceCounts::*moved, size_t bytes);  // counts a copy or a fill
  // From now on passes are recorded; null: none. REQUIRES: one thread computes on this device while there is a record.
  void keep(StepRecord* record) { record_ = record; }
  StepRecord* record() const { return record_; }

  std::shared_ptr<Allocator> memory() override { return memory_; }
  std::shared_ptr<Allocator> pinned() override { return pinned_; }
  int capability() const override { return 900; }
  void* stream() override;
  std::shared_ptr<const StreamPoint> point() override;
  void wait_for(const StreamPoint&) override {}
  std::shared_ptr<void> share(const Tensor&, WorkStream) override { return {}; }
  void select() override {}
  void copy(Tensor& to, const Tensor& from) override;
  std::shared_ptr<Fence> fence() override;
  std::unique_ptr<DeviceClock> clock() override { return nullptr; }
  void replay(Context& ctx, const std::function<void(Context&)>& steps) override;
  GraphMemory graph_memory() const override { return {}; }

 private:
  explicit CountingDevice(Device device);

  Device device_;
  std::shared_ptr<Allocator> memory_, pinned_;
  std::atomic<int64_t> kernels_ = 0;  // how many were counted
  StepRecord* record_ = nullptr;
};

// The record of a device while this exists.
class Recording {
 public:
  explicit Recording(CountingDevice& device) : device_(device) { device.keep(&record_); }
  ~Recording() { device_.keep(nullptr); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  StepRecord& record() { return record_; }

 private:
  CountingDevice& device_;
  StepRecord record_;
};

// The counting device with that index. InternalError: it does not exist any more.
CountingDevice& counting_device(int index);
// The record of the device of `ctx`; null: it does not count, or keeps none.
StepRecord* step_record(const Context& ctx);

}  // namespace lmx
