#include "lmx/device_comm.h"

#include "backend/cuda.h"
#include "lmx/error.h"

namespace lmx {

DeviceMoves::~DeviceMoves() = default;
Liveness::~Liveness() = default;

namespace {

CudaDevice& cuda_device_of(Device device) {
  LMX_CHECK(device.kind == Device::Kind::cuda, name_of(device), " has no streams");
  return cuda_device(device);
}

}  // namespace

std::string identity_of(Device device) {
  return cuda_device_info(device.index).id;
}

ExchangeStream::ExchangeStream(Device device) : device_(cuda_device_of(device)) {}

void* ExchangeStream::stream() const {
  const OnStream exchange(WorkStream::exchange);
  return device_.stream();
}
void ExchangeStream::begin() {
  const auto computed = device_.point();
  const OnStream exchange(WorkStream::exchange);
  device_.wait_for(*computed);
}
void ExchangeStream::end() {
  const auto exchanged = [&] {
    const OnStream exchange(WorkStream::exchange);
    return device_.point();
  }();
  device_.wait_for(*exchanged);
}
void ExchangeStream::guard_waits(std::function<std::shared_ptr<void>()> begin, std::function<void()> end) {
  device_.guard_waits(begin ? std::make_shared<WaitGuard>(WaitGuard{std::move(begin), std::move(end)}) : nullptr);
}
void ExchangeStream::wait() {
  const OnStream exchange(WorkStream::exchange);
  device_.fence()->wait();
}

}  // namespace lmx
