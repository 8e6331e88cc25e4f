#include "app/inference/text_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lmx/error.h"

namespace lmx::train {

TextOutput::TextOutput(const std::string& path) {
  if (path != "-") file_ = std::make_unique<OutputFile>(path);
}

void TextOutput::write(std::string_view text) {
  if (file_) return file_->write(text.data(), text.size());
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw RunError(str("[write] cannot write to standard output: ", std::strerror(errno)));
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void TextOutput::close() {
  if (file_) file_->close();
}

}  // namespace lmx::train
