// Types of unquoted values on the command line, and the casts int(), float(), str(), bool().
#pragma once

#include <string>
#include <string_view>

#include "lmx/config.h"

namespace lmx::config {

// Converts null, booleans and numbers in Hydra's spelling (any case; inf, nan; `_` between digits) to YAML's spelling.
// Every other text becomes a string.
Node typed_scalar(const std::string& text, const Mark& mark);

// The text of a scalar's value, independent of how the value was written: 1e-4 gives 0.0001, 1_000 gives 1000, True
// gives true.
std::string text_of_value(const Node& scalar);

bool is_cast(std::string_view name);
// Casts every scalar inside lists and maps. UserError, with the problem only, if a value cannot be cast to the type.
Node cast(const std::string& type, const Node& node);

// Returns whether two values are equal: 1e3 equals 1000.0, but the text '1' does not equal the number 1.
bool same_value(const Node& a, const Node& b);

}  // namespace lmx::config
