// The likelihood of a split, or of any text, under a trained run: `lmx eval`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/translation/search.h"

namespace lmx {

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
  int64_t step = 0;
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

}  // namespace lmx
