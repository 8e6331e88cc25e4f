// The values that an override of a sweep gives its key.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmx/config.h"

namespace lmx_cli::sweeps {

struct Values {
  std::string key;                                    // with its `+`
  std::vector<std::string> values;                    // as they stand behind `=`; a single one where nothing is swept
  std::optional<std::pair<double, double>> interval;  // interval(a, b): no values
  std::vector<std::string> tags;                      // of tag(...)
  bool deletes = false;                               // `~key`
  std::string override_of(const std::string& value) const { return deletes ? key : key + "=" + value; }
};

// Those of a recipe's `sweep.params`, then of the overrides; a key that comes again replaces what it had. UserError: a
// sweep that cannot be read.
std::vector<Values> read_values(const std::string& recipe_file, const lmx::ComposeOptions& options);

}  // namespace lmx_cli::sweeps
