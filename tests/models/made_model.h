// A model by its plugin. `config`: as in a recipe.
#pragma once

#include <memory>
#include <string>

#include "lmx/model.h"
#include "lmx/plugin.h"

namespace lmx::testing {

inline std::unique_ptr<Model> made_model(const std::string& config, int64_t vocab) {
  const Node node = parse_yaml(config, "test");
  Registry::instance().add_default_directories();
  const PluginInfo& plugin = Registry::instance().find(PluginKind::model, node, "model");
  return create<ModelFactory>(plugin, node, "model", ModelEnv{vocab});
}

}  // namespace lmx::testing
