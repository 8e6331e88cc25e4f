// The `schema:` of a case: types of dotted paths, checked by lmx's own reader of typed configs.
#pragma once

#include "lmx/config.h"

namespace lmx::test {

// `composed` with every value converted to its type, and `???` where the schema has a field that no file gives. Values
// that are still interpolations are left alone. UserError: a wrong type, an unknown key.
Node apply_schema(const Node& schema, const Node& composed);

}  // namespace lmx::test
