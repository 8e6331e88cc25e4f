// Rows of parameters that take part in a step (Xiao 2017, sections 3 and 4).
//
// Random sets are pure functions of a key and the number of rows, so they need no checkpoint, and every rank can
// compute another rank's set. Rows ascend.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/loss.h"
#include "lmx/parameters.h"
#include "lmx/random.h"

namespace lmx {

// `percent` of n rows, to the nearest integer.
LMX_API int64_t rows_of_percent(double percent, int64_t n);
// `count` different rows of [0, n); every set of that size is equally likely.
LMX_API std::vector<int32_t> random_rows(RandomKey key, int64_t count, int64_t n);
// `count` different rows of [0, n) that are not in `taken`, which ascends; all such rows if there are fewer.
LMX_API std::vector<int32_t> additional_rows(RandomKey key, std::span<const int32_t> taken, int64_t count, int64_t n);
// The union of both lists, each row once.
LMX_API std::vector<int32_t> union_rows(std::span<const int32_t> a, std::span<const int32_t> b);

// V_all, the union of V_base, V_alpha and V_beta.
struct LMX_API RowShares {
  double p = 10, q = 10;
  void fields(Fields& f);
};
// The union of `words` (V_base; any order, with repetitions), the first p percent of n rows (the most frequent words,
// as ids follow falling frequency) and q percent of all n rows, sampled with `key`. The sets may overlap, and p and q
// may add up to more than 100. InternalError: a word outside [0, n).
LMX_API std::vector<int32_t> select_rows(RandomKey key, std::span<const int32_t> words, const RowShares& shares, int64_t n);

// The expected number of different words in a text of `n` words whose frequencies follow Zipf's law (word w has the
// probability 1 / (w H)).
LMX_API int64_t expected_words(int64_t n, int64_t vocabulary);

// Keys of a strategy that exchanges only some rows of its parameters.
struct LMX_API RowRule {
  RowShares shares = {};
  double hidden_q = 90;
  std::string softmax = "softmax", embedding = "embedding", source = "^encoder";
  std::string draw = "rank";
  void fields(Fields& f);
  void check(const std::string& where) const;  // UserError: an invalid pattern (lmx/config.h)
};

// Selects the rows of each parameter that a rank exchanges in a step.
class LMX_API RowSelector {
 public:
  enum class Kind : uint8_t {
    softmax,    // V_all; for a tied table (`embedding` matches it too) also the words that it reads
    embedding,  // the words that it reads
    hidden,     // hidden_q percent at random, equal for matrices of one layer with the same number of rows
    whole       // all rows: vectors, and tables and matrices without selection
  };
  RowSelector(RowRule rule, const std::vector<ParameterSpec>& params, RandomKey key);
  // UserError: a pattern that is not the default and matches no parameter; p or q without a table of the output layer.
  // `where`: the rule's place in the recipe.
  void check(const std::string& where) const;
  Kind kind(const std::string& name) const;
  // Selects the rows of step plan.step. `inputs`, `targets`, `source`: the words of this rank's whole share. Sets
  // plan.rows for parameters of kind softmax. If sets_candidate_key() is true, also gives the plan a sampler key of
  // this rank. `hidden_rank` seeds the hidden rows; synchronous ranks must pass the same number.
  void begin_step(StepPlan& plan, int rank, int hidden_rank, std::span<const int32_t> inputs,
                  std::span<const int32_t> targets, std::span<const int32_t> source = {});
  bool sets_candidate_key() const;
  // The rows of this step. InternalError for a parameter of kind `whole`.
  const std::vector<int32_t>& rows(const std::string& name) const;
  std::string describe() const;  // which rows of which parameters, in one line

 private:
  struct Selected {
    Kind kind;
    int64_t rows;                         // of the parameter
    std::string layer;                    // its name up to the last dot
    bool inputs = false, source = false;  // the words that read it
  };
  RowRule rule_;
  RandomKey key_;
  std::map<std::string, Selected> params_;
  std::map<std::string, std::vector<int32_t>> rows_;
};

}  // namespace lmx
