// Writes the recipes of `lmx new` for a user's text. A comment beside each choice gives its reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/datasets/survey.h"

namespace lmx::app::new_recipe {

// The machine and the available time. The choices depend on them and on the text.
struct Budget {
  int64_t cores = 1;
  int64_t memory = 0;    // bytes of the machine
  double minutes = 15;   // maximum training time
  double flops() const;  // estimated floating-point operations of training in `minutes`
};
Budget budget_of_this_machine(double minutes);

// A recipe's text and the lines that `lmx new` prints about it.
struct Written {
  std::string yaml;
  std::vector<std::string> summary;
};

struct TextRequest {
  std::string name;                // of the recipe's file, without .yaml
  std::vector<std::string> files;  // absolute paths of files or folders, or absolute globs
  std::string field;               // that holds the text of .csv and .jsonl files; "": the files are plain text
  std::string tokens;              // words, chars, bytes or subwords; "": chosen from the text
  Budget budget;
  const char* record() const { return field.empty() ? "line" : "document"; }
};
// UserError: too little text, a text without enough lines for a validation split.
Written write_text_recipe(const TextRequest& request);

struct PairRequest {
  std::string name, source, target;  // files or globs: absolute paths
  std::string source_language, target_language;
  Budget budget;
};
// UserError: too few pairs.
Written write_pair_recipe(const PairRequest& request);

// "3 to 20 minutes": the speed of a core is not known exactly.
std::string duration(double seconds);
// Formats `share` of `whole` with two significant digits: "2.1 %".
std::string percent(int64_t share, int64_t whole);
// Formats a list as YAML on one line.
std::string inline_list(const std::vector<std::string>& words);
// Returns lines of a comment, broken at spaces so that none is longer than 110 characters.
std::string comment(const std::string& text, size_t indent = 0);
// Returns the comment at the top of a recipe, which explains the origin of its numbers.
std::string heading(const std::string& what, const std::string& name, const std::string& text, const Budget& budget);
// Estimates the seconds that `flops` floating-point operations take.
double seconds_of(double flops, const Budget& budget);

}  // namespace lmx::app::new_recipe
