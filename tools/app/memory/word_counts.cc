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

WordLaw law_of_counts(const std::string& path) {
  const auto counts = std::make_shared<const std::vector<double>>(read_counts(path));
  const double all = std::accumulate(counts->begin(), counts->end(), 0.0);
  return [counts, all](int64_t tokens, int64_t vocabulary) {
    const auto types = static_cast<int64_t>(counts->size());
    const int64_t known = vocabulary < types ? vocabulary - 1 : types;
    double rest = all, words = 0;
    // The probability that a word of this count occurs in the text.
    const auto occurs = [&](double count) {
      return -std::expm1(static_cast<double>(tokens) * std::log1p(-std::min(1.0, count / all)));
    };
    for (int64_t w = 0; w < known; ++w) {
      words += occurs((*counts)[static_cast<size_t>(w)]);
      rest -= (*counts)[static_cast<size_t>(w)];
    }
    if (known < types) words += occurs(std::max(0.0, rest));
    return std::min({std::max<int64_t>(1, std::llround(words)), tokens, vocabulary});
  };
}

}  // namespace lmx
