#include "lmx/context.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda.h"
#include "backend/loop_work.h"
#include "lmx/error.h"
#include "lmx/kernels.h"

namespace lmx {
namespace {

// The array of another rank is counted in that rank's memory, so each rank has its own.
std::string key_of(const Allocator& allocator, const void* stream, std::span<const std::byte> bytes) {
  const void* const addresses[] = {&allocator, stream};
  std::string key(reinterpret_cast<const char*>(addresses), sizeof addresses);
  return key.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

// std::hash took a fifth of the host's own time of a step of the word model.
size_t UploadCache::Hash::operator()(const std::string& key) const {
  return XXH3_64bits(key.data(), key.size());
}

std::shared_ptr<const Tensor> UploadCache::find(const Allocator& allocator, const void* stream,
                                                std::span<const std::byte> bytes) {
  const std::string key = key_of(allocator, stream, bytes);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.lock();
}

void UploadCache::add(const Allocator& allocator, const void* stream, std::span<const std::byte> bytes,
                      const std::shared_ptr<const Tensor>& copy) {
  std::string key = key_of(allocator, stream, bytes);
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= checked_) {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
    checked_ = std::max<size_t>(64, 2 * entries_.size());
  }
  entries_.insert_or_assign(std::move(key), copy);
}

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
