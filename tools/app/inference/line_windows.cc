#include "app/inference/line_windows.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "lmx/error.h"

namespace lmx::train {

Windows::Windows(const std::string& path, int64_t most)
    : path_(path), reader_(path), most_(path == "-" && isatty(STDIN_FILENO) ? 1 : most) {}

Lines Windows::next() {
  if (wrong_) std::rethrow_exception(wrong_);
  Lines lines;
  try {
    while (static_cast<int64_t>(lines.size()) < most_) {
      std::optional<std::string> line = reader_.next();
      if (!line) break;
      ++lines_;
      if (static_cast<int64_t>(line->size()) > kMostBytes)
        throw UserError(str("[text] ", path_ == "-" ? "standard input" : path_, ":", lines_, ": this line has ",
                            line->size(), " bytes, more than ", kMostBytes, "; give a sentence a line"));
      lines.push_back(*std::move(line));
    }
  } catch (const Error&) {
    wrong_ = std::current_exception();
    if (lines.empty()) throw;
  }
  return lines;
}

}  // namespace lmx::train
