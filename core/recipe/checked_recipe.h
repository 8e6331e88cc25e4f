// A recipe that has been read and checked once.
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace lmx::train {

struct CheckedRecipe {
  Recipe given;
  Node full;  // with every default, as config.yaml records it
};
// Returns the results of read_recipe and full_recipe from a single reading. UserError as theirs.
CheckedRecipe check_recipe(const Node& composed, const std::string& name);

}  // namespace lmx::train
