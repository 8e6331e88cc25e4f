// Text that is drawn by chance, to count a step without its data: the frequencies of words and the mean length of
// sentences are those of text, but words do not depend on each other.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace lmx::data {

// Assumed tokens of each side of a pair, if only the total of many pairs is known: about the mean of news text in
// subwords.
inline constexpr int64_t kSentence = 28;

// `count` ids of a vocabulary; word w has a probability proportional to 1 / (w + 1) (Zipf).
std::vector<int32_t> drawn_words(uint64_t seed, int64_t count, int64_t vocabulary);

// The size of drawn data.
struct DrawnText {
  int64_t vocabulary = 0;
  int64_t tokens = 0, valid_tokens = 0;  // of each side for parallel text
  bool pairs = false;                    // parallel text
  int64_t longest = 0;                   // tokens of the longest sentence; 0: no limit
  int64_t string = 0;                    // mean tokens of the strings of a text of characters or bytes; 0: no strings
};
Dataset drawn_text(const DrawnText& size);

}  // namespace lmx::data
