#include "app/run/search_path.h"

#include "app/compose/compose.h"

#include <filesystem>

#include "app/run/schema.h"
#include "app/run/shipped.h"
#include "lmx/plugin.h"

namespace lmx_cli {

lmx::ComposeOptions with_plugins(lmx::ComposeOptions options) {
  for (const lmx::PluginInfo& plugin : lmx::Registry::instance().list()) {
    const std::filesystem::path folder = std::filesystem::path(plugin.path).parent_path() / "recipes";
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) options.search_path.push_back(folder.string());
  }
  if (const auto shipped = shipped_folder("recipes")) options.search_path.push_back(shipped->string());
  options.default_of = lmx::default_of;
  return options;
}

}  // namespace lmx_cli
