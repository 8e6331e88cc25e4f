// Types of unquoted values on the command line, and the casts int(), float(), str(), bool().
#pragma once

#include <string>
#include <string_view>

#include "lmx/config.h"

namespace lmx::config {

// null, booleans and numbers in Hydra's spelling (any case; inf, nan; `_` between digits) become YAML's; else a string.
Node typed_scalar(const std::string& text, const Mark& mark);

// What a scalar's value looks like inside a text, however it is written: 1e-4 is 0.0001, 1_000 is 1000, True is true.
std::string text_of_value(const Node& scalar);

bool is_cast(std::string_view name);
// Reaches into lists and maps. UserError, the problem alone, when a value has no such form.
Node cast(const std::string& type, const Node& node);

// Whether two scalars are equal as values: 1e3 and 1000.0, but not '1' and 1.
bool same_value(const Node& a, const Node& b);

}  // namespace lmx::config
