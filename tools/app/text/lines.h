// Text files and standard input, line by line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"

namespace lmx::data {

class LineReader {
 public:
  explicit LineReader(const std::string& path);  // `-`: standard input; .gz is decompressed
  // The next line without its end (\n or \r\n), nullopt behind the last. UserError names the line and byte that is no
  // UTF-8. Waits for no more than a line of a terminal or pipe.
  std::optional<std::string> next();

 private:
  std::string name_;
  InputFile file_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  int64_t lines_ = 0, offset_ = 0;  // handed out so far; bytes of them
};

}  // namespace lmx::data
