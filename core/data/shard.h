// Token shards on disk: a 64-byte header, then the ids as little-endian i32. TokenArray::map reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/files.h"

namespace lmx::data {

// Writes a shard front to back; without finish() the file has no valid header and is refused by TokenArray::map.
class ShardWriter {
 public:
  explicit ShardWriter(const std::string& path);
  ~ShardWriter();
  void append(std::span<const int32_t> tokens);
  int64_t finish();  // the number of tokens; flushed to the disk

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx::data
