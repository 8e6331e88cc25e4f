// Reads the lines of a file or of standard input in windows.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "app/scores/bleu.h"
#include "app/text/lines.h"

namespace lmx::train {

// Returns up to `most` lines at a time, from a terminal one line at a time. The error of a line is thrown after the
// lines before it have been returned. UserError: invalid UTF-8, or a line of more than kMostBytes bytes. No model can
// use such a line, and splitting it into words would take minutes.
class Windows {
 public:
  Windows(const std::string& path, int64_t most);
  Lines next();  // empty at the end

  static constexpr int64_t kMostBytes = 1 << 20;

 private:
  std::string path_;
  data::LineReader reader_;
  int64_t most_, lines_ = 0;
  std::exception_ptr wrong_;
};

}  // namespace lmx::train
