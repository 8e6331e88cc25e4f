#include "app/inference/evaluate_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "app/datasets/open.h"
#include "app/inference/run_text.h"
#include "app/inference/saved_run.h"
#include "app/runs/run_directory.h"
#include "app/runs/stored_parameters.h"
#include "app/translation/translate.h"
#include "base/json_object.h"
#include "base/output_file.h"
#include "base/text.h"
#include "config/messages.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "recipe/planned_batcher.h"
#include "runfiles/metrics.h"
#include "train/evaluate.h"

namespace lmx::app {
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

const std::vector<std::string>& eval_splits() {
  static const std::vector<std::string> names{"train", "valid", "test"};
  return names;
}

EvalResult evaluate_run(const std::string& directory, const EvalOptions& options) {
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
  if (options.shards > 0 && !is_character(data.unit))
    throw UserError(str("[eval] shards are of chars or of bytes; the tokens of this run are ", data.unit, "s"));
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

// lmx score for a language model: the likelihood of each line of a text, independent of the other lines.

namespace {

using Ids = std::vector<int32_t>;  // of a line: the token before it, then its targets

constexpr int64_t kBatchesPerWindow = 64;
constexpr int64_t kBatchTokens = 1 << 15;  // tokens per forward pass

int64_t targets_of(const Ids& line) {
  return std::max<int64_t>(0, std::ssize(line) - 1);
}

class LineScorer {
 public:
  LineScorer(SavedRun& run, const ScoreLinesOptions& options)
      : run_(run), options_(options), max_length_(std::min(options.max_length, run.longest)) {}
  int64_t max_length() const { return max_length_; }

  // Returns the log-likelihoods of the lines in nats; -inf for a line that is too long.
  std::vector<double> score(const std::vector<Ids>& lines) {
    std::vector<double> sums(lines.size(), 0);
    std::vector<size_t> order;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (targets_of(lines[i]) > max_length_)
        sums[i] = -INFINITY;
      else if (targets_of(lines[i]) > 0)
        order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lines[a].size() < lines[b].size(); });
    for (size_t first = 0; first < order.size();) {
      size_t end = first + 1;
      while (end < order.size() && static_cast<int64_t>(end - first) < options_.batch &&
             static_cast<int64_t>(end + 1 - first) * targets_of(lines[order[end]]) <= kBatchTokens)
        ++end;
      score_batch(lines, std::span(order).subspan(first, end - first), sums);
      first = end;
    }
    return sums;
  }

 private:
  // Scores the lines as one batch, each padded at its end to the longest. Padding does not change the results before
  // it.
  void score_batch(const std::vector<Ids>& lines, std::span<const size_t> numbers, std::vector<double>& sums) {
    const auto rows = static_cast<int64_t>(numbers.size());
    const int64_t longest = targets_of(lines[numbers.back()]);
    ModelState state = run_.network.model->initial_state(run_.ctx, rows);
    const int64_t piece = state.empty() ? longest : kStatePiece;
    for (int64_t begin = 0; begin < longest; begin += piece) {
      const int64_t steps = std::min(piece, longest - begin);
      const auto nats = run_.ctx.read<float>(nats_of(batch_of(lines, numbers, begin, steps), state));
      const std::span<const float> at = nats.get();
      for (int64_t row = 0; row < rows; ++row) {
        const size_t line = numbers[static_cast<size_t>(row)];
        const int64_t own = std::clamp<int64_t>(targets_of(lines[line]) - begin, 0, steps);
        for (int64_t t = 0; t < own; ++t) sums[line] -= static_cast<double>(at[static_cast<size_t>(row * steps + t)]);
      }
    }
  }

  Batch batch_of(const std::vector<Ids>& lines, std::span<const size_t> numbers, int64_t begin, int64_t steps) const {
    const auto rows = static_cast<int64_t>(numbers.size());
    Ids inputs(static_cast<size_t>(rows * steps)), targets(inputs.size());
    Batch batch;
    for (int64_t row = 0; row < rows; ++row) {
      const Ids& line = lines[numbers[static_cast<size_t>(row)]];
      const int64_t own = std::clamp<int64_t>(targets_of(line) - begin, 0, steps);
      std::copy_n(line.begin() + begin, own, inputs.begin() + row * steps);
      std::copy_n(line.begin() + begin + 1, own, targets.begin() + row * steps);
      batch.slots.push_back(row);
      batch.fresh.push_back(begin == 0);
    }
    batch.inputs = Tensor::from<int32_t>(run_.ctx.host, {rows, steps}, inputs);
    batch.targets = Tensor::from<int32_t>(run_.ctx.host, {rows, steps}, targets);
    return batch;
  }

  Tensor nats_of(const Batch& batch, ModelState& state) {
    const Var features = run_.network.model->forward(run_.ctx, run_.params, batch, state);
    return run_.network.loss->evaluate(run_.ctx, run_.params, features.value(),
                                       batch.targets.reshape({batch.targets.numel()}));
  }

  SavedRun& run_;
  const ScoreLinesOptions& options_;
  int64_t max_length_;
};

// Returns one output line per line of text, and adds to the totals.
std::string text_of(const std::vector<Ids>& lines, const std::vector<double>& sums, bool json, LineScores& total) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool scored = std::isfinite(sums[i]);
    const int64_t tokens = scored ? targets_of(lines[i]) : 0;
    text += score_line(total.lines + total.too_long, sums[i], tokens, json);
    total.lines += scored;
    total.too_long += !scored;
    total.tokens += tokens;
    if (scored) total.nats -= sums[i];
  }
  return text;
}

}  // namespace

void check_scoring(int64_t batch, int64_t max_length) {
  check_batch("score", batch);
  if (max_length < 1) throw UserError(str("[score] the greatest length must be at least 1, got ", max_length));
}

LineScores score_lines(const std::string& directory, const ScoreLinesOptions& options, const std::string& input,
                       const std::string& output) {
  check_scoring(options.batch, options.max_length);
  const Recipe recipe = recipe_of_run(directory, options.device);
  const Vocabulary vocabulary = load_vocabulary(directory);
  SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  if (run.network.model->translates())
    throw UserError(str("[score] ", directory,
                        " holds a model that translates: name SRC and TGT, a file of each side, "
                        "or --tsv and files with a pair a line"));
  RunText text(recipe, vocabulary, directory);
  LineScorer scorer(run, options);
  Windows windows(input, options.batch * kBatchesPerWindow, text.takes_any_bytes());
  OutputFile out(output);
  LineScores total;
  total.unit = text.unit_name();
  int64_t read = 0;
  write_lines(out, [&] {
    for (Lines window; !(window = windows.next()).empty();) {
      std::vector<Ids> ids;
      for (const std::string& line : window) ids.push_back(text.line(line, str("[score] ", input, ":", ++read)));
      out.write(text_of(ids, scorer.score(ids), options.json, total));
      progress_line(str("scored ", count_text(read), " lines"));
    }
  });
  progress_line("");
  text.warn_of_losses("[score] the text");
  total.unknown = text.unknown();
  if (total.too_long > 0)
    log_warn(str("[score] ", total.too_long, " lines have more than ", scorer.max_length(),
                 " tokens and are not scored (-inf); ",
                 scorer.max_length() < options.max_length ? "the model has no more positions"
                                                          : "--max-length raises the limit"));
  return total;
}

std::string score_line(int64_t line, double sum, int64_t tokens, bool json) {
  const double mean = tokens > 0 ? sum / static_cast<double>(tokens) : sum;
  if (json) return JsonObject().add("line", line).add("mean", mean).add("sum", sum).add("tokens", tokens).text() + "\n";
  return format("%.6f\t%.6f\t%lld\n", mean, sum, static_cast<long long>(tokens));
}

}  // namespace lmx::app
