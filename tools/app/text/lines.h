// Reads text files and standard input line by line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"

namespace lmx {

using Lines = std::vector<std::string>;  // one sentence per element, UTF-8, without line ends

// Returns the lines of a file (`-`: standard input; gzip and zstd are decompressed). UserError: invalid UTF-8; the
// message names the line and byte.
Lines read_lines(const std::string& path);

namespace data {

// A small compressed file can contain gigabytes without a line end, which no memory can hold.
inline constexpr size_t kLongestLine = 64 << 20;
[[noreturn]] void refuse_long_line(const std::string& name, int64_t line);  // UserError: name:line: ...

class LineReader {
 public:
  explicit LineReader(const std::string& path);  // `-`: standard input; gzip and zstd are decompressed
  // Returns the next line without its end (\n or \r\n); nullopt after the last one. Does not wait for more than a line
  // of a terminal or pipe. UserError: invalid UTF-8; the message names the line and byte.
  std::optional<std::string> next();

 private:
  std::string name_;
  InputFile file_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  int64_t lines_ = 0, offset_ = 0;  // returned so far; their bytes
};

}  // namespace data
}  // namespace lmx
