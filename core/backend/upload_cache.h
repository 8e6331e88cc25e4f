// Arrays of small size in the memory of a device that are in use. All dropouts and attentions of a pass need the same
// row ids and lengths, so equal arrays are uploaded once.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "lmx/tensor.h"

namespace lmx {

class UploadCache {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 10;  // of an array; the comparison costs less than its upload

  // The array in memory of `allocator` with these bytes that was uploaded by work of `stream`, since work of another
  // stream could read it before it is uploaded; null if none is in use.
  std::shared_ptr<const Tensor> find(const Allocator& allocator, const void* stream, std::span<const std::byte> bytes);
  // No kernel may change `copy`.
  void add(const Allocator& allocator, const void* stream, std::span<const std::byte> bytes,
           const std::shared_ptr<const Tensor>& copy);

 private:
  struct Hash {
    size_t operator()(const std::string& key) const;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const Tensor>, Hash> entries_;  // by key_of()
  size_t checked_ = 64;  // entries at which those that are not in use are removed
};

}  // namespace lmx
