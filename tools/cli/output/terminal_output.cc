#include "cli/output/terminal_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "base/text.h"

namespace lmx_cli {
namespace {

// The number of bytes before a character or a colour that the text may not contain completely.
size_t complete_length(const std::string& text) {
  constexpr size_t kLongestColour = 16, kLongestCharacter = 4;
  const size_t escape = text.rfind('\033');
  if (escape != std::string::npos && text.size() - escape < kLongestColour &&
      text.find_first_not_of("[0123456789;", escape + 1) == std::string::npos)
    return escape;
  for (size_t back = 1; back <= std::min(kLongestCharacter, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return text.size();
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 0;  // 0: it continues a character
    if (length > 0) return back < length ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

TerminalOutput::TerminalOutput() {
  if (isatty(STDOUT_FILENO)) before_ = std::cout.rdbuf(this);
}

TerminalOutput::~TerminalOutput() {
  if (!before_) return;
  write(pending_.size());
  std::cout.rdbuf(before_);
}

TerminalOutput::int_type TerminalOutput::overflow(int_type c) {
  const char byte = traits_type::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

std::streamsize TerminalOutput::xsputn(const char* text, std::streamsize n) {
  pending_.append(text, static_cast<size_t>(n));
  return write(complete_length(pending_)) ? n : 0;
}

int TerminalOutput::sync() {
  return write(pending_.size()) && std::fflush(stdout) == 0 ? 0 : -1;
}

bool TerminalOutput::write(size_t bytes) {
  const std::string shown = lmx::without_controls(pending_.substr(0, bytes));
  pending_.erase(0, bytes);
  return std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
}

}  // namespace lmx_cli
