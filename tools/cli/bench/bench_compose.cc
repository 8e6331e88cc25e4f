#include "cli/bench/bench.h"

#include "app/compose/compose.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/records/records.h"
#include "app/run/search_path.h"
#include "cli/commands.h"
#include "lmx/error.h"
#include "recipe/recipe.h"

namespace lmx_cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> recipes_here() {
  std::vector<std::string> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("recipes", none))
    if (entry.path().extension() == ".yaml") found.push_back(entry.path().string());
  if (found.empty())
    throw lmx::UserError("[bench] no recipes: the current folder has no recipes/*.yaml; name some by --recipe FILE");
  std::sort(found.begin(), found.end());
  return found;
}

// Counts the fields at all levels.
int64_t values_of(const lmx::Node& node) {
  int64_t n = node.kind == lmx::Node::Kind::map || node.kind == lmx::Node::Kind::list ? 0 : 1;
  for (const lmx::Node& item : node.items) n += values_of(item);
  for (const auto& [key, value] : node.entries) n += values_of(value);
  return n;
}

}  // namespace

void add_compose_options(Command command, ComposeBench& o) {
  command.add_option("--recipe FILE", o.recipes,
                     "for compose: a recipe (repeatable); by default all recipes of ./recipes");
}

void bench_compose(const ComposeBench& o, int64_t repeats) {
  const lmx::ComposeOptions options = with_plugins({});
  for (const std::string& recipe : o.recipes.empty() ? recipes_here() : o.recipes) {
    const std::string name = fs::path(recipe).stem().string();
    std::vector<double> times;
    int64_t values = 0;
    for (int64_t i = 0; i <= repeats; ++i) {
      const auto start = BenchClock::now();
      values = values_of(lmx::full_recipe(lmx::compose(recipe, options), name));
      if (i > 0) times.push_back(seconds_since(start));  // the first one also loads the plugins
    }
    const nlohmann::ordered_json line{
        {"lmx", lmx::kVersion},
        {"workload", "compose"},
        {"recipe", name},
        {"values", values},
        {"ms", rounded(median(times) * 1e3, 100)},
        {"slowest_ms", rounded(*std::max_element(times.begin(), times.end()) * 1e3, 100)}};
    std::cout << line.dump() << std::endl;
  }
}

}  // namespace lmx_cli
