// The functions that `${name:argument,...}` can call.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "app/compose/interpolate.h"
#include "lmx/config.h"

namespace lmx::config {

struct ResolverCall {
  std::vector<Node> arguments;  // scalars as written (interpolations inside them resolved); quotes removed
  Mark mark;
  std::string shown;    // "train.dir: ${oc.env:HOME}", for messages
  std::time_t now = 0;  // one value for the whole composition
  const RunValues* run = nullptr;
  // Returns the resolved node at an absolute path; null if it does not exist.
  std::function<const Node*(const std::string& path)> select;
};

// UserError if the resolver is unknown or its arguments are wrong.
Node call_resolver(const std::string& name, const ResolverCall& call);

}  // namespace lmx::config
