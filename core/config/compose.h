// Composition in steps, for those who need more of it than the tree.
#pragma once

#include <string>
#include <vector>

#include "config/defaults.h"
#include "config/override.h"
#include "config/sources.h"

namespace lmx::config {

// A recipe's files and the overrides that were given, sorted by what they do.
struct Inputs {
  Inputs(const std::string& recipe_file, const std::vector<std::string>& search_path)
      : recipe(Sources::load(recipe_file)), sources(recipe_file, search_path) {}
  // UserError: a sweep, which one run has no use for.
  void add(const ComposeOptions& options);

  SourceFile recipe;
  Sources sources;
  std::vector<Override> groups, values;
};

}  // namespace lmx::config
