#include "backend/upload_cache.h"

#include <algorithm>

namespace lmx {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::shared_ptr<const Tensor> UploadCache::find(const Allocator& allocator, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(text_of(bytes));
  // The array of another rank is counted in that rank's memory.
  return found == entries_.end() || found->second.allocator != &allocator ? nullptr : found->second.copy.lock();
}

void UploadCache::add(const Allocator& allocator, std::span<const std::byte> bytes,
                      const std::shared_ptr<const Tensor>& copy) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= checked_) {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.copy.expired(); });
    checked_ = std::max<size_t>(64, 2 * entries_.size());
  }
  entries_.insert_or_assign(text_of(bytes), Entry{&allocator, copy});
}

}  // namespace lmx
