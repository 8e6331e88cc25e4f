// Likelihoods of lines of text and of given translations: `lmx score`.
#pragma once

#include <cstdint>
#include <string>

#include "app/pairs/parallel_text.h"

namespace lmx {

struct ScoreLinesOptions {
  std::string checkpoint = "last";
  int64_t batch = 32;           // lines per batch
  int64_t max_length = 20'000;  // tokens; a longer line is not scored
  bool json = false;            // writes one JSON object per line, with all digits (docs/json.md)
  std::string device = {};      // as recipe_of_run()
};
struct LineScores {
  int64_t lines = 0, tokens = 0;      // of the lines that were scored; tokens are targets
  int64_t too_long = 0, unknown = 0;  // lines that were not scored; targets that the vocabulary lacks
  double nats = 0;                    // minus the sum of log-likelihoods
  std::string unit;                   // what a token is
};
// Writes the likelihoods of lines of text under a language model. Each line is scored separately, after a line end. For
// line i of `input` (`-`: standard input), `output` gets a line `mean<TAB>sum<TAB>tokens` of log-likelihoods in nats
// over its tokens. The tokens include the line end if the run's text has line ends. A line that is too long gets
// `-inf<TAB>-inf<TAB>0`. UserError: a run that translates, invalid UTF-8.
LineScores score_lines(const std::string& run, const ScoreLinesOptions& options, const std::string& input,
                       const std::string& output);

struct ScorePairsOptions {
  std::string checkpoint = "last";
  int64_t batch = 32;
  int64_t max_length = 1000;  // subwords per side; a pair with a longer side is not scored
  bool json = false;          // writes one JSON object per line, with all digits (docs/json.md)
  std::string device = {};    // as recipe_of_run()
};
// Writes the likelihoods of given pairs of sentences: for line i of `source` and `target` a line
// `mean<TAB>sum<TAB>tokens` of log-likelihoods in nats over the target's tokens, including </s>. A pair that is too
// long gets `-inf<TAB>-inf<TAB>0`. Returns the number of pairs. UserError: different line counts (the message contains
// both), after all pairs are written.
int64_t score_files(const std::string& run, const ScorePairsOptions& options, const std::string& source,
                    const std::string& target, const std::string& output);

// Writes the likelihoods of all pairs under a run's model, one line each in the format of score_files.
// TopOptions::scores reads this file. Returns the number of pairs. UserError, after all pairs before it are written: a
// line that is not UTF-8 or has too few columns.
int64_t score_pairs(const std::string& run, const ScorePairsOptions& options, const PairTextFiles& files,
                    const std::string& output);

}  // namespace lmx

// The output format of `lmx score` for the likelihood of one line.

namespace lmx::train {

// Returns `mean<TAB>sum<TAB>tokens` with six decimals. With `json`, returns an object with all digits and `line`, which
// counts from 0: {"line":0,"mean":-2.5,"sum":-10.0,"tokens":4}. `sum` is the log-likelihood of the tokens in nats. A
// line that is not scored has `sum` -inf and 0 tokens.
std::string score_line(int64_t line, double sum, int64_t tokens, bool json);

}  // namespace lmx::train
