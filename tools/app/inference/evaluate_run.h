// The likelihood of a split, or of any text, under a trained run: `lmx eval`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/inference/search.h"

namespace lmx {

// Of a run that translates.
struct TranslationQuality {
  std::string split;
  double bleu = 0, multi_bleu = 0;  // 0 to 100
  // multi-bleu with compounds split at their hyphens (`lmx bleu --split-compounds`), once: where the preparation splits
  // at dashes (`aggressive_dashes`) it equals multi_bleu.
  double multi_bleu_split = 0;
  std::string bleu_line, multi_bleu_line, multi_bleu_split_line;  // as `lmx bleu` prints them, signature included
  int64_t averaged = 1;  // the run's last checkpoints whose mean has translated
};

struct EvalOptions {
  std::string split = "valid";      // train, valid, test
  std::string checkpoint = "last";  // last, best, a step, or a file or folder of parameters
  bool translate = true;            // score a translation run by BLEU, too (valid and test)
  SearchOptions search;             // of that
  // Of chars and bytes, besides: the split's strings, drawn without replacement, as so many shards, each read from a
  // zero state (Puri 2018: 16 shards of the test split); 0: not.
  int64_t shards = 0;
  int64_t seed = 1;  // of that draw
  // Text files, directories or globs that are evaluated instead of a split, prepared as the run's own text was; `field`
  // names the column or field of .csv and .jsonl files.
  std::vector<std::string> text = {};
  std::string field = {};
};
// The mean over shards of each shard's mean nats a token.
struct ShardEval {
  int64_t shards = 0, tokens = 0;
  double nll_nat = 0, least = 0, most = 0;
};
// What a split's likelihood is per word: comparable between vocabularies of subwords, as its perplexity per token is
// not.
struct WordEval {
  int64_t words = 0;    // of the preparation before it cut them into subwords, each sentence's </s> among them
  int64_t unknown = 0;  // words with characters that no subword has: told as <unk>, which is less than the word itself
  double ppl = 0;       // exp(nats of all targets / words)
};
struct EvalResult {
  int64_t step = 0;
  int64_t tokens = 0;              // targets
  double nll_nat = 0;              // mean over them, under the full softmax
  double ppl = 0;                  // exp(nll_nat)
  std::string unit;                // what a token is: word, char, byte, subword
  std::optional<double> true_ppl;  // valid split only
  std::optional<WordEval> words;   // of subwords
  std::optional<TranslationQuality> translation;
  // Bytes of the split's text over bytes that its likelihood would take as a code (Patwary 2018, V-C): of chars and
  // bytes. What became <unk> is counted as if it had been told.
  std::optional<double> compression_ratio;
  std::optional<ShardEval> sharded;
  int64_t unknown = 0;  // of EvalOptions::text: tokens that the vocabulary lacks, which count as <unk>
};
// A checkpoint of the run in `directory` on a whole split. UserError: no run, no such checkpoint, damaged, data gone.
EvalResult evaluate_run(const std::string& directory, const EvalOptions& options);

}  // namespace lmx
