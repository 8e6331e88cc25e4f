#include "lmx/context.h"

#include <cstring>

#include "backend/cuda.h"

namespace lmx {

Tensor Context::upload(const Tensor& host_tensor) const {
  return host_tensor.device() == device ? host_tensor : copy_to(host_tensor, allocator);
}

std::shared_ptr<const void> Context::upload_bytes(std::span<const std::byte> bytes) const {
  Tensor values = Tensor::empty(host, {static_cast<int64_t>(bytes.size())}, DType::u8);
  if (!bytes.empty()) std::memcpy(values.raw(), bytes.data(), bytes.size());
  const auto copy = std::make_shared<const Tensor>(copy_to(values, allocator));
  return {copy, copy->raw()};
}

Tensor Context::download(const Tensor& t) const {
  return t.device().kind == Device::Kind::cpu ? t : copy_to(t, host);
}

}  // namespace lmx
