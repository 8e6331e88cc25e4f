#include "data/drawn_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx {
namespace {

// Lengths of strings spread like exp(0.3 z) for a normal z, so little that many shards of a text are about equally
// long.
constexpr double kSpread = 0.3;
constexpr int64_t kDrawn = int64_t{1} << 18;  // words that are drawn; a longer text repeats them

TextStrings strings_of(const TokenArray& tokens, int64_t mean, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<int32_t> lengths;
  const double middle = static_cast<double>(mean) * std::exp(-kSpread * kSpread / 2);
  for (int64_t left = tokens.size(); left > 0; left -= lengths.back()) {
    const int64_t length = std::llround(middle * std::exp(kSpread * key.normal(lengths.size())));
    lengths.push_back(static_cast<int32_t>(std::min(left, std::max<int64_t>(2, length))));
  }
  return TextStrings(TokenArray::of(std::move(lengths)));
}

// A side of parallel text: `count` sentences of `length` tokens, with their ends. All have the same length: a batcher
// gives sentences of similar lengths to a sub-batch, and with others a count would depend on the sub-batch of its rank.
TokenArray sentences(uint64_t seed, int64_t count, int64_t length, const DrawnWords& words) {
  std::vector<int32_t> ids = words.draw(seed, count * length);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool end = static_cast<int64_t>(i + 1) % length == 0;
    ids[i] = end ? Vocabulary::kEos : std::max(ids[i], Vocabulary::kEos + 1);
  }
  return TokenArray::of(std::move(ids));
}

struct Pairs {
  TokenArray source, target;
};
Pairs pairs_of(uint64_t seed, int64_t tokens, const DrawnText& size, const DrawnWords& words) {
  const int64_t length = size.longest > 0 ? std::clamp<int64_t>(size.longest, 2, kSentence) : kSentence;
  const int64_t count = std::max<int64_t>(1, tokens / length);
  return {sentences(2 * seed, count, length, words), sentences(2 * seed + 1, count, length, words)};
}

// The number of words of a text that has `types` different ones; infinity: no text that long has. `grid`: numbers of
// different words in texts of 2^(i / kGrid) words.
constexpr int kGrid = 4, kLongest = 50;  // parts of a factor of two; the longest text has 2^50 words
double words_with(double types, const std::vector<double>& grid, size_t& at) {
  while (at < grid.size() && grid[at] < types) ++at;
  if (at == grid.size()) return INFINITY;
  const double part = at == 0 ? 0 : (types - grid[at - 1]) / (grid[at] - grid[at - 1]);
  return std::exp2((at == 0 ? 0 : static_cast<double>(at) - 1 + part) / kGrid);
}

// Probabilities that are `factor / first[w]` for the words that a text contains late. Frequent words, of which all
// texts contain some, have what is left, and at least `kHead`.
std::vector<double> probabilities_of(const std::vector<double>& first, double factor) {
  constexpr double kHead = 0.5;
  std::vector<double> all(first.size());
  double tail = 0;
  size_t head = first.size();
  while (head > 1 && tail + factor / first[head - 1] <= 1 - kHead) {
    --head;
    tail += all[head] = factor / first[head];
  }
  double weights = 0;
  for (size_t w = 0; w < head; ++w) weights += 1 / (static_cast<double>(w) + 1);
  for (size_t w = 0; w < head; ++w) all[w] = (1 - tail) / (weights * (static_cast<double>(w) + 1));
  return all;
}

double expected_types(const std::vector<double>& probabilities, double words) {
  double types = 0;
  for (const double p : probabilities) types -= std::expm1(-words * p);
  return types;
}

}  // namespace

WordLaw WordLaw::of_counts(std::string name, std::vector<double> counts) {
  WordLaw law;
  law.name_ = std::move(name);
  law.counts_ = std::move(counts);
  return law;
}

WordLaw WordLaw::of_types(std::string name, std::function<double(double)> types) {
  WordLaw law;
  law.name_ = std::move(name);
  law.types_ = std::move(types);
  return law;
}

std::vector<double> WordLaw::probabilities(int64_t vocabulary, int64_t words) const {
  const auto most = static_cast<size_t>(vocabulary);
  if (!counts_.empty()) {
    std::vector<double> all(counts_.begin(), counts_.begin() + static_cast<long>(std::min(most, counts_.size())));
    const double sum = std::accumulate(counts_.begin(), counts_.end(), 0.0);
    for (size_t w = all.size(); w < counts_.size(); ++w) all.back() += counts_[w];
    for (double& p : all) p /= sum;
    return all;
  }
  if (!types_) return {};
  std::vector<double> grid, first;
  for (int i = 0; i <= kGrid * kLongest; ++i) grid.push_back(types_(std::exp2(static_cast<double>(i) / kGrid)));
  for (size_t w = 0, at = 0; w < most; ++w) {
    const double n = words_with(static_cast<double>(w) + 1, grid, at);
    if (!std::isfinite(n)) break;
    first.push_back(std::max(n, static_cast<double>(w) + 1));
  }
  if (first.empty()) first.push_back(1);
  const auto text = static_cast<double>(words);
  const double wanted = std::min({types_(text), text, static_cast<double>(first.size())});
  double low = 1e-3, high = 1e3;  // of the factor; 1 / Gamma(1 - b)^(1 / b) for a power of exponent b
  constexpr int kHalvings = 24;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = std::sqrt(low * high);
    (expected_types(probabilities_of(first, middle), text) < wanted ? low : high) = middle;
  }
  return probabilities_of(first, high);
}

DrawnWords::DrawnWords(const WordLaw& law, int64_t vocabulary, int64_t words)
    : vocabulary_(vocabulary), until_(law.probabilities(vocabulary, words)) {
  if (until_.empty()) return;
  std::partial_sum(until_.begin(), until_.end(), until_.begin());
  constexpr int kParts = 1 << 16;
  for (int i = 0, word = 0; i < kParts; ++i) {
    const double begin = static_cast<double>(i) / kParts * until_.back();
    while (until_[static_cast<size_t>(word)] <= begin) ++word;
    guide_.push_back(word);
  }
}

std::vector<int32_t> DrawnWords::draw(uint64_t seed, int64_t count) const {
  if (until_.empty()) return drawn_words(seed, count, vocabulary_);
  const RandomKey key = RandomKey(seed).fold("words");
  std::vector<int32_t> words(static_cast<size_t>(count));
  for (size_t i = 0; i < words.size(); ++i) {
    const double u = key.uniform(i);
    auto word = guide_[static_cast<size_t>(u * static_cast<double>(guide_.size()))];
    while (static_cast<size_t>(word) + 1 < until_.size() && until_[static_cast<size_t>(word)] <= u * until_.back())
      ++word;
    words[i] = word;
  }
  return words;
}

// If u is uniform on [0, 1), then V^u is distributed like that.
std::vector<int32_t> drawn_words(uint64_t seed, int64_t count, int64_t vocabulary) {
  const RandomKey key = RandomKey(seed).fold("words");
  const double bits = std::log(static_cast<double>(vocabulary));
  std::vector<int32_t> words(static_cast<size_t>(count));
  for (size_t i = 0; i < words.size(); ++i) {
    const double rank = std::exp(bits * key.uniform(i));
    words[i] = static_cast<int32_t>(std::min(static_cast<double>(vocabulary), rank)) - 1;
  }
  return words;
}

Dataset drawn_text(const DrawnText& size) {
  Dataset data;
  data.vocabulary = Vocabulary::unnamed(size.vocabulary);
  data.hash = "drawn";
  data.separator = static_cast<int32_t>(size.vocabulary);  // which is not drawn: the whole text is one document
  const DrawnWords words(size.law, size.vocabulary, size.step);
  if (size.pairs) {
    data.unit = "subword";
    const Pairs train = pairs_of(1, size.tokens, size, words), valid = pairs_of(2, size.valid_tokens, size, words);
    data.train = train.target;
    data.valid = valid.target;
    data.train_pairs = PairArray(train.source, train.target);
    data.valid_pairs = PairArray(valid.source, valid.target);
    return data;
  }
  const auto text = [&](uint64_t seed, int64_t tokens) {
    return TokenArray::repeated(words.draw(seed, std::clamp<int64_t>(tokens, 1, kDrawn)), tokens);
  };
  data.train = text(1, size.tokens);
  data.valid = text(2, size.valid_tokens);
  if (size.string > 0) {
    data.unit = "char";
    data.train_strings = strings_of(data.train, size.string, 3);
    data.valid_strings = strings_of(data.valid, size.string, 4);
  }
  return data;
}

}  // namespace lmx
