// Likelihoods under a trained run: of a split or any text (`lmx eval`), and of lines of text and given translations
// (`lmx score`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/pairs/parallel_text.h"
#include "app/translation/search.h"

namespace lmx::app {

// BLEU scores of a translation run.
struct TranslationQuality {
  std::string split;
  double bleu = 0, multi_bleu = 0;  // 0 to 100
  // multi-bleu with compounds split at their hyphens exactly once (`lmx bleu --split-compounds`). Equals `multi_bleu`
  // if the preparation already splits at dashes (`aggressive_dashes`).
  double multi_bleu_split = 0;
  std::string bleu_line, multi_bleu_line, multi_bleu_split_line;  // as `lmx bleu` prints them, signature included
  int64_t averaged = 1;  // number of the run's last checkpoints whose mean translated
};

// The splits that can be evaluated: train, valid, test.
const std::vector<std::string>& eval_splits();

struct EvalOptions {
  std::string split = "valid";      // train, valid, test
  std::string checkpoint = "last";  // last, best, a step, or a file or folder of parameters
  bool translate = true;            // score a translation run by BLEU, too (valid and test)
  SearchOptions search;             // of the translation
  // For chars and bytes: if > 0, also evaluates the split's strings, sampled without replacement into so many shards.
  // The model reads each shard from a zero state (Puri 2018: 16 shards of the test split). 0: no such evaluation.
  int64_t shards = 0;
  int64_t seed = 1;  // of that sampling
  // Text files, directories or globs that are evaluated instead of a split, prepared as the run's own text was; `field`
  // names the column or field of .csv and .jsonl files.
  std::vector<std::string> text = {};
  std::string field = {};
  std::string device = {};  // as recipe_of_run()
};
// The mean over shards of each shard's mean negative log-likelihood in nats per token.
struct ShardEval {
  int64_t shards = 0, tokens = 0;
  double nll_nat = 0, least = 0, most = 0;
};
// The likelihood of a split per word. Unlike the perplexity per token, it is comparable between different subword
// vocabularies.
struct WordEval {
  int64_t words = 0;    // words before they were divided into subwords, plus one </s> per sentence
  int64_t unknown = 0;  // words that contain <unk>, so the model predicts less than the word
  double ppl = 0;       // exp(nats of all targets / words)
};
struct EvalResult {
  int64_t step = 0;                // -1: a file of parameters, which has none
  int64_t tokens = 0;              // targets
  double nll_nat = 0;              // mean over the targets, under the full softmax
  double ppl = 0;                  // exp(nll_nat)
  std::string unit;                // what a token is: word, char, byte, subword
  std::optional<double> true_ppl;  // valid split only
  std::optional<WordEval> words;   // only if tokens are subwords
  std::optional<TranslationQuality> translation;
  // For chars and bytes: the bytes of the split's text divided by the bytes of a code that has the split's likelihood
  // (Patwary 2018, V-C). Characters that the text replaces by <unk> count as if the code contained them.
  std::optional<double> compression_ratio;
  std::optional<ShardEval> sharded;
  int64_t unknown = 0;             // for EvalOptions::text: tokens that are not in the vocabulary and count as <unk>
  std::optional<double> bpb = {};  // for subwords of text: bits per byte, comparable between tokenizers
  std::vector<std::pair<std::string, double>> metrics = {};  // those of the run's recipe
};
// Evaluates a checkpoint of the run in `directory` on a whole split. UserError: no run, no such checkpoint, a damaged
// checkpoint, missing data.
EvalResult evaluate_run(const std::string& directory, const EvalOptions& options);

// Likelihoods of lines of text and of given translations: `lmx score`.

// UserError: a number of lines of a batch, or of tokens of the longest line, out of its range.
void check_scoring(int64_t batch, int64_t max_length);

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
// both), after all pairs are written, to `output`.part.
int64_t score_files(const std::string& run, const ScorePairsOptions& options, const std::string& source,
                    const std::string& target, const std::string& output);

// Writes the likelihoods of all pairs under a run's model, one line each in the format of score_files.
// TopOptions::scores reads this file. Returns the number of pairs. UserError, after all pairs before it are written, to
// `output`.part: a line that is not UTF-8 or has too few columns.
int64_t score_pairs(const std::string& run, const ScorePairsOptions& options, const PairTextFiles& files,
                    const std::string& output);

// The output format of `lmx score` for the likelihood of one line.

// Returns `mean<TAB>sum<TAB>tokens` with six decimals. With `json`, returns an object with all digits and `line`, which
// counts from 0: {"line":0,"mean":-2.5,"sum":-10.0,"tokens":4}. `sum` is the log-likelihood of the tokens in nats. A
// line that is not scored has `sum` -inf and 0 tokens.
std::string score_line(int64_t line, double sum, int64_t tokens, bool json);

}  // namespace lmx::app
