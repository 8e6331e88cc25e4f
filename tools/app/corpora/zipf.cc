#include "app/corpora/zipf.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <vector>

#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::app {
namespace {

// A set of ids that is emptied in constant time: an id is in the set if its mark equals the current one.
class TypeCounter {
 public:
  explicit TypeCounter(std::span<const int32_t> tokens)
      : marks_(static_cast<size_t>(tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end()) + 1)) {}
  void begin() {
    ++mark_;
    types_ = 0;
  }
  void add(int32_t id) {
    uint32_t& mark = marks_[static_cast<size_t>(id)];
    types_ += mark != mark_;
    mark = mark_;
  }
  int64_t types() const { return types_; }

 private:
  std::vector<uint32_t> marks_;
  uint32_t mark_ = 0;
  int64_t types_ = 0;
};

}  // namespace

int64_t types_in(std::span<const int32_t> tokens) {
  TypeCounter counter(tokens);
  counter.begin();
  for (const int32_t id : tokens) counter.add(id);
  return counter.types();
}

double PowerLaw::at(double tokens) const {
  return factor * std::pow(tokens, exponent);
}

PowerLaw fit_power_law(std::span<const TypesAtTokens> points) {
  const auto n = static_cast<double>(points.size());
  double x_mean = 0, y_mean = 0;
  for (const TypesAtTokens& p : points) {
    if (p.tokens <= 0 || !(p.types > 0))
      throw UserError(str("[zipf] cannot fit ", p.types, " types of ", p.tokens, " tokens"));
    x_mean += std::log(static_cast<double>(p.tokens)) / n;
    y_mean += std::log(p.types) / n;
  }
  double xx = 0, xy = 0;
  for (const TypesAtTokens& p : points) {
    const double x = std::log(static_cast<double>(p.tokens)) - x_mean;
    xx += x * x;
    xy += x * (std::log(p.types) - y_mean);
  }
  if (!(xx > 0))
    throw UserError(str("[zipf] a fit needs two different numbers of tokens, given ", points.size(), " points"));
  PowerLaw law;
  law.exponent = xy / xx;
  law.factor = std::exp(y_mean - law.exponent * x_mean);
  double squares = 0;
  for (const TypesAtTokens& p : points) {
    law.residuals.push_back(std::log(p.types / law.at(static_cast<double>(p.tokens))));
    squares += law.residuals.back() * law.residuals.back();
  }
  law.rms = std::sqrt(squares / n);
  return law;
}

std::vector<TypesAtTokens> count_types(const TokenArray& tokens, const ZipfOptions& options) {
  const int64_t length = options.sequence_length, last = std::min(options.last, tokens.size() / 2);
  if (last < 2 * options.first) {
    throw UserError(str("[zipf] the text holds ", tokens.size(), " tokens; counting from ", options.first,
                        " needs at least ", 4 * options.first));
  }
  if (length > tokens.size() / 2) {
    throw UserError(str("[zipf] sequences of ", length, " tokens are too long for a text of ", tokens.size()));
  }
  const auto windows = static_cast<uint64_t>(tokens.size() / length);
  const RandomKey key = RandomKey(options.seed).fold("zipf");
  TypeCounter counter(tokens.tokens());
  std::vector<TypesAtTokens> points;
  for (int64_t n = options.first; n <= last; n *= 2) {
    TypesAtTokens point{n, 0, 0};
    double squares = 0;
    for (int64_t draw = 0; draw < options.draws; ++draw) {
      counter.begin();
      const RandomKey order = key.fold(static_cast<uint64_t>(n)).fold(static_cast<uint64_t>(draw));
      for (int64_t done = 0; done < n; done += length) {
        const uint64_t window = permute(order, static_cast<uint64_t>(done / length), windows);
        const auto from = tokens.tokens().subspan(window * static_cast<uint64_t>(length));
        // The last sequence is cut if `length` does not divide N.
        for (const int32_t id : from.first(static_cast<size_t>(std::min(length, n - done)))) counter.add(id);
      }
      const auto types = static_cast<double>(counter.types());
      point.types += types / static_cast<double>(options.draws);
      squares += types * types / static_cast<double>(options.draws);
    }
    point.spread = std::sqrt(std::max(0.0, squares - point.types * point.types));
    points.push_back(point);
  }
  return points;
}

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
  return WordLaw::of_counts("counts of " + path, read_counts(path));
}

}  // namespace lmx::app
