// Composition of a recipe from its files and overrides, and where each value of the result comes from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::app {

struct OverridePlace {
  Mark key, value;
};

// The composition of a recipe file: defaults list, groups, overrides, interpolation.
struct ComposeOptions {
  std::vector<std::string> overrides;  // "a.b=3", "+a=1", "++a=1", "~a", "group=option"
  std::vector<std::string>
      search_path;  // folders of config groups, tried after the recipe's own folder and `recipes` above it
  // True: the caller checks the tree against typed configs afterwards, so `a.b=3` may set a key that the recipe leaves
  // at its default. False: a key that is in no file needs `+a.b=3`.
  bool typed = true;
  bool resolve = true;  // false: `${...}` is kept as text
  // The value of `${path}` if no file and no override sets it: the default of a typed field. Without this function
  // `${path}` can refer only to values that are written.
  std::function<std::optional<Node>(const Node& tree, const std::string& path)> default_of = {};
  // Places of overrides that come from a file, by the override's text; messages name them. All other overrides come
  // from the command line.
  std::map<std::string, OverridePlace> places = {};
};
// The composed tree; `???` is kept. UserError with the place of the error.
Node compose(const std::string& recipe_file, const ComposeOptions& options);

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

// The environment variables whose values the composed recipe contains because of `${oc.env:NAME}`, each with its keys:
// "SITE (data.files, run.dir)". Files of a run contain these values, so that config.yaml repeats the run.
std::vector<std::string> environment_values(const std::string& recipe_file, ComposeOptions options);

// The value at a path of the composed recipe before a later file or an override replaced it.
struct ReplacedValue {
  std::string value;  // as written, `${...}` included
  Mark mark;
};
// Replaced values by path ("optimizer.lr"), the newest first.
std::map<std::string, std::vector<ReplacedValue>> replaced_values(const std::string& recipe_file,
                                                                  const ComposeOptions& options);

// `--ranks N` of the commands that train.

// Composes `recipe` with N virtual ranks instead of its `comm:`, as with comm=virtual comm.ranks=N; 0 leaves `comm:`
// unchanged. UserError: those of compose(), and an override that contradicts the setting of comm.
Node compose_on_ranks(const std::string& recipe, const ComposeOptions& options, int64_t ranks,
                      const RunNames& names = {});

}  // namespace lmx::app
