// Single values of a recipe, by their paths.
#pragma once

#include <string>

#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx_cli {

// Returns "" if the recipe has no such key.
inline std::string text_at(const lmx::Node& recipe, const char* path) {
  const lmx::Node* node = recipe.at_path(path);
  return node ? node->text : "";
}

// Returns `otherwise` if there is no such key, or if its value is not a number.
inline double number_at(const lmx::Node& recipe, const char* path, double otherwise = 0) {
  return lmx::parse_double(text_at(recipe, path)).value_or(otherwise);
}

}  // namespace lmx_cli
