// Commands that a recipe proposes for the time after its run: `provenance.next`.
#pragma once

#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx_cli {

class NextLines {
 public:
  // `file`: the recipe's file. Lines of another file that the recipe builds on are left out, because they belong to
  // the recipe of that file. UserError: `provenance.next` of `composed` is not a list of texts.
  NextLines(const lmx::Node& composed, const std::string& file);

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

}  // namespace lmx_cli
