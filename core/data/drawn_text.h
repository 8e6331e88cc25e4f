// Text that is drawn by chance, to count a step without its data: the frequencies of words and the mean length of
// sentences are those of text, but words do not depend on each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace lmx {

// Assumed tokens of each side of a pair, if only the total of many pairs is known: about the mean of news text in
// subwords.
inline constexpr int64_t kSentence = 28;

// How often words occur in a text.
class WordLaw {
 public:
  WordLaw() = default;  // Zipf: word w has a probability proportional to 1 / (w + 1)
  // `counts`: of the words of a text, falling. The words that a vocabulary does not contain are one word.
  static WordLaw of_counts(std::string name, std::vector<double> counts);
  // `types`: the number of different words in a text of that many words, which does not fall.
  static WordLaw of_types(std::string name, std::function<double(double words)> types);
  const std::string& name() const { return name_; }  // "" for Zipf; laws of one name are equal
  // The probability of each word of a vocabulary. In a text of `words` words, the expected number of different ones is
  // that of `types`, if probabilities with this property exist. Empty for Zipf.
  std::vector<double> probabilities(int64_t vocabulary, int64_t words) const;

 private:
  std::string name_;
  std::vector<double> counts_;
  std::function<double(double)> types_;
};

// `count` ids of a vocabulary by Zipf's law.
std::vector<int32_t> drawn_words(uint64_t seed, int64_t count, int64_t vocabulary);

// The words of a law, which one text of `words` words is drawn from in parts.
class DrawnWords {
 public:
  DrawnWords(const WordLaw& law, int64_t vocabulary, int64_t words);
  std::vector<int32_t> draw(uint64_t seed, int64_t count) const;

 private:
  int64_t vocabulary_;
  std::vector<double> until_;   // by word: the probability of this word and those before it; empty: Zipf
  std::vector<int32_t> guide_;  // by part of [0, 1): the first word whose `until_` is above its begin
};

// The size of drawn data.
struct DrawnText {
  int64_t vocabulary = 0;
  int64_t tokens = 0, valid_tokens = 0;  // of each side for parallel text
  bool pairs = false;                    // parallel text
  int64_t longest = 0;                   // tokens of the longest sentence; 0: no limit
  int64_t string = 0;                    // mean tokens of the strings of a text of characters or bytes; 0: no strings
  WordLaw law = {};
  int64_t step = 0;  // tokens of a step of all ranks, for WordLaw::probabilities()
};
Dataset drawn_text(const DrawnText& size);

}  // namespace lmx
