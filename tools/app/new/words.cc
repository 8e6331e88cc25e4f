// Numbers and comments for the recipes of `lmx new`, and the machine's resources.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

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
  Budget b;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) b.cores = std::max(1, CPU_COUNT(&set));
  b.memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  b.minutes = minutes;
  return b;
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
  std::string out, line;
  const std::string start(indent, ' ');
  const auto end_line = [&] {
    out += start + "#" + line + "\n";
    line.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (!line.empty() && indent + 1 + line.size() + 1 + end - at > kWidth) end_line();
    line += " " + text.substr(at, end - at);
    at = end + 1;
  }
  end_line();
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
