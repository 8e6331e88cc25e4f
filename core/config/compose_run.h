// Composition of one run: its names, the files that it consists of, and the values that later files replace.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// A folder name made from overrides: "model=base,seed=3", sorted, without the keys in `exclude`. A '/' becomes '_'. A
// name of more than 200 bytes is cut and ends in a hash of the whole name.
struct DirnameRules {
  std::vector<std::string> exclude;
  std::string item_separator = ",", key_separator = "=";
};
std::string override_dirname(const std::vector<std::string>& overrides, const DirnameRules& rules = {});

// The values of `${lmx:...}` that are not part of the recipe.
struct RunNames {
  std::string job_name;    // ${lmx:job.name}; if empty, the recipe's file name without .yaml
  int64_t job_number = 0;  // ${lmx:job.num}: its number in the sweep
};
// compose() for one run of a sweep.
Node compose_run(const std::string& recipe_file, const ComposeOptions& options, const RunNames& names);

// A file of a composed recipe, and the path at which its content is merged.
struct MergedFile {
  std::string file, package;    // "recipes/model/lstm.yaml" under "model"; "": the root
  std::vector<Mark> chosen_by;  // overrides of groups, in files or on the command line, that select this file
};
std::vector<MergedFile> merged_files(const std::string& recipe_file, const ComposeOptions& options);

// The value at a path of the composed recipe before a later file or an override replaced it.
struct ReplacedValue {
  std::string value;  // as written, `${...}` included
  Mark mark;
};
// Replaced values by path ("optimizer.lr"), the newest first.
std::map<std::string, std::vector<ReplacedValue>> replaced_values(const std::string& recipe_file,
                                                                  const ComposeOptions& options);

}  // namespace lmx
