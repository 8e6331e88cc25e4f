// The steps of a composition, for callers that need more than the composed tree.
#pragma once

#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "app/compose/override.h"
#include "app/compose/sources.h"

namespace lmx::config {

// The files of a recipe, and the overrides of the command line, divided into choices of groups and values.
struct Inputs {
  Inputs(const std::string& recipe_file, const std::vector<std::string>& search_path)
      : recipe(Sources::load(recipe_file)), sources(recipe_file, search_path) {}
  // UserError if an override is a sweep: one run takes one value for each key.
  void add(const ComposeOptions& options);

  SourceFile recipe;
  Sources sources;
  std::vector<Override> groups, values;
};

}  // namespace lmx::config
