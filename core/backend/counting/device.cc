#include "backend/counting/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"
#include "tensor/caching_allocator.h"

namespace lmx {
namespace {

constexpr int64_t kMostKernels = 4'000'000;

// Addresses without memory. They can be read (zeros) and written, because code may do so outside of kernels: it then
// takes its time and memory, and the count stays right.
class Addresses {
 public:
  Addresses() {
    void* first = MAP_FAILED;
    for (size_ = kMost; first == MAP_FAILED && size_ >= kLeast; size_ /= 4)  // ulimit -v may allow less
      first = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED)
      throw RunError(str("[memory] this system has no addresses for a count (ulimit -v): ", std::strerror(errno)));
    size_ *= 4;
    first_ = static_cast<std::byte*>(first);
  }
  ~Addresses() { munmap(first_, size_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  // Null: no addresses are left.
  void* take(size_t size) {
    const size_t pages = (size + kPage - 1) / kPage * kPage, left = size_ - used_;
    const size_t most = pages < kSmall ? left : pages < kLarge ? left - std::min(left, size_ / 4) : left / 2;
    if (pages <= most) return first_ + std::exchange(used_, used_ + pages);
    if (pages < kSmall) return nullptr;
    // A larger block is only named, never accessed, and addresses that no processor has are enough for it.
    return reinterpret_cast<void*>(kNowhere + std::exchange(nowhere_, nowhere_ + pages));
  }

 private:
  static constexpr size_t kMost = size_t{32} << 40, kLeast = size_t{16} << 20, kPage = 4096;
  // The last quarter of the addresses is for small blocks, such as losses, which code reads outside of kernels.
  static constexpr size_t kSmall = size_t{1} << 20, kLarge = size_t{1} << 30;
  static constexpr uintptr_t kNowhere = uintptr_t{1} << 57;
  std::byte* first_ = nullptr;
  size_t size_ = 0, used_ = 0, nowhere_ = 0;
};

// The pool of the device. It reuses blocks as the allocator of a real device does.
class CountedMemory final : public CachingAllocator {
 public:
  CountedMemory(Device device, CountingDevice& counter) : device_(device), counter_(counter) {}
  ~CountedMemory() override { trim(); }
  Device device() const override { return device_; }
  void zero(void*, size_t bytes) const override { counter_.transfer(&DeviceCounts::fills, bytes); }
  void copy(void*, const void*, size_t bytes) const override { counter_.transfer(&DeviceCounts::copies, bytes); }

 protected:
  size_t queue() const override { return device_.kind == Device::Kind::cpu ? 0 : static_cast<size_t>(work_stream()); }
  void* take(size_t size) override { return addresses_.take(size); }
  void give_back(void*, size_t) override {}
  bool lowest_first() const override { return device_.kind != Device::Kind::cpu; }
  void requested(size_t bytes, MemClass c) const override {
    if (StepRecord* record = counter_.record()) record->allocated(c, static_cast<int64_t>(bytes));
  }

 private:
  Device device_;
  CountingDevice& counter_;
  Addresses addresses_;
};

// Memory of the host that is real, and that counts as memory of `charged`: on a CPU, both are the same.
class ChargedHost final : public Allocator {
 public:
  explicit ChargedHost(std::shared_ptr<Allocator> charged) : memory_(Allocator::cpu()), charged_(std::move(charged)) {}
  Device device() const override { return {}; }
  void* allocate(size_t bytes, MemClass c) override {
    void* block = memory_->allocate(bytes, c);
    charge(bytes, c);
    return block;
  }
  void release(void* block, size_t bytes, MemClass c) noexcept override {
    memory_->release(block, bytes, c);
    discharge(bytes, c);
  }
  void charge(size_t bytes, MemClass c) override { charged_->charge(bytes, c); }
  void discharge(size_t bytes, MemClass c) noexcept override { charged_->discharge(bytes, c); }
  MemoryStats stats() const override { return charged_->stats(); }
  void reset_peak() override { charged_->reset_peak(); }
  void trim() override { memory_->trim(); }

 private:
  std::shared_ptr<Allocator> memory_, charged_;
};

class Done final : public Fence {
 public:
  void wait() override {}
};

class Reached final : public StreamPoint {
 public:
  bool reached() const override { return true; }
  double seconds_since(const StreamPoint&) const override { return 0; }
};

struct Devices {
  std::mutex mutex;
  std::map<int, CountingDevice*> by_index;
  int next = 0;
};

// The counting devices that exist, so that a Device can name one as it names a GPU.
Devices& devices() {
  static Devices all;
  return all;
}

}  // namespace

CountingDevice::CountingDevice(Device device) : device_(device) {
  memory_ = std::make_shared<CountedMemory>(device, *this);
  pinned_ = Allocator::cpu();
}

std::shared_ptr<CountingDevice> CountingDevice::make(Device::Kind kind) {
  const std::lock_guard lock(devices().mutex);
  const int index = devices().next++;
  std::shared_ptr<CountingDevice> made(new CountingDevice({kind, index, true}));
  devices().by_index[index] = made.get();
  return made;
}

CountingDevice::~CountingDevice() {
  const std::lock_guard lock(devices().mutex);
  devices().by_index.erase(device_.index);
}

CountingDevice& counting_device(int index) {
  const std::lock_guard lock(devices().mutex);
  const auto found = devices().by_index.find(index);
  LMX_CHECK(found != devices().by_index.end(), "no counting device ", index);
  return *found->second;
}

void CountingDevice::place(Context& ctx) {
  ctx.device = device_;
  ctx.allocator = Allocator::counting(memory_);
  ctx.host =
      device_.kind == Device::Kind::cpu ? std::make_shared<ChargedHost>(ctx.allocator) : Allocator::counting(pinned_);
  ctx.stream = device_.kind == Device::Kind::cpu ? nullptr : stream();
}

void* CountingDevice::stream() {
  return reinterpret_cast<void*>(1 + static_cast<size_t>(work_stream()));  // is compared, never used
}

std::shared_ptr<const StreamPoint> CountingDevice::point() {
  return std::make_shared<Reached>();
}

std::shared_ptr<Fence> CountingDevice::fence() {
  return std::make_shared<Done>();
}

void CountingDevice::copy(Tensor& to, const Tensor& from) {
  const bool up = !from.device().counts, down = !to.device().counts;
  if (down) std::memset(to.raw(), 0, static_cast<size_t>(to.bytes()));
  transfer(up     ? &DeviceCounts::uploads
           : down ? &DeviceCounts::downloads
                  : &DeviceCounts::copies,
           static_cast<size_t>(from.bytes()));
}

void CountingDevice::replay(Context& ctx, const std::function<void(Context&)>& steps) {
  if (record_) record_->begin_loop();
  steps(ctx);
  if (record_) record_->end_loop();
}

void CountingDevice::transfer(DeviceCounts::Moved DeviceCounts::*moved, size_t bytes) {
  count_moved(moved, static_cast<int64_t>(bytes));
  if (record_) record_->transfer();
}

void CountingDevice::count(const char* op) {
  count_launch(op);
  if (record_) record_->kernel();
  if (++kernels_ > kMostKernels)
    throw TooLargeStep(
        str("[memory] a step of this recipe has more than ", kMostKernels / 1'000'000,
            " million kernels: too many to be counted; a size of the model or of the batch is too large"));
}

StepRecord* step_record(const Context& ctx) {
  return ctx.device.counts ? counting_device(ctx.device.index).record() : nullptr;
}

void count_product(const Context& ctx, int64_t m, int64_t n, int64_t k, int64_t times) {
  if (StepRecord* record = step_record(ctx)) record->product({.m = m, .n = n, .k = k, .times = times, .within = true});
}

void detail::count_kernel(const Context& ctx, const char* op) {
  counting_device(ctx.device.index).count(op);
}

}  // namespace lmx
