// Decompresses gzip and zstd while a file is read.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lmx {

class Unpacker {
 public:
  // Reads the next compressed bytes: at least one, or 0 at the end.
  using Source = std::function<size_t(char* buffer, size_t bytes)>;
  virtual ~Unpacker() = default;
  // Returns some decompressed bytes, at least one; 0 at the end. UserError: the file is damaged or truncated.
  virtual size_t read_some(char* buffer, size_t bytes) = 0;

  // Returns whether `first` may be the start of a compressed file; `whole`: whether it is long enough to be one.
  static bool may_begin(std::string_view first);
  static bool whole(std::string_view first);
  // `first`: the first bytes of the file, which `source` returns again; `path`: for messages. REQUIRES: whole(first).
  static std::unique_ptr<Unpacker> make(std::string_view first, Source source, const std::string& path);
};

}  // namespace lmx
