// A recipe that has been read and checked once.
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace lmx::train {

struct CheckedRecipe {
  Recipe given;
  Node full;  // with all defaults, as config.yaml records it
};
// Returns the results of read_recipe and full_recipe, reading the tree only once. Throws the same UserErrors.
CheckedRecipe check_recipe(const Node& composed, const std::string& name);

}  // namespace lmx::train
