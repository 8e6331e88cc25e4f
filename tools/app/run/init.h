// `init:` of a recipe: parameters that start as those of another run or file, and parameters that are never updated.
#pragma once

#include <string>
#include <vector>

#include "app/runs/init_report.h"
#include "recipe/components.h"
#include "recipe/recipe.h"

namespace lmx::train {

// Copies the values that fit into `params`; null: only looks what would fit. A value fits a parameter of its name and
// shape. The rows of a table with a row for each word are matched by word where the vocabularies differ and the
// other one is known. `vocabulary` null: structure only, as of a dry run. UserError: nothing there, a damaged file,
// a pattern that names no parameter, no value that fits. RunError: a value that is no finite number.
InitReport take_parameters(const InitConfig& init, const std::vector<ParameterSpec>& specs,
                           const Vocabulary* vocabulary, ParameterStore* params);

// Lines for people.
std::vector<std::string> describe(const InitReport& report);

}  // namespace lmx::train
