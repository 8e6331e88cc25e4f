// Tokens that need no preparation of text: files of ids, and a synthetic source.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/corpora/sources.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/data.h"
#include "lmx/random.h"

namespace lmx::app {

using TokenFiles = std::array<std::vector<TokenArray::Part>, kSplits>;

// The files of each split. `data`: the section of the recipe, for the places of messages. UserError: no file, a header
// of another format, a file whose size differs from its header's.
TokenFiles find_token_files(const TokensConfig& config, const Node& data);
// Maps the files and checks a sample of their ids: the first and last 4,096 of each file, and one of 64 blocks between
// them. UserError: an id that is not below the vocabulary.
Dataset open_token_files(const TokensConfig& config, const Node& data);
// Checks every id of `tokens`. UserError as above.
void check_all_ids(const TokensConfig& config, const Node& data);

// A source of synthetic text whose entropy is known exactly.
//
// Words have Zipf frequencies z(w) ~ rank^-s. Each word u belongs to a class c(u). Each class prefers `branching`
// words, sampled by z without repetition and weighted by z. After u, the next token is </s> with probability
// 1/line_length (never after </s>), otherwise a word w with probability noise z(w) + (1 - noise) s_c(u)(w). The text is
// a first-order Markov chain: a perfect model needs only the previous token, and log p of every token is computed from
// the same numbers.

class MarkovSource {
 public:
  // REQUIRES: `branching` and `classes` are at most vocab_size - 2, as synthetic_config() checks.
  explicit MarkovSource(const SyntheticConfig& config);
  int32_t states() const { return words_ + 1; }  // state 0: </s>; state w > 0: the word of rank w
  double probability(int32_t before, int32_t next) const;
  // Samples `count` states one after the other, beginning with a state that follows </s>. A pure function of key.
  std::vector<int32_t> draw(RandomKey key, int64_t count) const;
  // Returns exp of the mean -log p(text[t] | text[t-1]) over t >= 1: the perplexity of a perfect model on `text`.
  double perplexity(std::span<const int32_t> text) const;
  // Returns the stationary probability of each state (power iteration to 1e-12). entropy_rate() derives the entropy per
  // token in nats from it.
  std::vector<double> stationary() const;
  double entropy_rate() const;
  // Returns a pronounceable artificial word for each state > 0, all different; "" for state 0.
  std::vector<std::string> make_words() const;

 private:
  struct Class {
    std::vector<int32_t> next;        // states, ascending
    std::vector<double> probability;  // s_c of these states, sum 1
    std::vector<double> cumulative;
  };
  SyntheticConfig config_;
  RandomKey key_;
  int32_t words_;
  double end_ = 0;                         // probability of </s> after a word
  std::vector<double> zipf_, cumulative_;  // by state - 1
  std::vector<Class> classes_;             // the last one is the class of </s>
  std::vector<size_t> class_of_;           // by state
};

Dataset make_synthetic(const SyntheticConfig& config);

}  // namespace lmx::app
