// Finds a tensor, and a unit, of a model's recurrent state by name.
#pragma once

#include <string>

#include "lmx/model.h"
#include "recipe/recipe.h"

namespace lmx::train {

// Returns the name of the tensor that `wanted` refers to: a tensor's name such as "lstm.0.c", or `cell` or `hidden` for
// the tensor of the last layer. A layer's tensors end in `.c` (cells), or in `.h` or `.s` (the output of the layer),
// after its number. If a model has no cells, `cell` returns its hidden state, too. UserError: an unknown name; the
// message lists the names.
std::string state_name(const ModelState& state, const std::string& wanted);

// Returns the number of units per sequence in `name`. UserError: `unit` (-1: no check) is not among them.
int64_t state_units(const ModelState& state, const std::string& name, int64_t unit = -1);

}  // namespace lmx::train
