#include <cmath>
#include <string_view>
#include <unordered_map>

#include "app/scores/bleu.h"
#include "app/scores/translation_scores.h"
#include "app/text/utf8.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

struct Order {
  int64_t hypothesis = 0, reference = 0, shared = 0;
};
using OrderCounts = std::vector<Order>;  // for each order of characters, then of words

// Splits off a punctuation mark at a word's end or, if there is none, at its beginning.
std::vector<std::string> marked_words(const std::string& line) {
  constexpr std::string_view kMarks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  const auto is_mark = [&](char c) { return kMarks.find(c) != std::string_view::npos; };
  std::vector<std::string> out;
  for (const std::string& w : split_words(line)) {
    if (w.size() > 1 && is_mark(w.back())) {
      out.push_back(w.substr(0, w.size() - 1));
      out.push_back(w.substr(w.size() - 1));
    } else if (w.size() > 1 && is_mark(w[0])) {
      out.push_back(w.substr(0, 1));
      out.push_back(w.substr(1));
    } else {
      out.push_back(w);
    }
  }
  return out;
}

using Numbers = std::unordered_map<std::string, int32_t>;

// Returns the n-grams of one line, by order.
std::vector<NGrams> orders_of(const std::string& line, const ChrfOptions& options, Numbers& numbers) {
  const std::string text = options.lower_case ? lower_case(line) : line;
  std::vector<int32_t> characters, words;
  // Numbers are code points + 1, because zeros pad the n-grams.
  for (const char32_t c : code_points(text))
    if (!is_white_space(c)) characters.push_back(static_cast<int32_t>(c) + 1);
  if (options.word_order > 0)
    for (const std::string& w : marked_words(text))
      words.push_back(numbers.try_emplace(w, static_cast<int32_t>(numbers.size()) + 1).first->second);
  std::vector<NGrams> orders;
  for (int64_t n = 1; n <= options.char_order; ++n) orders.push_back(count_ngrams(characters, static_cast<size_t>(n)));
  for (int64_t n = 1; n <= options.word_order; ++n) orders.push_back(count_ngrams(words, static_cast<size_t>(n)));
  return orders;
}

// Ignores orders of which one side has no n-grams.
double f_score(const OrderCounts& orders, double beta) {
  double precision = 0, recall = 0;
  int64_t used = 0;
  for (const Order& o : orders) {
    if (o.hypothesis == 0 || o.reference == 0) continue;
    precision += static_cast<double>(o.shared) / static_cast<double>(o.hypothesis);
    recall += static_cast<double>(o.shared) / static_cast<double>(o.reference);
    ++used;
  }
  if (used == 0 || precision + recall == 0) return 0;
  precision /= static_cast<double>(used);
  recall /= static_cast<double>(used);
  const double factor = beta * beta;
  return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

OrderCounts compare(const std::vector<NGrams>& hypothesis, const std::vector<NGrams>& reference) {
  OrderCounts s(hypothesis.size());
  for (size_t i = 0; i < s.size(); ++i)
    s[i] = {reference[i].empty() ? 0 : total(hypothesis[i]), total(reference[i]), shared(hypothesis[i], reference[i])};
  return s;
}

void check(const ChrfOptions& o) {
  const auto longest = static_cast<int64_t>(NGram::kLongest);
  if (o.char_order < 1 || o.char_order > longest || o.word_order < 0 || o.word_order > longest)
    throw UserError(str("[chrf] orders of characters must be 1 to ", longest, " and of words 0 to ", longest, ", got ",
                        o.char_order, " and ", o.word_order));
  if (!(o.beta > 0) || std::isinf(o.beta)) throw UserError(str("[chrf] beta must be a number > 0, got ", o.beta));
}

class Chrf final : public CorpusMetric {
 public:
  explicit Chrf(const ChrfOptions& options) : options_(options) { check(options_); }
  std::string name() const override {
    return str("chrF", options_.beta, std::string(static_cast<size_t>(options_.word_order), '+'));
  }
  std::string settings() const override {
    return str("case:", options_.lower_case ? "lc" : "mixed", "|eff:yes|nc:", options_.char_order,
               "|nw:", options_.word_order, "|space:no");
  }
  SentenceStatistics statistics(const Lines& hypothesis, std::span<const Lines> references) const override {
    check_score_lines(hypothesis, references);
    SentenceStatistics all{3 * static_cast<size_t>(options_.char_order + options_.word_order), {}};
    for (size_t i = 0; i < hypothesis.size(); ++i) {
      for (const Order& o : best_of_line(hypothesis[i], references, i))
        for (const int64_t n : {o.hypothesis, o.reference, o.shared}) all.values.push_back(static_cast<double>(n));
    }
    return all;
  }
  double score(std::span<const double> sums) const override {
    OrderCounts orders;
    for (size_t k = 0; k + 2 < sums.size(); k += 3)
      orders.push_back(
          {static_cast<int64_t>(sums[k]), static_cast<int64_t>(sums[k + 1]), static_cast<int64_t>(sums[k + 2])});
    return f_score(orders, options_.beta);
  }

 private:
  OrderCounts best_of_line(const std::string& hypothesis, std::span<const Lines> references, size_t line) const {
    Numbers numbers;
    const std::vector<NGrams> ours = orders_of(hypothesis, options_, numbers);
    OrderCounts best;
    double best_score = -1;
    for (const Lines& reference : references) {
      const OrderCounts s = compare(ours, orders_of(reference[line], options_, numbers));
      const double score = f_score(s, options_.beta);
      if (score <= best_score) continue;
      best_score = score;
      best = s;
    }
    return best;
  }

  ChrfOptions options_;
};

}  // namespace

double chrf(const Lines& hypothesis, std::span<const Lines> references, const ChrfOptions& options) {
  const Chrf metric(options);
  return metric.score(metric.statistics(hypothesis, references).sums());
}

std::unique_ptr<CorpusMetric> make_chrf(const ChrfOptions& options) {
  return std::make_unique<Chrf>(options);
}

}  // namespace lmx::app
