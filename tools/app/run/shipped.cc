#include "app/run/shipped.h"

#include <filesystem>

#include "app/compose/compose.h"
#include "app/run/schema.h"
#include "lmx/launch.h"
#include "lmx/plugin.h"

namespace lmx_cli {

namespace fs = std::filesystem;

std::optional<fs::path> shipped_folder(const std::string& name) {
  std::error_code error;
  const fs::path root = fs::path(lmx::own_program()).parent_path().parent_path();  // <prefix>, or <source>/build
  if (const fs::path installed = root / "share" / "lmx" / name; fs::is_directory(installed, error)) return installed;
  // Without this file, the folder above is not a source tree but may be a user's folder, such as ~/recipes beside
  // ~/lmx.
  if (!fs::exists(root / "CMakeCache.txt", error)) return std::nullopt;
  const fs::path source = root.parent_path() / name;
  return fs::is_directory(source, error) ? std::optional(source) : std::nullopt;
}

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
