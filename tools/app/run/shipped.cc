#include "app/run/shipped.h"

#include <filesystem>

#include "app/compose/compose.h"
#include "app/run/schema.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/plugin.h"

namespace lmx::app {

namespace fs = std::filesystem;

std::optional<fs::path> shipped_folder(const std::string& name) {
  std::error_code error;
  const fs::path root = fs::path(own_program()).parent_path().parent_path();  // <prefix>, or <source>/build
  if (const fs::path installed = root / "share" / "lmx" / name; fs::is_directory(installed, error)) return installed;
  // Without this file, the folder above is not a source tree but may be a user's folder, such as ~/recipes beside
  // ~/lmx.
  if (!fs::exists(root / "CMakeCache.txt", error)) return std::nullopt;
  const fs::path source = root.parent_path() / name;
  return fs::is_directory(source, error) ? std::optional(source) : std::nullopt;
}

namespace {

constexpr std::string_view kRecipes = "recipes/";

// The shipped recipe whose name is most similar to `given`, with or without folder and ending; "" if none is similar.
std::string similar_recipe(const fs::path& given) {
  std::vector<std::string> names;
  for (const std::string& recipe : shipped_recipes()) names.push_back(fs::path(recipe).stem().string());
  const std::string near = nearest(given.stem().string(), names);
  return near.empty() ? "" : str(kRecipes, near, ".yaml");
}

}  // namespace

std::vector<std::string> shipped_recipes() {
  std::vector<std::string> names;
  std::error_code error;
  if (const auto shipped = shipped_folder("recipes"))
    for (const auto& entry : fs::directory_iterator(*shipped, error))
      if (entry.is_regular_file(error)) names.push_back(str(kRecipes, entry.path().filename().string()));
  return names;
}

std::string recipe_file(const std::string& given) {
  const auto shipped = shipped_folder("recipes");
  std::error_code error;
  if (given.substr(0, given.find('/')).find('=') != std::string::npos && !fs::exists(given, error))
    throw UserError(str(given, " is an override of a recipe; the recipe, a YAML file, comes before it"));
  if (!shipped || fs::exists(given, error)) return given;
  const bool in_recipes = given.starts_with(kRecipes);
  if (in_recipes)
    if (const fs::path file = *shipped / given.substr(kRecipes.size()); fs::is_regular_file(file, error))
      return file.string();
  // A folder that exists may have a file of a similar name, which the error of a missing file states.
  const bool own_folder = in_recipes ? fs::exists("recipes", error) : given.find('/') != std::string::npos;
  const std::string near = own_folder ? "" : similar_recipe(given);
  if (near.empty()) return given;
  throw UserError(str("there is no recipe ", given, " (did you mean '", near, "'?)"));
}

std::string recipe_name(const std::string& file) {
  const auto shipped = shipped_folder("recipes");
  const fs::path inside = shipped ? fs::path(file).lexically_relative(*shipped) : fs::path();
  if (inside.empty() || *inside.begin() == "..") return file;
  const std::string name = str(kRecipes, inside.string());
  return recipe_file(name) == file ? name : file;
}

ComposeOptions with_plugins(ComposeOptions options) {
  for (const PluginInfo& plugin : Registry::instance().list()) {
    const std::filesystem::path folder = std::filesystem::path(plugin.path).parent_path() / "recipes";
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) options.search_path.push_back(folder.string());
  }
  if (const auto shipped = shipped_folder("recipes")) options.search_path.push_back(shipped->string());
  options.default_of = default_of;
  return options;
}

}  // namespace lmx::app
