// `init:` of a recipe: initial parameters from another run or file, and parameters that are never updated.
#pragma once

#include <string>
#include <vector>

#include "app/runs/init_report.h"
#include "recipe/components.h"
#include "recipe/recipe.h"

namespace lmx::train {

// Copies the values that fit into `params`; null: only determines which values fit. A value fits a parameter of the
// same name and shape. If the vocabularies differ and the other one is known, the rows of a table with one row per word
// are matched by word. `vocabulary` null: only the structure, as in a dry run. UserError: no run or file, a damaged
// file, a pattern that matches no parameter, no value that fits. RunError: a value that is not finite.
InitReport take_parameters(const InitConfig& init, const std::vector<ParameterSpec>& specs,
                           const Vocabulary* vocabulary, ParameterStore* params);

// Returns lines of text for the user.
std::vector<std::string> describe(const InitReport& report);

}  // namespace lmx::train
