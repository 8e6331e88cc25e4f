// Rows of parameters that take part in a step (Xiao 2017, sections 3 and 4; FACTS A2.2, A2.3).
//
// Random sets are pure functions of a key and the number of rows: nothing to checkpoint, and every rank can know
// another's. Rows ascend.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/parameters.h"
#include "lmx/random.h"
#include "lmx/step_plan.h"

namespace lmx {

// `percent` of n rows, to the nearest integer.
LMX_API int64_t rows_of_percent(double percent, int64_t n);
// `count` different rows of [0, n), each set of that size equally likely.
LMX_API std::vector<int32_t> random_rows(RandomKey key, int64_t count, int64_t n);
// `count` different rows of [0, n) without `taken`, which ascends; all that are left where they are fewer.
LMX_API std::vector<int32_t> additional_rows(RandomKey key, std::span<const int32_t> taken, int64_t count, int64_t n);
// The rows of both, each once.
LMX_API std::vector<int32_t> union_rows(std::span<const int32_t> a, std::span<const int32_t> b);

// V_all = V_base, V_alpha and V_beta together.
struct LMX_API RowShares {
  double p = 10, q = 10;
  void fields(Fields& f);
};
// `words` (V_base) in any order, with repetitions; the first p percent of n rows, as ids go by falling frequency; q
// percent drawn by `key` from all n. The shares may overlap, and be more than 100 together. InternalError: a word outside
// [0, n).
LMX_API std::vector<int32_t> select_rows(RandomKey key, std::span<const int32_t> words, const RowShares& shares, int64_t n);

// How many different words `n` words of a text are expected to hold, frequencies falling as Zipf's law says (word w is
// one in w H); `shares` given: how many select_rows() makes of them, where `draws` ranks each draw the q percent.
LMX_API int64_t expected_words(int64_t n, int64_t vocabulary, const RowShares& shares = {0, 0}, int draws = 1);

// Keys of a strategy that moves only some rows of its parameters.
struct LMX_API RowRule {
  RowShares shares = {};
  double hidden_q = 90;
  std::string softmax = "softmax", embedding = "embedding", source = "^encoder";
  std::string draw = "rank";
  void fields(Fields& f);
  void check(const std::string& where) const;  // UserError: a pattern (lmx/param_pattern.h) that is none
};

// Which rows of which parameters a rank moves in a step.
class LMX_API RowSelector {
 public:
  enum class Kind : uint8_t {
    softmax,    // V_all; a tied table (`embedding` matches it too): the words that it reads as well
    embedding,  // the words that it reads
    hidden,     // hidden_q percent at random, the same for matrices of one layer with equally many rows
    whole       // all: vectors, and tables and matrices of which nothing is left out
  };
  RowSelector(RowRule rule, const std::vector<ParameterSpec>& params, RandomKey key);
  // UserError: a pattern that is not the default and fits no parameter, p or q without a table of the output layer.
  // `where`: the rule's place in the recipe.
  void check(const std::string& where) const;
  Kind kind(const std::string& name) const;
  // Draws the rows of step plan.step. `inputs`, `targets`, `source`: the words of the rank's whole share. Fills
  // plan.rows for softmax parameters, and where ranks draw for themselves gives the plan a sampler key of this rank's
  // own. `hidden_rank`: whose hidden rows; ranks that go in step pass the same number.
  void begin_step(StepPlan& plan, int rank, int hidden_rank, std::span<const int32_t> inputs,
                  std::span<const int32_t> targets, std::span<const int32_t> source = {});
  bool sets_candidate_key() const;
  // Of this step. InternalError for a parameter of kind `whole`.
  const std::vector<int32_t>& rows(const std::string& name) const;
  // How many rows of a parameter of another kind than `whole` a step is expected to move, all of `ranks` ranks
  // together, each with `words` words of inputs and as many of targets.
  int64_t expected(const std::string& name, int64_t words, int ranks) const;
  std::string describe() const;  // what is selected of what, in one line

 private:
  struct Selected {
    Kind kind;
    int64_t rows;          // of the parameter
    std::string layer;     // its name up to the last point
    bool inputs = false, source = false;  // which words read it
  };
  RowRule rule_;
  RandomKey key_;
  std::map<std::string, Selected> params_;
  std::map<std::string, std::vector<int32_t>> rows_;
};

}  // namespace lmx
