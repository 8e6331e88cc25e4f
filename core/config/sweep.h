// Recipes composed many times: the axes that overrides span, and the names of the runs on them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// What one override of a sweep gives its key.
struct SweepAxis {
  std::string key;                                    // with its `+`: "optimizer.lr", "+experiment", "optim@enc"
  std::vector<std::string> values;                    // as they stand behind `=`; a single one where nothing is swept
  std::optional<std::pair<double, double>> interval;  // interval(a, b): any number in [a, b); no values
  std::vector<std::string> tags;                      // of tag(...)
  bool deletes = false;                               // `~key`: no value
  Mark key_mark;            // in the recipe's `sweep.params`; no file: an override of the command line
  std::vector<Mark> marks;  // of the values there: one for each, or one for all
  std::string override_of(const std::string& value) const { return deletes ? key : key + "=" + value; }
};

// The merged `sweep` of the recipe and of all files that its defaults list chooses; null where there is none. Groups
// are chosen by the overrides, then by `sweep.params` of the recipe's own file; where a group has several options, the
// first decides. UserError as of compose().
Node sweep_section(const std::string& recipe_file, const ComposeOptions& options);

// The axes of that section's `params` (key: "1,2", or a list), then those of the overrides, in that order; a key that
// comes again replaces the axis that it had. UserError: a bad override, an empty glob, a deletion with several values.
std::vector<SweepAxis> sweep_axes(const std::string& recipe_file, const ComposeOptions& options);

// The overrides of every run of the grid; the last axis varies fastest. UserError: an interval, or more than `limit`
// runs.
std::vector<std::vector<std::string>> sweep_grid(const std::vector<SweepAxis>& axes, size_t limit = 100'000);

// A folder's name from overrides: "model=base,seed=3", sorted, without the keys in `exclude`. A '/' becomes '_'; a name
// of more than 200 bytes is cut and ends in a hash of the whole.
struct DirnameRules {
  std::vector<std::string> exclude;
  std::string item_separator = ",", key_separator = "=";
};
std::string override_dirname(const std::vector<std::string>& overrides, const DirnameRules& rules = {});

// What `${lmx:...}` knows of a run beyond its recipe.
struct RunNames {
  std::string job_name;    // ${lmx:job.name}; "": the recipe's file without .yaml
  int64_t job_number = 0;  // ${lmx:job.num}: its place in a sweep
};
// compose() for one run of a sweep.
Node compose_run(const std::string& recipe_file, const ComposeOptions& options, const RunNames& names);

// The files of which a recipe consists, in the order in which they are merged, and where the content of each lands.
struct MergedFile {
  std::string file, package;    // "recipes/model/lstm.yaml" under "model"; "": the root
  std::vector<Mark> chosen_by;  // overrides of groups, in files or on the command line, without which it were not there
};
std::vector<MergedFile> merged_files(const std::string& recipe_file, const ComposeOptions& options);

// What stood at a path of the composed recipe before a later file, or an override, gave it another value.
struct ReplacedValue {
  std::string value;  // as written, `${...}` included
  Mark mark;
};
// By path ("optimizer.lr"), the newest first.
std::map<std::string, std::vector<ReplacedValue>> replaced_values(const std::string& recipe_file,
                                                                  const ComposeOptions& options);

}  // namespace lmx
