#include "train/saved_run.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <numbers>

#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "train/evaluate.h"
#include "train/init.h"
#include "train/metrics.h"
#include "train/read_text.h"
#include "train/resume.h"
#include "train/run_directory.h"
#include "train/split_bleu.h"

namespace lmx {
namespace train {

Recipe recipe_of_run(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  return read_recipe(read_run_config(directory), path.parent_path().filename().string());
}

namespace {

// A table with a row a word that has another number of rows is a mistake of its own: another vocabulary, in a
// checkpoint from before its mark was recorded.
void check_rows(const Network& network, const StateDict& values, int64_t words, const std::string& from) {
  for (const ParameterSpec& spec : network.specs) {
    const auto found = values.find(spec.name);
    if (found == values.end() || found->second.rank() != spec.shape.rank() || spec.shape[0] != words) continue;
    Shape same = found->second.shape();
    const int64_t there = same[0];
    same[0] = words;
    if (there != words && same == spec.shape)
      throw UserError(str("[checkpoint] ", from, " was trained with a vocabulary of ", there, " entries (", spec.name,
                          " ", found->second.shape(), "), this run's has ", words,
                          "; use a checkpoint of this run, or the run that it comes from"));
  }
}

}  // namespace

SavedRun::SavedRun(const std::string& directory, const Recipe& recipe, const Vocabulary& vocabulary,
                   const std::string& which)
    : comm(make_self_communicator(static_cast<int>(recipe.threads))), ctx(make_context(recipe, *comm)) {
  set_num_threads(comm->threads());
  ctx.training = false;
  network = make_network(recipe, vocabulary.size(), &vocabulary);
  checkpoint = find_parameters(directory, which);
  const StoredParameters stored = load_stored(checkpoint, ctx.allocator);
  check_vocabulary(stored.vocabulary, checkpoint, vocabulary, directory);
  check_rows(network, stored.values, vocabulary.size(), checkpoint);
  for (const ParameterSpec& spec : network.specs)
    params.add(ctx, {spec.name, spec.shape, Init{"zeros", 0}, spec.sparse, spec.output, spec.frozen}, RandomKey());
  load_parameters(params, stored.values, checkpoint);
  if (recipe.train.ema > 0 && !stored.averages.empty()) {
    Ema ema(params, recipe.train.ema, ema_pattern(recipe));
    ema.load(stored.averages);
    ema.swap(params);
  }
  require_finite(parameter_values(params), checkpoint);
  step = stored.step;
}

std::string find_parameters(const std::string& directory, const std::string& which) {
  const bool names_step = !which.empty() && which.find_first_not_of("0123456789") == std::string::npos;
  std::error_code error;
  if (which == "last" || which == "best" || names_step || !std::filesystem::exists(which, error))
    return find_checkpoint(directory, which);
  return which;
}

namespace {

// Of a file of parameters alone; model.safetensors of a checkpoint lies beside its state.json.
VocabularyMark mark_of_file(const std::string& path) {
  VocabularyMark mark = get_mark(safetensors_metadata(path));
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (mark.sha256.empty() && std::filesystem::exists(folder / "state.json"))
    mark = get_mark(checkpoint_numbers(folder.string()));
  return mark;
}

}  // namespace

StoredParameters load_stored(const std::string& path, const std::shared_ptr<Allocator>& allocator) {
  if (!std::filesystem::is_directory(path)) return {load_safetensors(path, allocator), {}, 0, mark_of_file(path)};
  TrainState state = load_checkpoint_of(path, allocator, -1, 0);
  StoredParameters stored{std::move(state.model), with_prefix(state.train, "ema/"), 0, get_mark(state.numbers)};
  const auto found = state.numbers.find("step");
  if (found != state.numbers.end()) stored.step = std::llround(number_from_text(found->second));
  return stored;
}

namespace {

const TokenArray& split_of(const Dataset& data, const std::string& split) {
  const std::vector<std::string> names{"train", "valid", "test"};
  const TokenArray* tokens = split == "train"   ? &data.train
                             : split == "valid" ? &data.valid
                             : split == "test"  ? &data.test
                                                : nullptr;
  if (!tokens)
    throw UserError(
        str("[eval] there is no split '", split, "'", did_you_mean(split, names), "; there are train, valid, test"));
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

// Tokens of a window, as the validations of the run had them. Pairs are scored sentence by sentence.
int64_t window_of(const Recipe& recipe, const SavedRun& run, const Dataset& data) {
  if (run.network.model->translates()) return 1;
  return make_batcher(recipe, batcher_env(recipe, data, run.ctx.allocator))->sequence_length();
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
// Of words with one space between them.
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
  for (const SplitScore& s : score_shards(run.ctx, run.network, run.params, shards, plan, {})) {
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

// Tokens of a window without the run's data: a batcher's window does not depend on the tokens that it reads.
int64_t window_of(const Recipe& recipe, const SavedRun& run) {
  constexpr int32_t kStrings = 1 << 10, kLength = 1 << 10;
  Dataset any;
  any.train = TokenArray::of(std::vector<int32_t>(static_cast<size_t>(kStrings) * kLength));
  any.train_strings = TextStrings(TokenArray::of(std::vector<int32_t>(kStrings, kLength)));
  BatcherEnv env = batcher_env(recipe, any, run.ctx.allocator);
  env.global_batch = 1;
  return make_batcher(recipe, env)->sequence_length();
}

// Any text. The run's own files are enough: its data may be gone.
EvalResult evaluate_text(const std::string& directory, const Recipe& recipe, const EvalOptions& options) {
  if (options.shards > 0) throw UserError("[eval] --shards is of a split's strings; leave it out with --text");
  const Vocabulary vocabulary = load_vocabulary(directory);
  SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  if (run.network.model->translates())
    throw UserError(str("[eval] ", directory,
                        " translates: `lmx score RUN SRC TGT` gives the likelihood of any pairs, ",
                        "`lmx translate` and `lmx bleu` the quality of its translations"));
  RunText text(recipe, vocabulary);
  const TokenArray tokens = read_text(text, options.text, options.field);
  text.warn_of_losses("[eval] the text");
  const TrainConfig& t = recipe.train;
  const SplitPlan plan{"text", t.eval_batch, window_of(recipe, run), 0, t.eval_carry, false};
  const SplitScore score = score_split(run.ctx, run.network, run.params, tokens, plan, {});
  EvalResult r{run.step, score.tokens, score.nll(), score.ppl(), text.unit_name(), {}, {}, {}, {}, {}};
  r.unknown = text.unknown();
  if (is_character(r.unit))
    r.compression_ratio = 8 * static_cast<double>(text.bytes()) / (score.nats / std::numbers::ln2);
  return r;
}

}  // namespace
}  // namespace train

EvalResult evaluate_run(const std::string& directory, const EvalOptions& options) {
  using namespace train;
  const Recipe recipe = recipe_of_run(directory);
  if (options.shards < 0) throw UserError(str("[eval] the number of shards must be at least 1, got ", options.shards));
  static_cast<void>(find_parameters(directory, options.checkpoint));  // its message before the data is read
  if (!options.text.empty()) return evaluate_text(directory, recipe, options);
  const Dataset data = open_dataset(recipe.data);
  const std::string recorded = recorded_data_hash(directory);
  if (!recorded.empty() && recorded != data.hash)
    throw UserError(str("[eval] the data of ", directory, " has changed since it was trained: its hash was ", recorded,
                        ", now it is ", data.hash));
  static_cast<void>(split_of(data, options.split));  // its message before the model is read
  SavedRun run(directory, recipe, data.vocabulary, options.checkpoint);
  const TrainConfig& t = recipe.train;
  const SplitPlan plan{options.split, t.eval_batch, window_of(recipe, run, data), 0, t.eval_carry, t.eval_shards};
  const SplitScore score = run.network.model->translates()
                               ? score_pairs(run.ctx, run.network, run.params, pairs_of(data, options.split), plan, {})
                               : score_text(run.ctx, run.network, run.params, split_of(data, options.split),
                                            strings_of(data, options.split), plan, {});
  EvalResult r{run.step, score.tokens, score.nll(), score.ppl(), data.unit, {}, {}, {}, {}, {}};
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
