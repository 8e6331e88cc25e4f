#include "app/inference/evaluate_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "app/datasets/open.h"
#include "app/inference/run_text.h"
#include "app/inference/saved_run.h"
#include "app/runs/run_directory.h"
#include "app/runs/stored_parameters.h"
#include "app/translation/translate.h"
#include "config/messages.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "recipe/planned_batcher.h"
#include "runfiles/metrics.h"
#include "train/evaluate.h"

namespace lmx {
namespace train {
namespace {

const TokenArray& split_of(const Dataset& data, const std::string& split) {
  const TokenArray* tokens = split == "train"   ? &data.train
                             : split == "valid" ? &data.valid
                             : split == "test"  ? &data.test
                                                : nullptr;
  if (!tokens)
    throw UserError(str("[eval] there is no split '", split, "'", did_you_mean(split, eval_splits()), "; there are ",
                        config::join(eval_splits())));
  if (tokens->size() < 2)
    throw UserError(str("[eval] this run's data has no ", split, " split (it holds ", tokens->size(),
                        " tokens); --text FILE ",
                        "evaluates any text, --split valid what the run was validated on, and data.", split,
                        "_fraction or data.", split, "_files give a new run one"));
  return *tokens;
}

const PairArray& pairs_of(const Dataset& data, const std::string& split) {
  static_cast<void>(split_of(data, split));
  const PairArray& pairs = split == "train" ? data.train_pairs : split == "valid" ? data.valid_pairs : data.test_pairs;
  if (pairs.size() == 0)
    throw UserError(str("[eval] the ", split, " split of this run's data holds no pairs of sentences"));
  return pairs;
}

// Windows and documents of the run's validations. Pairs are scored sentence by sentence.
void set_windows(SplitPlan& plan, const Recipe& recipe, const SavedRun& run, const Dataset& data) {
  if (run.network.model->translates()) return;
  const auto batcher = make_batcher(recipe, batcher_env(recipe, data, run.ctx.host));
  plan.length = batcher->sequence_length();
  plan.separator = separator_of(recipe, *batcher, *run.network.model, data);
}

int64_t bytes_of(const Dataset& data, const std::string& split) {
  return split == "train" ? data.train_bytes : split == "valid" ? data.valid_bytes : data.test_bytes;
}

const TextStrings& strings_of(const Dataset& data, const std::string& split) {
  return split == "train" ? data.train_strings : split == "valid" ? data.valid_strings : data.test_strings;
}

struct WordCount {
  int64_t words = 0, unknown = 0;
};
// Counts words that are separated by one space.
WordCount count_words(std::string_view text) {
  WordCount n;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    n.unknown += text.substr(at, end - at).find("<unk>") != std::string_view::npos;
    n.words += end > at;
    at = end + 1;
  }
  return n;
}

ShardEval evaluate_shards(SavedRun& run, const SplitPlan& plan, const Dataset& data, const EvalOptions& options) {
  const StringShards shards = shards_of_split(split_of(data, options.split), strings_of(data, options.split),
                                              options.shards, options.seed, options.split);
  ShardEval sum{shards.size(), 0, 0, std::numeric_limits<double>::infinity(), 0};
  for (const SplitScore& s : score_shards(run.ctx, run.network, run.params, shards, plan)) {
    sum.tokens += s.tokens;
    sum.nll_nat += s.nll() / static_cast<double>(shards.size());
    sum.least = std::min(sum.least, s.nll());
    sum.most = std::max(sum.most, s.nll());
  }
  return sum;
}

TranslationQuality quality_of(const SavedRun& run, const Recipe& recipe, const Dataset& data,
                              const EvalOptions& options) {
  TranslateOptions translation;
  translation.search = options.search;
  translation.n_best = 1;
  const TranslationModel model{run.ctx, run.network, run.params, data.codecs, data.vocabulary.size()};
  const SplitBleu s = bleu_of_split(model, recipe, data, options.split, translation);
  return {.split = options.split,
          .bleu = s.bleu.score,
          .multi_bleu = s.multi.score,
          .multi_bleu_split = s.split.score,
          .bleu_line = str("BLEU|", s.signature, " = ", bleu_text(s.bleu)),
          .multi_bleu_line = multi_bleu_text(s.multi),
          .multi_bleu_split_line = multi_bleu_text(s.split)};
}

WordEval words_of(const Dataset& data, const PairArray& pairs, double nats) {
  WordEval w;
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const WordCount in = count_words(data.codecs.target->decode_tokens(pairs.target(i)));
    w.words += in.words + 1;
    w.unknown += in.unknown;
  }
  w.ppl = std::exp(nats / static_cast<double>(w.words));
  return w;
}

// Evaluates any text. Needs only the run's own files, not its data.
EvalResult evaluate_text(const std::string& directory, const Recipe& recipe, const EvalOptions& options) {
  if (options.shards > 0) throw UserError("[eval] --shards divides the strings of a split; leave it out with --text");
  const Vocabulary vocabulary = load_vocabulary(directory);
  SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  if (run.network.model->translates())
    throw UserError(str("[eval] ", directory,
                        " translates: `lmx score RUN SRC TGT` gives the likelihood of any pairs, ",
                        "`lmx translate` and `lmx bleu` the quality of its translations"));
  RunText text(recipe, vocabulary, directory);
  const TokenArray tokens = read_text(text, recipe, options.text, options.field);
  text.warn_of_losses("[eval] the text");
  const TrainConfig& t = recipe.train;
  // A window does not depend on the tokens that the batcher reads.
  const auto batcher = planned_batcher(recipe.batcher);
  SplitPlan plan{"text", t.eval_batch, batcher->sequence_length(), 0, t.eval_carry, false};
  if (batcher->separates_documents()) plan.separator = text.separator();
  const std::vector<double> token_bytes = text.token_bytes();
  const Metrics metrics(recipe.metric, "metric");
  plan.token_bytes = token_bytes;
  plan.metrics = &metrics;
  const SplitScore score = score_split(run.ctx, run.network, run.params, tokens, plan);
  EvalResult r{run.step, score.tokens, score.nll(), score.ppl(), text.unit_name(), {}, {}, {}, {}, {}};
  r.unknown = text.unknown();
  r.bpb = score.bpb();
  r.metrics = metrics.values(score.sums, score.tokens);
  if (is_character(r.unit))
    r.compression_ratio = 8 * static_cast<double>(text.bytes()) / (score.nats / std::numbers::ln2);
  return r;
}

}  // namespace
}  // namespace train

const std::vector<std::string>& eval_splits() {
  static const std::vector<std::string> names{"train", "valid", "test"};
  return names;
}

EvalResult evaluate_run(const std::string& directory, const EvalOptions& options) {
  using namespace train;
  const Recipe recipe = recipe_of_run(directory, options.device);
  if (options.shards < 0) throw UserError(str("[eval] the number of shards must be at least 1, got ", options.shards));
  static_cast<void>(find_parameters(directory, options.checkpoint));  // throws its message before the data is read
  if (!options.text.empty()) return evaluate_text(directory, recipe, options);
  const Dataset data = open_dataset(recipe.data);
  const std::string recorded = recorded_data_hash(directory);
  if (!recorded.empty() && recorded != data.hash)
    throw UserError(str("[eval] the data of ", directory, " has changed since it was trained: its hash was ", recorded,
                        ", now it is ", data.hash));
  static_cast<void>(split_of(data, options.split));  // throws its message before the model is read
  SavedRun run(directory, recipe, data.vocabulary, options.checkpoint);
  const TrainConfig& t = recipe.train;
  SplitPlan plan{options.split, t.eval_batch, 1, 0, t.eval_carry, t.eval_shards};
  set_windows(plan, recipe, run, data);
  const Metrics metrics(recipe.metric, "metric");
  plan.token_bytes = data.token_bytes;
  plan.metrics = &metrics;
  const SplitScore score = run.network.model->translates()
                               ? score_pairs(run.ctx, run.network, run.params, pairs_of(data, options.split), plan)
                               : score_text(run.ctx, run.network, run.params, split_of(data, options.split),
                                            strings_of(data, options.split), plan);
  EvalResult r{run.step, score.tokens, score.nll(), score.ppl(), data.unit, {}, {}, {}, {}, {}};
  r.bpb = score.bpb();
  r.metrics = metrics.values(score.sums, score.tokens);
  plan.metrics = nullptr;
  const auto bytes = static_cast<double>(bytes_of(data, options.split));
  if (is_character(data.unit)) r.compression_ratio = 8 * bytes / (score.nats / std::numbers::ln2);
  if (run.network.model->translates() && data.codecs.target)
    r.words = words_of(data, pairs_of(data, options.split), score.nats);
  if (options.shards > 0) r.sharded = evaluate_shards(run, plan, data, options);
  if (options.split == "valid") r.true_ppl = data.true_perplexity;
  if (run.network.model->translates() && options.translate && options.split != "train")
    r.translation = quality_of(run, recipe, data, options);
  return r;
}

}  // namespace lmx
