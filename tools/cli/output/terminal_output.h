// What commands show on a terminal: their output, the line that an error message refers to, and commands to run next.
#pragma once

#include <memory>
#include <streambuf>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::app::cli {

// During its lifetime, what std::cout prints on a terminal contains no control or invisible characters of foreign
// texts, such as a source line of a recipe or the name of a file. A file or a pipe gets the bytes unchanged.
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

// Shows the line that an error message refers to.

// Returns `message` with excerpts. Below each line of the message that begins with FILE:LINE:COLUMN or "override '...':
// column N", it adds that line of the file, or the override, and a caret under the column. Other messages are returned
// unchanged.
std::string with_excerpts(const std::string& message);

// Commands that a recipe proposes for the time after its run: `provenance.next`.

class NextLines {
 public:
  // `file`: the recipe's file. Lines of another file that the recipe builds on are left out, because they belong to
  // the recipe of that file. UserError: `provenance.next` of `composed` is not a list of texts.
  NextLines(const Node& composed, const std::string& file);

  // Values of the words that differ from run to run.
  struct Words {
    std::string command;  // `lmx` as the first word: the command with which the user calls lmx
    std::string recipe;   // RECIPE: the recipe, quoted for a shell, with the options that it needs
    std::string run;      // RUN: the folder of the run, quoted for a shell
  };
  // Returns the lines with these words replaced, and FOLDER/NAME by the path of a file beside the recipe. A line that
  // names such a file is left out if the file does not exist.
  std::vector<std::string> lines(const Words& words) const;

 private:
  std::string folder_;
  std::vector<std::string> lines_;
};

}  // namespace lmx::app::cli
