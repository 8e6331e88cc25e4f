// Standard output on a terminal.
#pragma once

#include <memory>
#include <streambuf>
#include <string>

namespace lmx_cli {

// During its lifetime, what std::cout prints on a terminal contains no control characters of foreign texts, such as a
// source line of a recipe or the name of a file. A file or a pipe gets the bytes unchanged.
class TerminalOutput final : public std::streambuf {
 public:
  TerminalOutput();
  ~TerminalOutput() override;
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

 private:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize n) override;
  int sync() override;
  bool write(size_t bytes);  // of pending_

  std::streambuf* before_ = nullptr;  // null: standard output is no terminal
  std::string pending_;               // the start of a character or of a colour whose end has not been printed yet
};

}  // namespace lmx_cli
