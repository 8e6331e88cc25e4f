// Where the values of a composed recipe come from.
#pragma once

#include <string>
#include <vector>

#include "config/sweep.h"
#include "lmx/config.h"

namespace lmx {

// One value that a run would use.
struct ValueOrigin {
  std::string path, value;  // "optimizer.lr", "0.001"
  // "recipes/x.yaml:12:3", "override 'optimizer.lr=1'", "default of optimizer adam"
  std::string origin;
  // What lists of the recipe's `provenance` that name the key, or a part of the recipe with it, say of the value: those
  // of the file that gave it or of a later one. A key that no file gives must be named itself. "" for nothing.
  std::string provenance;
  std::string comment;  // beside the value
};
// Every value of full_recipe(composed, name), in its order. `files`: merged_files() of the same recipe.
std::vector<ValueOrigin> explain_recipe(const Node& composed, const std::string& name,
                                        const std::vector<MergedFile>& files);

}  // namespace lmx
