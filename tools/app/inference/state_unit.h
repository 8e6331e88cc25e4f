// One tensor, and one unit, of a model's recurrent state by name.
#pragma once

#include <string>

#include "lmx/model.h"
#include "recipe/recipe.h"

namespace lmx::train {

// The name of the tensor that `wanted` means: its own name, or `cell` or `hidden` for that of the last layer. Layers'
// tensors end in their number and `.c` (cells), or `.h` or `.s` (what the layer hands on): "lstm.0.c". A model without
// cells has its hidden state for both. UserError lists the names.
std::string state_name(const ModelState& state, const std::string& wanted);

// Units of a sequence in `name`. UserError: `unit` (-1: none) is not among them.
int64_t state_units(const ModelState& state, const std::string& name, int64_t unit = -1);

}  // namespace lmx::train
