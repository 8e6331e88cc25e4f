// Token shards on disk: a 64-byte header, then the ids as little-endian i32. TokenArray::map reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/output_file.h"

namespace lmx {

// Writes a shard from its start to its end. Without finish() the file has no valid header, and TokenArray::map rejects
// it.
class ShardWriter {
 public:
  explicit ShardWriter(const std::string& path);
  ~ShardWriter();
  void append(std::span<const int32_t> tokens);
  int64_t finish();  // writes all data to the disk; returns the number of tokens

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
