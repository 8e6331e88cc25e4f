#include "lmx/error.h"

#include <algorithm>
#include <numeric>
#include <sstream>

namespace lmx {

Error::~Error() = default;
UserError::~UserError() = default;
RunError::~RunError() = default;
InternalError::~InternalError() = default;

std::ostream& operator<<(std::ostream& out, const Streamed& argument) {
  if (!argument.write_) return out << argument.text_;
  argument.write_(out, argument.value_);
  return out;
}

std::string joined_text(std::initializer_list<Streamed> arguments) {
  std::ostringstream out;
  for (const Streamed& argument : arguments) out << argument;
  return std::move(out).str();
}

void check_failed(const char* expression, const char* file, int line, const std::string& text) {
  throw InternalError(str("[internal] ", file, ":", line, ": ", expression, text.empty() ? "" : ": ", text));
}

namespace {

// Edit distance with adjacent transpositions, the usual kinds of typing errors.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 300;  // a longer text is no mistyped name; the time grows with the square of the length
  std::string best;
  if (name.size() > kLongest) return best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& c : candidates) {
    if (c.size() >= name.size() + best_distance) continue;
    const size_t d = distance(name, c);
    if (d < best_distance && d < std::max(name.size(), c.size())) {
      best = c;
      best_distance = d;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string best = nearest(name, candidates);
  return best.empty() ? "" : str(" (did you mean '", best, "'?)");
}

}  // namespace lmx
