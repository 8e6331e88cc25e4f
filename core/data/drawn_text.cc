#include "data/drawn_text.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::data {
namespace {

// Lengths of sentences spread like exp(0.6 z) for a normal z; in news text, 0.6 to 0.7. Strings are alike and short, so
// that many shards of a text are about equally long.
constexpr double kSpread = 0.6, kStringSpread = 0.3;
constexpr int64_t kString = 64;               // mean tokens of a string of characters
constexpr int64_t kDrawn = int64_t{1} << 18;  // words that are drawn; a longer text repeats them

std::vector<int32_t> drawn_lengths(RandomKey key, int64_t mean, double spread, int64_t longest, int64_t total) {
  std::vector<int32_t> lengths;
  const double middle = static_cast<double>(mean) * std::exp(-spread * spread / 2);
  for (int64_t left = total; left > 0; left -= lengths.back()) {
    const double length = middle * std::exp(spread * key.normal(lengths.size()));
    lengths.push_back(
        static_cast<int32_t>(std::clamp<int64_t>(std::llround(length), 2, std::clamp<int64_t>(left, 2, longest))));
  }
  return lengths;
}

TextStrings strings_of(const TokenArray& tokens, uint64_t seed) {
  std::vector<int32_t> lengths = drawn_lengths(RandomKey(seed), kString, kStringSpread, tokens.size(), tokens.size());
  int64_t sum = 0;
  for (const int32_t n : lengths) sum += n;
  lengths.back() -= static_cast<int32_t>(sum - tokens.size());
  return TextStrings(TokenArray::of(std::move(lengths)));
}

// A side of parallel text: the sentences have these lengths, with their ends.
TokenArray sentences(uint64_t seed, const std::vector<int32_t>& lengths, int64_t vocabulary) {
  int64_t total = 0;
  for (const int32_t n : lengths) total += n;
  std::vector<int32_t> ids = drawn_words(seed, total, vocabulary);
  for (int32_t& id : ids) id = std::max(id, Vocabulary::kEos + 1);
  int64_t end = 0;
  for (const int32_t n : lengths) ids[static_cast<size_t>((end += n) - 1)] = Vocabulary::kEos;
  return TokenArray::of(std::move(ids));
}

struct Pairs {
  TokenArray source, target;
};
// A sentence and its translation are about equally long.
Pairs pairs_of(uint64_t seed, int64_t tokens, const DrawnText& size) {
  const int64_t longest = size.longest > 0 ? std::max<int64_t>(2, size.longest) : tokens;
  const std::vector<int32_t> target = drawn_lengths(RandomKey(seed), kSentence, kSpread, longest, tokens);
  std::vector<int32_t> source = target;
  const RandomKey key = RandomKey(seed).fold("source");
  for (size_t i = 0; i < source.size(); ++i) {
    const double length = source[i] * std::exp(0.2 * key.normal(i));
    source[i] = static_cast<int32_t>(std::clamp<int64_t>(std::llround(length), 2, longest));
  }
  return {sentences(2 * seed, source, size.vocabulary), sentences(2 * seed + 1, target, size.vocabulary)};
}

}  // namespace

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
  if (size.pairs) {
    data.unit = "subword";
    const Pairs train = pairs_of(1, size.tokens, size), valid = pairs_of(2, size.valid_tokens, size);
    data.train = train.target;
    data.valid = valid.target;
    data.train_pairs = PairArray(train.source, train.target);
    data.valid_pairs = PairArray(valid.source, valid.target);
    return data;
  }
  const auto text = [&](uint64_t seed, int64_t tokens) {
    return TokenArray::repeated(drawn_words(seed, std::clamp<int64_t>(tokens, 1, kDrawn), size.vocabulary), tokens);
  };
  data.train = text(1, size.tokens);
  data.valid = text(2, size.valid_tokens);
  if (size.strings) {
    data.unit = "char";
    data.train_strings = strings_of(data.train, 3);
    data.valid_strings = strings_of(data.valid, 4);
  }
  return data;
}

}  // namespace lmx::data
