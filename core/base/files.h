// Small helpers over POSIX files whose errors are lmx's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx {

// Reads a file front to back; `-` is standard input; a path that ends in .gz is decompressed.
class InputFile {
 public:
  explicit InputFile(const std::string& path, bool decompress = true);  // UserError when it cannot be opened
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  size_t read(char* buffer, size_t bytes);       // fewer than `bytes` only at the end
  size_t read_some(char* buffer, size_t bytes);  // what is there, waiting for the first byte only; 0 at the end
  int64_t disk_position() const;                 // bytes of the file consumed, before decompression

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A new file, written front to back. RunError names the path and the reason (a full disk).
class OutputFile {
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

void write_file(const std::string& path, std::string_view text);  // durable, RunError
// UserError when it cannot be read.
std::string read_file(const std::string& path, bool decompress = false);
void sync_directory(const std::string& path);
std::string hash_text(std::string_view text);         // XXH3-128, 32 hexadecimal digits
std::string sha256_of_file(const std::string& path);  // 64 hexadecimal digits
std::string sha256_of_text(std::string_view text);

// `write` fills the temporary file that it is given the name of; that file then takes the place of `path`, and the
// folder is synced. Nothing is left behind where either fails; RunError names the path that cannot be replaced.
void replace_atomically(const std::string& path, const std::function<void(const std::string& temporary)>& write);
// Writes a whole file or nothing: temporary name, fsync, rename, fsync of the folder. RunError names the path.
void write_file_atomically(const std::string& path, const std::string& content);

// For a file that is written behind long work. UserError "`what`: cannot write `path`: why".
void require_writable(const std::string& what, const std::string& path);

}  // namespace lmx
