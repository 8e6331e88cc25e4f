// Reads files, with lmx's errors. output_file.h writes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx {

// How a file is read: `bytes` unchanged, `unpacked` decompressed if its first bytes are those of gzip or zstd, whatever
// its name, and `text` also without a byte order mark.
enum class Content { bytes, unpacked, text };

// Reads a file from its start to its end. `-` is standard input.
class InputFile {
 public:
  // UserError if it cannot be opened, or is the pointer that Git LFS leaves in place of a file.
  InputFile(const std::string& path, Content content);
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

// Returns whether the first bytes are those of gzip or zstd. UserError if the file cannot be read.
bool is_compressed(const std::string& path);

// UserError if the file cannot be read.
std::string read_file(const std::string& path, Content content = Content::bytes);
std::string hash_text(std::string_view text);         // XXH3-128, 32 hexadecimal digits
std::string sha256_of_file(const std::string& path);  // 64 hexadecimal digits
std::string sha256_of_text(std::string_view text);

// A lock that one process can hold at a time.

// An exclusive lock of a file, which is created if it is missing. The kernel releases the lock when its holder ends.
class FileLock {
 public:
  // Opens the file without locking it. `prefix` is the beginning of error messages: "[run] ". RunError if the file
  // cannot be written or locked.
  FileLock(const std::string& path, const std::string& prefix);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool take();  // false: another FileLock holds it, or is_held() tests it at this moment
  // Like take(), but waits up to two seconds for another holder to end. A killed process exists until the kernel has
  // ended it, and a child process that it was starting shares its lock until it executes a program.
  bool take_soon();
  void wait();  // waits until it holds the lock

  static bool is_held(const std::string& path);

 private:
  bool lock(int operation);  // false: it would have to wait

  std::string path_, prefix_;
  int descriptor_ = -1;
};

}  // namespace lmx
