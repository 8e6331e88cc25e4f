// Finds the origin of the values of a composed recipe.
#pragma once

#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx {

// One value that a run would use.
struct ValueOrigin {
  std::string path, value;  // "optimizer.lr", "0.001"
  // "recipes/x.yaml:12:3", "override 'optimizer.lr=1'", "default of optimizer adam"
  std::string origin;
  // The remark on the value in the recipe's `provenance`. A list there may name the key, or a part of the recipe that
  // contains it. The list counts only if its file is the one that gave the value, or a later one. A key that no file
  // gives must be named itself. "": no remark.
  std::string provenance;
  std::string comment;  // comment on the value's line
};
// Returns every value of full_recipe(composed, name), in its order. `files`: merged_files() of the same recipe.
std::vector<ValueOrigin> explain_recipe(const Node& composed, const std::string& name,
                                        const std::vector<MergedFile>& files);

}  // namespace lmx
