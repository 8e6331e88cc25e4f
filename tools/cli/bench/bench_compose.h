// `lmx bench compose`: the time to compose and check recipes, one JSON line per recipe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command_line.h"

namespace lmx_cli {

struct ComposeBench {
  std::vector<std::string> recipes;  // files; empty: those of ./recipes
};
void add_compose_options(Command command, ComposeBench& o);
// UserError: no recipe, or one that cannot be composed.
void bench_compose(const ComposeBench& o, int64_t repeats);

}  // namespace lmx_cli
