// The numbers of a run that a sweep can use: keys of metrics.jsonl, and lines that the run prints (docs/run-files.md).
#include <algorithm>

#include "app/points/plan.h"
#include "app/print/words.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::str;
using lmx::UserError;
using Words = std::vector<std::string>;

const Words kSplits{"valid", "test", "train", "rank"};
const Words kTranslation{"BLEU", "multi_bleu", "multi_bleu_split"};  // only after a run has ended (train.final_bleu)
const Words kValid{"ppl", "nll_nat", "nll_bit", "bpc", "tokens", "epoch", "train_s"};
const Words kTrain{"ppl",
                   "nll_nat",
                   "nll_bit",
                   "tokens",
                   "epoch",
                   "lr",
                   "grad_norm",
                   "skipped",
                   "comm_sent_bytes",
                   "padding",
                   "loss_scale",
                   "overflows",
                   "step_s",
                   "words_per_s",
                   "chars_per_s",
                   "bytes_per_s",
                   "subwords_per_s",
                   "step_spread",
                   "comm_s",
                   "comm_exposed_s",
                   "comm_received_bytes",
                   "comm_sent_between_nodes_bytes",
                   "comm_received_between_nodes_bytes"};

bool in(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Words keys_of(const std::string& split) {
  if (split == "train") return kTrain;
  Words keys = split == "valid" ? kValid : Words{};
  keys.insert(keys.end(), kTranslation.begin(), kTranslation.end());
  return keys;
}

}  // namespace

// The keys of parameters and groups (`rows/softmax.weight`, `comm/tables/...`) are not known before a run.
void check_metric(const Metric& metric, const Halving& halving) {
  if (!in(kSplits, metric.split))
    throw UserError(str("[sweep] metric ", metric.split, ".", metric.key, ": there is no split '", metric.split, "'",
                        lmx::did_you_mean(metric.split, kSplits), "; there are ", joined(kSplits)));
  const Words keys = keys_of(metric.split);
  const bool named = metric.split == "rank" || metric.key.find('/') != std::string::npos;
  if (!named && !in(keys, metric.key))
    throw UserError(str("[sweep] metric ", metric.split, ".", metric.key, ": records of split ", metric.split,
                        " have no '", metric.key, "'", lmx::did_you_mean(metric.key, keys), "; they have ",
                        joined(keys)));
  if (halving.eta > 0 && in(kTranslation, metric.key))
    throw UserError(str("[sweep] metric ", metric.split, ".", metric.key,
                        " is there once a run has ended, so that halving cannot go by it; take valid.ppl"));
}

}  // namespace lmx_cli::sweeps
