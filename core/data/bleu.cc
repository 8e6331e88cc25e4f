#include "lmx/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "config/messages.h"
#include "data/ngrams.h"
#include "data/score_lines.h"
#include "data/score_tokenizers.h"
#include "data/utf8.h"
#include "lmx/error.h"

namespace lmx {
namespace {

using namespace data;

constexpr size_t kOrder = 4;

// Sums over the corpus.
struct Statistics {
  std::array<int64_t, kOrder> matches{}, ngrams{};
  int64_t hypothesis_length = 0, reference_length = 0;
};

// Words of one line and its references as numbers.
class Numbering {
 public:
  std::vector<int32_t> ids(const std::vector<std::string>& words) {
    std::vector<int32_t> out;
    // From 1 on: zeros fill the n-grams up.
    for (const std::string& w : words)
      out.push_back(numbers_.try_emplace(w, static_cast<int32_t>(numbers_.size()) + 1).first->second);
    return out;
  }

 private:
  std::unordered_map<std::string, int32_t> numbers_;
};

class Words {
 public:
  explicit Words(const BleuOptions& options) : options_(options), tokenize_(find_score_tokenizer(options.tokenizer)) {}
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

void add_line(Statistics& sum, const std::string& hypothesis, const std::vector<const std::string*>& references,
              const Words& words) {
  Numbering numbering;
  const std::vector<int32_t> ids = numbering.ids(words.of(hypothesis));
  std::array<NGrams, kOrder> most;  // of each n-gram the largest count in any reference
  const auto length = static_cast<int64_t>(ids.size());
  int64_t nearest = -1;
  for (const std::string* reference : references) {
    const std::vector<int32_t> other = numbering.ids(words.of(*reference));
    const auto n = static_cast<int64_t>(other.size());
    const int64_t distance = std::abs(n - length), best = std::abs(nearest - length);
    if (nearest < 0 || distance < best || (distance == best && n < nearest)) nearest = n;
    for (size_t i = 0; i < kOrder; ++i) most[i] = larger_counts(most[i], count_ngrams(other, i + 1));
  }
  for (size_t i = 0; i < kOrder; ++i) {
    sum.matches[i] += shared(count_ngrams(ids, i + 1), most[i]);
    sum.ngrams[i] += std::max<int64_t>(length - static_cast<int64_t>(i), 0);
  }
  sum.hypothesis_length += length;
  sum.reference_length += nearest;
}

double smooth_value(const BleuOptions& options) {
  return options.smooth_value.value_or(options.smoothing == "floor" ? 0.1 : 1.0);
}

bool has_value(const BleuOptions& options) {
  return options.smoothing == "floor" || options.smoothing == "add-k";
}

void check(const BleuOptions& options) {
  const std::vector<std::string> names{"exp", "floor", "add-k", "none"};
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
  r.hypothesis_length = s.hypothesis_length;
  r.reference_length = s.reference_length;
  const auto hypothesis = static_cast<double>(s.hypothesis_length), reference = static_cast<double>(s.reference_length);
  r.brevity_penalty = hypothesis >= reference ? 1.0 : hypothesis > 0 ? std::exp(1 - reference / hypothesis) : 0.0;
  std::copy(s.matches.begin(), s.matches.end(), r.matches.begin());
  std::copy(s.ngrams.begin(), s.ngrams.end(), r.ngrams.begin());
  if (s.matches == std::array<int64_t, kOrder>{}) return r;
  double halving = 1;
  for (size_t n = 0; n < kOrder; ++n) {
    if (options.smoothing == "add-k" && n > 0) {
      r.matches[n] += smooth_value(options);
      r.ngrams[n] += smooth_value(options);
    }
    if (r.ngrams[n] == 0) break;
    if (r.matches[n] > 0) {
      r.precisions[n] = 100 * r.matches[n] / r.ngrams[n];
    } else if (options.smoothing == "exp") {
      r.precisions[n] = 100 / ((halving *= 2) * r.ngrams[n]);
    } else if (options.smoothing == "floor") {
      r.precisions[n] = 100 * smooth_value(options) / r.ngrams[n];
    }
  }
  double logs = 0;
  for (const double p : r.precisions) logs += p > 0 ? std::log(p) : -INFINITY;
  r.score = r.brevity_penalty * std::exp(logs / kOrder);
  return r;
}

std::string formatted(const char* format, const BleuScore& s) {
  const double ratio =
      s.reference_length ? static_cast<double>(s.hypothesis_length) / static_cast<double>(s.reference_length) : 0;
  const auto& p = s.precisions;
  char text[256];
  std::snprintf(text, sizeof text, format, s.score, p[0], p[1], p[2], p[3], s.brevity_penalty, ratio,
                static_cast<long long>(s.hypothesis_length), static_cast<long long>(s.reference_length));
  return text;
}

}  // namespace

void data::check_score_lines(const Lines& hypothesis, std::span<const Lines> references) {
  if (references.empty()) throw UserError("[bleu] there is no reference to compare with");
  if (hypothesis.empty()) throw UserError("[bleu] there is nothing to score: the hypothesis has no lines");
  for (size_t r = 0; r < references.size(); ++r)
    if (references[r].size() != hypothesis.size())
      throw UserError(str("[bleu] the hypothesis has ", hypothesis.size(), " lines and reference ", r + 1, " has ",
                          references[r].size(), "; line i of one must translate what line i of the other does"));
}

BleuScore bleu(const Lines& hypothesis, std::span<const Lines> references, const BleuOptions& options) {
  check(options);
  const Words words(options);
  check_score_lines(hypothesis, references);
  Statistics sum;
  std::vector<const std::string*> of_line(references.size());
  for (size_t i = 0; i < hypothesis.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) of_line[r] = &references[r][i];
    add_line(sum, hypothesis[i], of_line, words);
  }
  return score_of(sum, options);
}

BleuOptions multi_bleu_options(bool lower_case, bool split_compounds) {
  return {"none", "none", {}, lower_case, split_compounds};
}

std::string bleu_signature(const BleuOptions& options, size_t references) {
  char value[64] = "";
  if (has_value(options)) std::snprintf(value, sizeof value, "[%.2f]", smooth_value(options));
  return str("nrefs:", references, "|case:", options.lower_case ? "lc" : "mixed", "|eff:no|tok:", options.tokenizer,
             options.split_compounds ? "+compounds" : "", "|smooth:", options.smoothing, value, "|version:lmx-",
             kVersion);
}

std::string bleu_text(const BleuScore& score) {
  return formatted("%.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)", score);
}

std::string multi_bleu_text(const BleuScore& score) {
  return formatted("BLEU = %.2f, %.1f/%.1f/%.1f/%.1f (BP=%.3f, ratio=%.3f, hyp_len=%lld, ref_len=%lld)", score);
}

}  // namespace lmx
