#include "app/scores/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "app/scores/translation_scores.h"
#include "app/text/utf8.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr size_t kOrder = 4;

// The counts of a sentence, or their sums over sentences. A row of SentenceStatistics has the same numbers: both
// lengths, the matches, the n-grams.
struct Statistics {
  static constexpr size_t kWidth = 2 + 2 * kOrder;
  double hypothesis_length = 0, reference_length = 0;
  std::array<double, kOrder> matches{}, ngrams{};

  Statistics() = default;
  explicit Statistics(std::span<const double> row) : hypothesis_length(row[0]), reference_length(row[1]) {
    std::copy_n(row.begin() + 2, kOrder, matches.begin());
    std::copy_n(row.begin() + 2 + kOrder, kOrder, ngrams.begin());
  }
  void append_to(std::vector<double>& values) const {
    values.insert(values.end(), {hypothesis_length, reference_length});
    values.insert(values.end(), matches.begin(), matches.end());
    values.insert(values.end(), ngrams.begin(), ngrams.end());
  }
};

// Numbers the words of one line and its references.
class Numbering {
 public:
  std::vector<int32_t> ids(const std::vector<std::string>& words) {
    std::vector<int32_t> out;
    // Numbers start at 1, because zeros pad the n-grams.
    for (const std::string& w : words)
      out.push_back(numbers_.try_emplace(w, static_cast<int32_t>(numbers_.size()) + 1).first->second);
    return out;
  }

 private:
  std::unordered_map<std::string, int32_t> numbers_;
};

class Segmenter {
 public:
  explicit Segmenter(const BleuOptions& options)
      : options_(options), tokenize_(find_score_tokenizer(options.tokenizer)) {}
  std::vector<std::string> of(const std::string& line) const {
    std::string text = options_.lower_case ? lower_case(line) : line;
    text.resize(trim_end(text).size());
    if (options_.split_compounds) text = split_compounds(text);
    return tokenize_(text);
  }

 private:
  const BleuOptions& options_;
  ScoreTokenizer tokenize_;
};

Statistics count_line(const std::string& hypothesis, const std::vector<const std::string*>& references,
                      const Segmenter& words) {
  Numbering numbering;
  const std::vector<int32_t> ids = numbering.ids(words.of(hypothesis));
  std::array<NGrams, kOrder> most;  // the largest count of each n-gram in any reference
  const auto length = static_cast<int64_t>(ids.size());
  int64_t nearest = -1;
  for (const std::string* reference : references) {
    const std::vector<int32_t> other = numbering.ids(words.of(*reference));
    const auto n = static_cast<int64_t>(other.size());
    const int64_t distance = std::abs(n - length), best = std::abs(nearest - length);
    if (nearest < 0 || distance < best || (distance == best && n < nearest)) nearest = n;
    for (size_t i = 0; i < kOrder; ++i) most[i] = larger_counts(most[i], count_ngrams(other, i + 1));
  }
  Statistics counted;
  for (size_t i = 0; i < kOrder; ++i) {
    counted.matches[i] = static_cast<double>(shared(count_ngrams(ids, i + 1), most[i]));
    counted.ngrams[i] = static_cast<double>(std::max<int64_t>(length - static_cast<int64_t>(i), 0));
  }
  counted.hypothesis_length = static_cast<double>(length);
  counted.reference_length = static_cast<double>(nearest);
  return counted;
}

double smooth_value(const BleuOptions& options) {
  return options.smooth_value.value_or(options.smoothing == "floor" ? 0.1 : 1.0);
}

bool has_value(const BleuOptions& options) {
  return options.smoothing == "floor" || options.smoothing == "add-k";
}

void check(const BleuOptions& options) {
  const std::vector<std::string>& names = bleu_smoothings();
  if (std::find(names.begin(), names.end(), options.smoothing) == names.end())
    throw UserError(str("[bleu] no smoothing '", options.smoothing, "'", did_you_mean(options.smoothing, names),
                        "; there are ", config::join(names)));
  if (options.smooth_value && !has_value(options))
    throw UserError(str("[bleu] smoothing '", options.smoothing, "' has no value; floor and add-k have one"));
  if (!(smooth_value(options) >= 0) || std::isinf(smooth_value(options)))
    throw UserError(str("[bleu] the smoothing's value must be a number >= 0, got ", smooth_value(options)));
}

BleuScore score_of(const Statistics& s, const BleuOptions& options) {
  BleuScore r;
  r.hypothesis_length = static_cast<int64_t>(s.hypothesis_length);
  r.reference_length = static_cast<int64_t>(s.reference_length);
  const double hypothesis = s.hypothesis_length, reference = s.reference_length;
  r.brevity_penalty = hypothesis >= reference ? 1.0 : hypothesis > 0 ? std::exp(1 - reference / hypothesis) : 0.0;
  r.matches = s.matches;
  r.ngrams = s.ngrams;
  if (s.matches == std::array<double, kOrder>{}) return r;
  double halving = 1;
  size_t orders = kOrder;
  for (size_t n = 0; n < kOrder; ++n) {
    if (options.smoothing == "add-k" && n > 0) {
      r.matches[n] += smooth_value(options);
      r.ngrams[n] += smooth_value(options);
    }
    if (r.ngrams[n] == 0) break;
    if (options.effective_order) orders = n + 1;
    if (r.matches[n] > 0) {
      r.precisions[n] = 100 * r.matches[n] / r.ngrams[n];
    } else if (options.smoothing == "exp") {
      r.precisions[n] = 100 / ((halving *= 2) * r.ngrams[n]);
    } else if (options.smoothing == "floor") {
      r.precisions[n] = 100 * smooth_value(options) / r.ngrams[n];
    }
  }
  double logs = 0;
  for (size_t n = 0; n < orders; ++n) logs += r.precisions[n] > 0 ? std::log(r.precisions[n]) : -INFINITY;
  r.score = r.brevity_penalty * std::exp(logs / static_cast<double>(orders));
  return r;
}

// sacreBLEU prints this part after the score.
constexpr const char* kDetails = "%.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)";

std::string formatted(const char* pattern, const BleuScore& s) {
  const double ratio =
      s.reference_length ? static_cast<double>(s.hypothesis_length) / static_cast<double>(s.reference_length) : 0;
  const auto& p = s.precisions;
  return format(pattern, p[0], p[1], p[2], p[3], s.brevity_penalty, ratio, static_cast<long long>(s.hypothesis_length),
                static_cast<long long>(s.reference_length));
}

class Bleu final : public CorpusMetric {
 public:
  explicit Bleu(const BleuOptions& options) : options_(options), words_(options_) { check(options_); }
  std::string name() const override { return "BLEU"; }
  std::string settings() const override {
    return str("case:", options_.lower_case ? "lc" : "mixed", "|eff:", options_.effective_order ? "yes" : "no",
               "|tok:", options_.tokenizer, options_.split_compounds ? "+compounds" : "",
               "|smooth:", options_.smoothing, has_value(options_) ? format("[%.2f]", smooth_value(options_)) : "");
  }
  SentenceStatistics statistics(const Lines& hypothesis, std::span<const Lines> references) const override {
    check_score_lines(hypothesis, references);
    SentenceStatistics all{Statistics::kWidth, {}};
    std::vector<const std::string*> of_line(references.size());
    for (size_t i = 0; i < hypothesis.size(); ++i) {
      for (size_t r = 0; r < references.size(); ++r) of_line[r] = &references[r][i];
      count_line(hypothesis[i], of_line, words_).append_to(all.values);
    }
    return all;
  }
  double score(std::span<const double> sums) const override { return score_of(Statistics(sums), options_).score; }
  std::string details(std::span<const double> sums) const override {
    return formatted(kDetails, score_of(Statistics(sums), options_));
  }

 private:
  BleuOptions options_;
  Segmenter words_;
};

}  // namespace

const std::vector<std::string>& bleu_smoothings() {
  static const std::vector<std::string> names{"exp", "floor", "add-k", "none"};
  return names;
}

void check_score_lines(const Lines& hypothesis, std::span<const Lines> references) {
  if (references.empty()) throw UserError("[bleu] there is no reference to compare with");
  if (hypothesis.empty()) throw UserError("[bleu] there is nothing to score: the hypothesis has no lines");
  for (size_t r = 0; r < references.size(); ++r)
    if (references[r].size() != hypothesis.size())
      throw UserError(str("[bleu] the hypothesis has ", hypothesis.size(), " lines and reference ", r + 1, " has ",
                          references[r].size(), "; line i of one must translate what line i of the other does"));
}

BleuScore bleu(const Lines& hypothesis, std::span<const Lines> references, const BleuOptions& options) {
  const Bleu metric(options);
  return score_of(Statistics(metric.statistics(hypothesis, references).sums()), options);
}

std::unique_ptr<CorpusMetric> make_bleu(const BleuOptions& options) {
  return std::make_unique<Bleu>(options);
}

BleuOptions multi_bleu_options(bool lower_case, bool split_compounds) {
  BleuOptions options;
  options.tokenizer = options.smoothing = "none";
  options.lower_case = lower_case;
  options.split_compounds = split_compounds;
  return options;
}

std::string bleu_signature(const BleuOptions& options, size_t references) {
  return metric_signature(Bleu(options), references);
}

std::string bleu_text(const BleuScore& score) {
  return format("%.2f ", score.score) + formatted(kDetails, score);
}

std::string multi_bleu_text(const BleuScore& score) {
  return format("BLEU = %.2f, ", score.score) +
         formatted("%.1f/%.1f/%.1f/%.1f (BP=%.3f, ratio=%.3f, hyp_len=%lld, ref_len=%lld)", score);
}

namespace {

// Calls visit(ids, count in a, count in b) for each n-gram in either.
template <class Visit>
void merge(const NGrams& a, const NGrams& b, const Visit& visit) {
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() || j != b.end()) {
    if (j == b.end() || (i != a.end() && i->ids < j->ids)) {
      visit(i->ids, i->count, int64_t{0});
      ++i;
    } else if (i == a.end() || j->ids < i->ids) {
      visit(j->ids, int64_t{0}, j->count);
      ++j;
    } else {
      visit(i->ids, i->count, j->count);
      ++i, ++j;
    }
  }
}

}  // namespace

NGrams count_ngrams(std::span<const int32_t> ids, size_t n) {
  LMX_CHECK(n >= 1 && n <= NGram::kLongest, n);
  NGrams all(ids.size() >= n ? ids.size() - n + 1 : 0);
  for (size_t i = 0; i < all.size(); ++i) {
    std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(i), n, all[i].ids.begin());
    all[i].count = 1;
  }
  std::sort(all.begin(), all.end(), [](const NGram& a, const NGram& b) { return a.ids < b.ids; });
  NGrams counted;
  for (const NGram& g : all) {
    if (!counted.empty() && counted.back().ids == g.ids) {
      ++counted.back().count;
    } else {
      counted.push_back(g);
    }
  }
  return counted;
}

NGrams larger_counts(const NGrams& a, const NGrams& b) {
  NGrams out;
  merge(a, b, [&](const auto& ids, int64_t x, int64_t y) { out.push_back({ids, std::max(x, y)}); });
  return out;
}

int64_t total(const NGrams& a) {
  int64_t sum = 0;
  for (const NGram& g : a) sum += g.count;
  return sum;
}

int64_t shared(const NGrams& a, const NGrams& b) {
  int64_t sum = 0;
  merge(a, b, [&](const auto&, int64_t x, int64_t y) { sum += std::min(x, y); });
  return sum;
}

}  // namespace lmx::app
