// The recipes that `lmx new` writes for a user's text, with the reason of each choice in a comment beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/prepare/survey.h"

namespace lmx_cli::new_recipe {

// The machine and the time that is given: the choices depend on them and on the text.
struct Budget {
  int64_t cores = 1;
  int64_t memory = 0;    // bytes of the machine
  double minutes = 15;   // that training is to take at most
  double flops() const;  // floating-point operations that training makes in `minutes`, by estimate
};
Budget budget_of_this_machine(double minutes);

// A recipe's text and what `lmx new` prints about it, a line each.
struct Written {
  std::string yaml;
  std::vector<std::string> summary;
};

struct TextRequest {
  std::string name;                // of the recipe's file, without .yaml
  std::vector<std::string> files;  // files, folders or globs, from the root of the file system
  std::string tokens;              // words, chars or bytes; "": as the text is
  Budget budget;
};
// UserError: too little text, a text without enough lines for a validation split.
Written write_text_recipe(const TextRequest& request);

struct PairRequest {
  std::string name, source, target;  // files or globs, from the root of the file system
  std::string source_language, target_language;
  Budget budget;
};
// UserError: too few pairs.
Written write_pair_recipe(const PairRequest& request);

// "1,115,394", "1.1 MB", "about 8 minutes".
std::string grouped(int64_t value);
std::string bytes(int64_t value);
std::string duration(double seconds);
// `share` of `whole` with two significant digits: "2.1 %".
std::string percent(int64_t share, int64_t whole);
// A value as YAML writes it on one line.
std::string inline_list(const std::vector<std::string>& words);
// Lines of a comment, broken at blanks so that none is longer than 110 characters.
std::string comment(const std::string& text, size_t indent = 0);
// Where the recipe's numbers come from, at its top.
std::string heading(const std::string& what, const std::string& name, const std::string& text, const Budget& budget);
// How long `flops` floating-point operations are estimated to take.
double seconds_of(double flops, const Budget& budget);

}  // namespace lmx_cli::new_recipe
