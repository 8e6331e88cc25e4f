// Numbers and comments for the recipes of `lmx new`, and the machine's resources.
#include <cmath>

#include "app/jobs/launcher.h"
#include "app/memory/memory_check.h"
#include "app/new/new_recipe.h"
#include "base/text.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app::new_recipe {
namespace {

// Training in single precision on one core with AVX2. This is half of the speed that the word model of docs/recipes.md
// reaches, because small matrices are slower.
constexpr double kFlopsOfACore = 20e9;
constexpr double kUncertainty = 2.5;  // processors and sizes of models differ by this factor both ways
constexpr size_t kWidth = 110;

}  // namespace

double Budget::flops() const {
  return 60 * minutes * kFlopsOfACore * static_cast<double>(cores);
}

double seconds_of(double flops, const Budget& budget) {
  return flops / (kFlopsOfACore * static_cast<double>(budget.cores));
}

Budget budget_of_this_machine(double minutes) {
  return {.cores = jobs::own_core_count(), .memory = machine_memory().bytes, .minutes = minutes};
}

std::string duration(double seconds) {
  const double shortest = seconds / kUncertainty / 60, longest = seconds * kUncertainty / 60;
  if (longest < 1) return "less than a minute";
  if (shortest < 1) return str("up to ", std::llround(std::ceil(longest)), longest <= 1 ? " minute" : " minutes");
  const bool hours = shortest >= 100;
  const double unit = hours ? 60 : 1;
  return str(std::llround(shortest / unit), " to ", std::llround(longest / unit), hours ? " hours" : " minutes");
}

std::string percent(int64_t share, int64_t whole) {
  return format("%.2g %%", 100.0 * static_cast<double>(share) / static_cast<double>(whole));
}

std::string inline_list(const std::vector<std::string>& words) {
  std::vector<Node> items;
  for (const std::string& word : words) items.push_back(Node::string(word));
  std::string text = to_yaml(Node::list(std::move(items)));
  text.pop_back();  // the line's end
  return text;
}

std::string comment(const std::string& text, size_t indent) {
  std::string out;
  for (const std::string& line : wrapped(text, kWidth - indent - 2))
    out += std::string(indent, ' ') + "# " + line + "\n";
  return out;
}

std::string heading(const std::string& what, const std::string& name, const std::string& text, const Budget& budget) {
  return comment(str(what, ", written by `lmx new`. Every value can be changed here or on the command line; ",
                     "`lmx config ", name, ".yaml` prints the values that are not written here.")) +
         "#\n" + comment(text) +
         comment(str("The machine has ", plural(budget.cores, "core"), " and ", bytes_text(budget.memory),
                     " of memory. Times are estimates for 8 to 50 GFLOP/s on each core; ",
                     "`lmx run` logs the true speed."));
}

}  // namespace lmx::app::new_recipe
