// Folders that come with lmx and its plugins, and recipes that are found in them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx::app {

// Returns the folder `name` ("recipes", "experiments") of the source tree that this program was built in, or of the
// prefix that it is installed in. nullopt: lmx was installed without it.
std::optional<std::filesystem::path> shipped_folder(const std::string& name);

// The names of the recipes that lmx ships: "recipes/quickstart.yaml".
std::vector<std::string> shipped_recipes();

// The file of a recipe: `given`, or if there is no such file, the shipped recipe of this name. UserError: there is
// neither, and a shipped recipe has a similar name, or `given` is an override.
std::string recipe_file(const std::string& given);
// The inverse: the name by which commands find the recipe in any folder, "recipes/NAME" for a shipped one; otherwise
// `file`.
std::string recipe_name(const std::string& file);

// Adds the settings of lmx and its plugins to `options`: the search path gets the folders `recipes` beside plugins and,
// last, the recipes that lmx ships; `${key}` may refer to the default of a field. REQUIRES: the registry has been
// filled.
ComposeOptions with_plugins(ComposeOptions options);

}  // namespace lmx::app
