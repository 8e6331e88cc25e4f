// Optimizers and rules of clipping from their parts of a recipe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/optim.h"
#include "yaml.h"

namespace lmx_test {

inline std::unique_ptr<lmx::Optimizer> optimizer(const std::string& text) {
  return lmx::make_optimizer(yaml(text), "optimizer");
}
inline std::vector<lmx::ClipRule> rules(const std::string& text) {
  return lmx::read_clip(*yaml("clip: " + text).find("clip"), "clip");
}

}  // namespace lmx_test
