// Compositions of a recipe for many runs: the axes that overrides define, and the names of the runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// The values that one override of a sweep gives to its key.
struct SweepAxis {
  std::string key;                                    // such as "optimizer.lr", "+experiment", "optim@enc"
  std::vector<std::string> values;                    // as written after `=`; one value if the key is not swept
  std::optional<std::pair<double, double>> interval;  // interval(a, b): any number in [a, b); `values` is empty
  std::vector<std::string> tags;                      // from tag(...)
  bool deletes = false;                               // `~key`: no value
  Mark key_mark;            // in the recipe's `sweep.params`; no file if the axis is an override of the command line
  std::vector<Mark> marks;  // places of the values in `sweep.params`: one for each value, or one for all
  std::string override_of(const std::string& value) const { return deletes ? key : key + "=" + value; }
};

// The merged `sweep` section of the recipe and of all files that its defaults list chooses; null if no file has one.
// The overrides choose the groups first, then `sweep.params` of the recipe's own file. If a group has several options,
// the first one is used. UserError as for compose().
Node sweep_section(const std::string& recipe_file, const ComposeOptions& options);

// The axes of that section's `params` (key: "1,2", or a list), then those of the overrides, in that order. A key that
// occurs again replaces its earlier axis. UserError: a wrong override, an empty glob, a deletion with several values.
std::vector<SweepAxis> sweep_axes(const std::string& recipe_file, const ComposeOptions& options);

// The overrides of every run of the grid; the last axis varies fastest. UserError: an interval, or more than `limit`
// runs.
std::vector<std::vector<std::string>> sweep_grid(const std::vector<SweepAxis>& axes, size_t limit = 100'000);

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
