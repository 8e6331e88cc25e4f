// Lines of a file or of standard input, some at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "app/text/bleu.h"
#include "app/text/lines.h"

namespace lmx::train {

// Hands out up to `most` lines at a time. The error of a line is thrown once the lines before it have been handed out.
// The lines of a terminal come one by one. UserError: invalid UTF-8, a line of more than kMostBytes bytes, which no
// model here would take and whose words alone would take minutes to find.
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
