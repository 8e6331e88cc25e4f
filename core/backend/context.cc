#include "lmx/context.h"

#include <cstring>
#include <utility>

#include "backend/cuda.h"

namespace lmx {
namespace {

thread_local WorkStream stream_of_thread = WorkStream::compute;

}  // namespace

WorkStream work_stream() {
  return stream_of_thread;
}

OnStream::OnStream(WorkStream stream) : before_(std::exchange(stream_of_thread, stream)) {}

OnStream::~OnStream() {
  stream_of_thread = before_;
}

Fence::~Fence() = default;

Tensor Context::upload(const Tensor& host_tensor) const {
  if (host_tensor.device() == device || device.kind == Device::Kind::cpu) return host_tensor;
  Tensor copy = Tensor::empty(allocator, host_tensor.shape(), host_tensor.dtype(), host_tensor.mem_class());
  cuda_device(device).copy(copy, host_tensor);
  return copy;
}

std::shared_ptr<const void> Context::upload_bytes(std::span<const std::byte> bytes) const {
  UploadCache& cache = cuda_device(device).uploads();
  const bool cached = !bytes.empty() && bytes.size() <= UploadCache::kMostBytes;
  std::shared_ptr<const Tensor> copy = cached ? cache.find(*allocator, stream, bytes) : nullptr;
  if (!copy) {
    Tensor values = Tensor::empty(host, {static_cast<int64_t>(bytes.size())}, DType::u8);
    if (!bytes.empty()) std::memcpy(values.raw(), bytes.data(), bytes.size());
    copy = std::make_shared<const Tensor>(upload(values));
    if (cached) cache.add(*allocator, stream, bytes, copy);
  }
  return {copy, copy->raw()};
}

std::pair<Tensor, std::shared_ptr<Fence>> Context::download(const Tensor& t) const {
  Tensor copy = Tensor::empty(host, t.shape(), t.dtype(), t.mem_class());
  CudaDevice& from = cuda_device(t.device());
  from.copy(copy, t);
  return {copy, from.fence()};
}

}  // namespace lmx
