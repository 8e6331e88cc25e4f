// A text in YAML as the tree that lmx reads, whose messages name the file r.yaml.
#pragma once

#include <string>

#include "lmx/config.h"

namespace lmx_test {

inline lmx::Node yaml(const std::string& text) {
  return lmx::parse_yaml(text, "r.yaml");
}

}  // namespace lmx_test
