// `${...}`: references to other values and resolvers such as oc.env.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "lmx/config.h"

namespace lmx::config {

// The values of `${lmx:...}`.
struct RunValues {
  std::string name;                                                        // job.name
  int64_t number = 0;                                                      // job.num
  std::string override_dirname;                                            // job.override_dirname
  std::map<std::string, std::string> choices;                              // runtime.choices.<group>
  std::function<std::optional<Node>(const std::string& path)> default_of;  // of a key that is not written; may be empty
};

// Returns the tree with every interpolation replaced. UserError: unknown name, cycle, reference to `???`, wrong syntax.
Node resolve_interpolations(const Node& root, const RunValues& run);
// Resolves one value that refers to no other value, such as ${oc.env:HOME}.
Node resolve_alone(const Node& value);

}  // namespace lmx::config
