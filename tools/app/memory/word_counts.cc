#include "app/memory/word_counts.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "lmx/error.h"

namespace lmx {
namespace {

// In falling order.
std::vector<double> read_counts(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UserError(str("[plan] --counts: cannot read ", path));
  std::vector<double> counts;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (line.empty()) continue;
    const size_t begin = line.find_last_of(" \t");
    const std::string last = line.substr(begin == std::string::npos ? 0 : begin + 1);
    const std::optional<double> count = parse_double(last);
    if (!count || !(*count >= 0) || !std::isfinite(*count))
      throw UserError(str("[plan] --counts ", path, ":", number, ": '", last,
                          "' is no count: each line ends with a number, 0 or more, such as 'the 128' or '128'"));
    counts.push_back(*count);
  }
  std::sort(counts.begin(), counts.end(), std::greater<>());
  if (counts.empty() || counts[0] == 0)
    throw UserError(str("[plan] --counts ", path, ": the file has no count above 0"));
  return counts;
}

}  // namespace

data::WordLaw law_of_counts(const std::string& path) {
  return data::WordLaw::of_counts("counts of " + path, read_counts(path));
}

}  // namespace lmx
