// Translation edit rate (Snover et al. 2006, "A study of translation edit rate with targeted human annotation").
// Finding the shifts that need the fewest edits is NP-hard. This greedy search has the same rules and limits as the
// program Tercom and as sacreBLEU, because scores are comparable only with the same search.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "app/scores/bleu.h"
#include "app/scores/translation_scores.h"
#include "app/text/utf8.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

using WordIds = std::vector<int32_t>;

constexpr int64_t kLongestShift = 10;      // words
constexpr int64_t kFarthestShift = 50;     // positions between the words in the hypothesis and in the reference
constexpr int64_t kBeam = 25;              // columns on each side of the diagonal
constexpr int64_t kMostCandidates = 1000;  // shifts that are tried for one sentence
constexpr int64_t kUnreached = 1'000'000'000;

enum class Edit : char { none, keep, substitute, insert, erase };

struct Cell {
  int64_t cost = kUnreached;
  Edit edit = Edit::none;
};

// The edit distance from hypotheses of one length to a reference, computed near the diagonal only.
class EditDistance {
 public:
  EditDistance(const WordIds& reference, size_t length)
      : reference_(reference), rows_(length + 1, std::vector<Cell>(reference.size() + 1)) {
    for (size_t j = 0; j <= reference.size(); ++j) rows_[0][j] = {static_cast<int64_t>(j), Edit::insert};
  }

  // Keeps the rows before the first word that differs from the last hypothesis. REQUIRES: `length` words.
  int64_t operator()(const WordIds& hypothesis) {
    size_t first = 0;
    while (first < last_.size() && last_[first] == hypothesis[first]) ++first;
    for (size_t i = first + 1; i <= hypothesis.size(); ++i) fill_row(hypothesis, i);
    last_ = hypothesis;
    return rows_.back().back().cost;
  }

  // Returns the edits that turn the last hypothesis into the reference, first to last.
  std::vector<Edit> edits() const {
    std::vector<Edit> reversed;
    for (size_t i = rows_.size() - 1, j = reference_.size(); i > 0 || j > 0;) {
      const Edit edit = rows_[i][j].edit;
      LMX_CHECK(edit != Edit::none, "no path through the edit distance's cells");
      reversed.push_back(edit);
      if (edit != Edit::insert) --i;
      if (edit != Edit::erase) --j;
    }
    return {reversed.rbegin(), reversed.rend()};
  }

 private:
  void fill_row(const WordIds& hypothesis, size_t i) {
    const auto width = static_cast<int64_t>(reference_.size());
    const double ratio = static_cast<double>(width) / static_cast<double>(hypothesis.size());
    const int64_t beam = kBeam < ratio / 2 ? static_cast<int64_t>(std::ceil(ratio / 2 + kBeam)) : kBeam;
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio));
    const int64_t begin = std::max<int64_t>(0, diagonal - beam);
    const int64_t end = i == hypothesis.size() ? width + 1 : std::min(width + 1, diagonal + beam);
    std::vector<Cell>&row = rows_[i], &above = rows_[i - 1];
    std::fill(row.begin(), row.end(), Cell{});
    for (int64_t at = begin; at < end; ++at) {
      const auto j = static_cast<size_t>(at);
      const auto consider = [&](int64_t cost, Edit edit) {
        if (cost < row[j].cost) row[j] = {cost, edit};
      };
      // The order of these calls decides between equal costs.
      if (j > 0) {
        const bool same = hypothesis[i - 1] == reference_[j - 1];
        consider(above[j - 1].cost + (same ? 0 : 1), same ? Edit::keep : Edit::substitute);
      }
      consider(above[j].cost + 1, Edit::erase);
      if (j > 0) consider(row[j - 1].cost + 1, Edit::insert);
    }
  }

  const WordIds& reference_;
  std::vector<std::vector<Cell>> rows_;  // [words of the hypothesis][words of the reference]
  WordIds last_;
};

// The alignment of the words of both sides, and which of them differ.
struct Alignment {
  std::vector<int64_t> position;  // for each word of the reference: last word of the hypothesis up to it, or -1
  std::vector<bool> reference_wrong, hypothesis_wrong;

  explicit Alignment(const std::vector<Edit>& edits) {
    int64_t at = -1;
    for (const Edit edit : edits) {
      const bool wrong = edit != Edit::keep;
      if (edit != Edit::insert) {
        ++at;
        hypothesis_wrong.push_back(wrong);
      }
      if (edit != Edit::erase) {
        position.push_back(at);
        reference_wrong.push_back(wrong);
      }
    }
  }
};

bool any(const std::vector<bool>& flags, size_t begin, size_t count) {
  const auto first = flags.begin() + static_cast<std::ptrdiff_t>(begin),
             end = first + static_cast<std::ptrdiff_t>(count);
  return std::find(first, end, true) != end;
}

// Returns `words` with the `count` words at `from` moved to before the word at `to`. A target within the moved words
// moves together with them.
WordIds moved(WordIds words, size_t from, size_t count, size_t to) {
  const auto at = [&](size_t i) { return words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())); };
  if (to < from) {
    std::rotate(at(to), at(from), at(from + count));
  } else {
    std::rotate(at(from), at(from + count), at(to > from + count ? to : to + count));
  }
  return words;
}

// The greedy search for shifts in one sentence.
class ShiftSearch {
 public:
  ShiftSearch(WordIds hypothesis, const WordIds& reference)
      : words_(std::move(hypothesis)), reference_(reference), distance_(reference, words_.size()) {}

  int64_t edits() {
    int64_t shifts = 0;
    while (true) {
      const std::optional<Shift> best = best_shift();
      if (tried_ >= kMostCandidates || !best || best->gain <= 0) break;
      ++shifts;
      words_ = best->words;
    }
    return shifts + distance_(words_);
  }

 private:
  struct Shift {
    int64_t gain, length, from, to;
    WordIds words;
    // Prefers the larger gain, then more words, then the earlier words, then the earlier target.
    bool better_than(const Shift& other) const {
      return std::tuple(gain, length, -from, -to) > std::tuple(other.gain, other.length, -other.from, -other.to);
    }
  };

  std::optional<Shift> best_shift() {
    const int64_t before = distance_(words_);
    const Alignment alignment(distance_.edits());
    std::optional<Shift> best;
    for (size_t h = 0; h < words_.size(); ++h) {
      for (size_t r = 0; r < reference_.size(); ++r) {
        if (std::abs(static_cast<int64_t>(r) - static_cast<int64_t>(h)) > kFarthestShift) continue;
        for (size_t n = 1; matches(h, r, n); ++n) {
          if (!worth_trying(alignment, h, r, n)) continue;
          try_targets(alignment, h, r, n, before, best);
          if (tried_ >= kMostCandidates) return best;
        }
      }
    }
    return best;
  }

  // Returns whether n words from h and r on are equal. REQUIRES: the first n - 1 are equal.
  bool matches(size_t h, size_t r, size_t n) const {
    return n <= static_cast<size_t>(kLongestShift) && h + n <= words_.size() && r + n <= reference_.size() &&
           words_[h + n - 1] == reference_[r + n - 1];
  }

  // Returns whether a shift may help: some of the words are wrong at their position, some are missing at the target,
  // and the target is a different position.
  static bool worth_trying(const Alignment& a, size_t h, size_t r, size_t n) {
    if (!any(a.hypothesis_wrong, h, n) || !any(a.reference_wrong, r, n)) return false;
    return a.position[r] < static_cast<int64_t>(h) || a.position[r] >= static_cast<int64_t>(h + n);
  }

  void try_targets(const Alignment& alignment, size_t h, size_t r, size_t n, int64_t before,
                   std::optional<Shift>& best) {
    int64_t last = -1;
    for (int64_t offset = -1; offset < static_cast<int64_t>(n); ++offset) {
      const int64_t place = static_cast<int64_t>(r) + offset;
      if (place >= static_cast<int64_t>(alignment.position.size())) break;
      const int64_t to = place < 0 ? 0 : alignment.position[static_cast<size_t>(place)] + 1;
      if (to == last) continue;
      last = to;
      WordIds shifted = moved(words_, h, n, static_cast<size_t>(to));
      const int64_t gain = before - distance_(shifted);
      ++tried_;
      Shift shift{gain, static_cast<int64_t>(n), static_cast<int64_t>(h), to, std::move(shifted)};
      if (!best || shift.better_than(*best)) best = std::move(shift);
    }
  }

  WordIds words_;
  const WordIds& reference_;
  EditDistance distance_;
  int64_t tried_ = 0;
};

class Ter final : public CorpusMetric {
 public:
  explicit Ter(const TerOptions& options) : options_(options) {}
  std::string name() const override { return "TER"; }
  std::string settings() const override {
    return str("case:", options_.case_sensitive ? "mixed" : "lc", "|tok:tercom|norm:no|punct:yes|asian:no");
  }
  bool lower_is_better() const override { return true; }

  SentenceStatistics statistics(const Lines& hypothesis, std::span<const Lines> references) const override {
    check_score_lines(hypothesis, references);
    SentenceStatistics all{2, {}};
    for (size_t i = 0; i < hypothesis.size(); ++i) {
      std::unordered_map<std::string, int32_t> numbers;
      const WordIds words = words_of(hypothesis[i], numbers);
      double length = 0;
      int64_t fewest = std::numeric_limits<int64_t>::max();
      for (const Lines& lines : references) {
        const WordIds reference = words_of(lines[i], numbers);
        length += static_cast<double>(reference.size());
        fewest = std::min(
            fewest, reference.empty() ? static_cast<int64_t>(words.size()) : ShiftSearch(words, reference).edits());
      }
      all.values.push_back(static_cast<double>(fewest));
      all.values.push_back(length / static_cast<double>(references.size()));
    }
    return all;
  }

  double score(std::span<const double> sums) const override {
    const double edits = sums[0], length = sums[1];
    return length > 0 ? 100 * edits / length : edits > 0 ? 100 : 0;
  }

 private:
  WordIds words_of(const std::string& line, std::unordered_map<std::string, int32_t>& numbers) const {
    WordIds words;
    for (const std::string& w : split_words(options_.case_sensitive ? line : lower_case(line)))
      words.push_back(numbers.try_emplace(w, static_cast<int32_t>(numbers.size())).first->second);
    return words;
  }

  TerOptions options_;
};

}  // namespace

std::unique_ptr<CorpusMetric> make_ter(const TerOptions& options) {
  return std::make_unique<Ter>(options);
}

}  // namespace lmx::app
