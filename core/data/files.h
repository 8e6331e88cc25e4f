// Small helpers over POSIX files whose errors are lmx's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/api.h"

namespace lmx::data {

// Reads a file front to back; `-` is standard input; a path that ends in .gz is decompressed.
class LMX_API InputFile {
 public:
  explicit InputFile(const std::string& path, bool decompress = true);  // UserError when it cannot be opened
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  size_t read(char* buffer, size_t bytes);  // fewer than `bytes` only at the end
  size_t read_some(char* buffer, size_t bytes);  // what is there, waiting for the first byte only; 0 at the end
  int64_t disk_position() const;            // bytes of the file consumed, before decompression

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A new file, written front to back. RunError names the path and the reason (a full disk).
class LMX_API OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(const void* bytes, size_t size);
  void write_at(const void* bytes, size_t size, int64_t position);
  void close();  // flushed to the disk; without it the file is as good as not written
  const std::string& path() const { return path_; }

 private:
  void fail(const char* what) const;
  std::string path_;
  int descriptor_ = -1;
};

LMX_API void write_file(const std::string& path, std::string_view text);  // durable, RunError
// UserError when it cannot be read.
LMX_API std::string read_file(const std::string& path, bool decompress = false);
LMX_API void sync_directory(const std::string& path);
LMX_API std::string hash_text(std::string_view text);         // XXH3-128, 32 hexadecimal digits
LMX_API std::string sha256_of_file(const std::string& path);  // 64 hexadecimal digits
LMX_API std::string sha256_of_text(std::string_view text);

// Where prepared data is kept: LMX_CACHE_DIR, else $XDG_CACHE_HOME/lmx, else ~/.cache/lmx.
LMX_API std::string default_cache_directory();
// Folders that may hold corpora: those of LMX_DATA_DIR (':' between them), else $XDG_DATA_HOME/lmx or
// ~/.local/share/lmx.
LMX_API std::vector<std::string> data_directories();

}  // namespace lmx::data
