// Reads files, with lmx's errors. output_file.h writes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx {

// How a file is read: `bytes` unchanged, `unpacked` decompressed if its path ends in .gz, and `text` also without a
// byte order mark.
enum class Content { bytes, unpacked, text };

// Reads a file from its start to its end. `-` is standard input.
class InputFile {
 public:
  InputFile(const std::string& path, Content content);  // UserError if it cannot be opened
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  size_t read(char* buffer, size_t bytes);       // fewer than `bytes` only at the end
  size_t read_some(char* buffer, size_t bytes);  // the available bytes; waits only for the first one; 0 at the end
  int64_t disk_position() const;                 // bytes of the file consumed, before decompression
  int64_t skipped() const;                       // bytes of the byte order mark, known after the first read

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// UserError if the file cannot be read.
std::string read_file(const std::string& path, Content content = Content::bytes);
std::string hash_text(std::string_view text);         // XXH3-128, 32 hexadecimal digits
std::string sha256_of_file(const std::string& path);  // 64 hexadecimal digits
std::string sha256_of_text(std::string_view text);

}  // namespace lmx
