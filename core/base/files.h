// Small helper classes for POSIX files that throw lmx's errors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx {

// Reads a file from its start to its end. `-` is standard input; a path that ends in .gz is decompressed.
class InputFile {
 public:
  explicit InputFile(const std::string& path, bool decompress = true);  // UserError if it cannot be opened
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  size_t read(char* buffer, size_t bytes);       // fewer than `bytes` only at the end
  size_t read_some(char* buffer, size_t bytes);  // the available bytes; waits only for the first one; 0 at the end
  int64_t disk_position() const;                 // bytes of the file consumed, before decompression

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A new file, written from its start to its end. RunError names the path and the reason (a full disk).
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(const void* bytes, size_t size);
  void write_at(const void* bytes, size_t size, int64_t position);
  void close();  // writes all data to the disk; without close() the content is not guaranteed
  const std::string& path() const { return path_; }

 private:
  void fail(const char* what) const;
  std::string path_;
  int descriptor_ = -1;
};

void write_file(const std::string& path, std::string_view text);  // on disk when it returns; RunError
// UserError if the file cannot be read.
std::string read_file(const std::string& path, bool decompress = false);
void sync_directory(const std::string& path);
std::string hash_text(std::string_view text);         // XXH3-128, 32 hexadecimal digits
std::string sha256_of_file(const std::string& path);  // 64 hexadecimal digits
std::string sha256_of_text(std::string_view text);

// Calls `write` with the name of a temporary file, renames that file to `path`, and syncs the folder. If a step fails,
// the temporary file is removed. RunError names the path that cannot be replaced.
void replace_atomically(const std::string& path, const std::function<void(const std::string& temporary)>& write);
// Writes a whole file or nothing: temporary name, fsync, rename, fsync of the folder. RunError names the path.
void write_file_atomically(const std::string& path, const std::string& content);

// Checks at the start that a file can be written that will be needed after long work. UserError "`what`: cannot write
// `path`: why".
void require_writable(const std::string& what, const std::string& path);

}  // namespace lmx
