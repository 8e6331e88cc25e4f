// Statistics of text that is not prepared: its length from a sample, and counts before a recipe exists.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "lmx/config.h"

namespace lmx::app {

// The length of a training text from a sample, for estimates of text that is not prepared.

// Returns about how many tokens the training split of `data` has: those of up to four parts of a megabyte, counted by
// the rules of `data`, in proportion to the bytes of the files. A subword of parallel text is taken as 4 bytes.
// Nothing: a missing corpus, compressed files, synthetic text.
std::optional<int64_t> sampled_train_tokens(const Node& data);

// Statistics of text files, counted before a recipe exists: `lmx new` chooses a recipe's values from them.
struct TextSurvey {
  int64_t files = 0, bytes = 0;           // bytes on disk
  int64_t lines = 0, valid_lines = 0;     // of all splits; of the validation split
  int64_t characters = 0;                 // code points (or bytes) of all splits, including line ends
  int64_t valid_characters = 0;           // of the validation split
  int64_t blanks = 0;                     // white space within lines
  int64_t words = 0, train_words = 0;     // by lmx's rules, without the </s> of each line
  std::vector<int64_t> word_counts;       // occurrences of each word of the training split, the largest first
  int64_t spelled_words = 0;              // different words of the training split that begin with two letters
  std::vector<int64_t> character_counts;  // occurrences of each character, likewise; without line ends
};
// Counts the text that `data` names: a `data: {name: text}` without `vocab_size`. With `tokens: bytes` the text need
// not be UTF-8, and its words are not counted. Memory grows only with the number of different words. UserError: as a
// preparation of the text (files that are missing or empty, invalid UTF-8).
TextSurvey survey_text(const Node& data);

struct PairSurvey {
  int64_t pairs = 0, valid_pairs = 0;
  std::array<int64_t, 2> bytes{}, words{};  // source, target; white space separates words
  int64_t longest = 0;                      // words of the longest sentence of either side
  int64_t types = 0, characters = 0;        // different words and characters of both sides together
};
// Counts the pairs that `data` names: a `data: {name: parallel}` without `vocab_size`. UserError: as a preparation
// (files with different numbers of lines, a missing side, invalid UTF-8).
PairSurvey survey_pairs(const Node& data);

}  // namespace lmx::app
