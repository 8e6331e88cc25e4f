#include "data/drawn_text.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::data {
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
TokenArray sentences(uint64_t seed, int64_t count, int64_t length, int64_t vocabulary) {
  std::vector<int32_t> ids = drawn_words(seed, count * length, vocabulary);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool end = static_cast<int64_t>(i + 1) % length == 0;
    ids[i] = end ? Vocabulary::kEos : std::max(ids[i], Vocabulary::kEos + 1);
  }
  return TokenArray::of(std::move(ids));
}

struct Pairs {
  TokenArray source, target;
};
Pairs pairs_of(uint64_t seed, int64_t tokens, const DrawnText& size) {
  const int64_t length = size.longest > 0 ? std::clamp<int64_t>(size.longest, 2, kSentence) : kSentence;
  const int64_t count = std::max<int64_t>(1, tokens / length);
  return {sentences(2 * seed, count, length, size.vocabulary), sentences(2 * seed + 1, count, length, size.vocabulary)};
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
  if (size.string > 0) {
    data.unit = "char";
    data.train_strings = strings_of(data.train, size.string, 3);
    data.valid_strings = strings_of(data.valid, size.string, 4);
  }
  return data;
}

}  // namespace lmx::data
