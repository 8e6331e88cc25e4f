// A recipe as one typed config, and the loop that trains it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/context.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/optim.h"
#include "lmx/schedule.h"
#include "lmx/sync.h"
#include "lmx/translate.h"

namespace lmx {

struct BatchConfig {
  int64_t global = 32;  // sequences of a step over all ranks
  int64_t micro = 0;    // sequences of one forward on a rank; 0: the rank's whole share
  void fields(Fields& f);
};

struct TrainConfig {
  int64_t steps = 0;  // global batches, those without an update included; 0: `epochs` decides
  double epochs = 1;
  int64_t log_every = 50;
  int64_t eval_every = 0;              // steps; 0: once an epoch and at the end
  int64_t eval_batch = 32;             // sequences of an evaluation batch
  int64_t eval_tokens = 0;             // tokens of the validation split used during training; 0: all
  bool eval_shards = false;            // read as shards of strings (chars, bytes)
  bool eval_carry = true;              // state goes on from window to window of the split; false: each starts fresh
  double max_loss = 0;                 // nats per token above which the run counts as diverged; 0: default_max_loss()
  std::string on_divergence = "stop";  // stop, skip (leave the update out), lower_lr (halve the rate from here on)
  double ema = 0;                      // decay of the parameters' moving average; 0: none
  std::string ema_params = ".*";       // pattern (lmx/param_pattern.h) of the parameters that are averaged
  std::string ema_params_place = {};   // begins messages about it: "recipes/my.yaml:4:11: train.ema_params: "; no key
  std::string final_bleu = "none";     // none, valid, test: translated by the last parameters when training is done
  int64_t final_average = 1;           // by the mean of so many last checkpoints
  void fields(Fields& f);
};

// `train.max_loss` for a vocabulary of V entries, in nats per token: ln V, a uniform guess's loss, plus kLossMargin.
inline constexpr double kLossMargin = 50;
LMX_API double default_max_loss(int64_t vocab_size);

// `stop:`: an end before the last step.
struct StopConfig {
  std::string when;      // "valid.nll_bit <= 2.11"; "": train to the last step
  int64_t patience = 0;  // validations in a row that are no better than the best one before them; 0: no limit
  void fields(Fields& f);
};

// `init:`: where parameters start.
struct InitConfig {
  std::string from;                 // a run, a checkpoint's folder or a safetensors file; "": as the model draws them
  std::string checkpoint = "last";  // of a run: last, best or a step
  std::string params = ".*";        // pattern of the parameters that are taken from there
  std::string freeze;               // pattern of the parameters that are never updated; "": none
  // Where these keys are written in the recipe, as messages about them begin ("my.yaml:3:14: init.from: ").
  std::string from_place = "init.from: ", params_place = "init.params: ", freeze_place = "init.freeze: ";
  void fields(Fields& f);
};

// `loss_scale:` of precision fp16 (Ott 2018, Puri 2018): what gradients are multiplied by on their way through half
// precision. 0: the preset's value.
struct LMX_API LossScaleConfig {
  std::string preset = "ott";   // ott, puri, none (the scale stays 1)
  std::string loss = "preset";  // what is multiplied by the scale: preset (the preset's), sum (over the tokens of the
                                // step), mean (what the update is of). `init` and `min` are relative to it
  double init = 0;
  double factor = 0;  // down by it at an overflow, whose update is left out; up by it after `window` good updates
  int64_t window = 0;
  double min = 0;  // a scale that would fall below it counts as divergence
  void fields(Fields& f);
  LossScaleConfig resolved() const;  // with the preset's values
};

struct CheckpointConfig {
  int64_t every = 0;  // steps; 0: at each evaluation
  int64_t keep_last = 2;
  bool keep_best = true;  // the one with the lowest validation perplexity
  void fields(Fields& f);
};

struct RunConfig {
  std::string dir;  // "": runs/<recipe>/<date-time>
  bool tensorboard = true;
  void fields(Fields& f);
};

// Every key of a recipe.
struct Recipe {
  std::string name;  // of the recipe's file, without .yaml
  int64_t seed = 1;
  bool deterministic = true;       // equal bits in every group of as many ranks
  std::string precision = "fp32";  // fp32, bf16, fp16
  int64_t threads = 0;             // of a rank; 0: all cores, in a group of ranks one (deterministic)
  BatchConfig batch;
  TrainConfig train;
  StopConfig stop;
  InitConfig init;
  LossScaleConfig loss_scale;
  CheckpointConfig checkpoint;
  RunConfig run;
  LrRule lr_rule;
  Node model, loss, data, batcher, optimizer, schedule, sync, clip, comm;  // each read by its component
  Node provenance;  // free form: where the values come from, what is assumed
  void fields(Fields& f);
};

// Reads and checks the whole composed tree against every component's own fields, before any data is read.
LMX_API Recipe read_recipe(const Node& composed, const std::string& name);
// The composed tree with every default, as config.yaml records it.
LMX_API Node full_recipe(const Node& composed, const std::string& name);

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
struct RunOptions {
  std::string resume;  // "", "auto" (the newest run of this recipe), or a run directory
  std::vector<std::string> command_line;
  std::string trace_file;  // a Chrome trace of the run's phases; "" for none
  // Pause after this step: validate, save, end. Going on later gives what an uninterrupted run gives; the schedule and
  // the last step are the recipe's. 0: run to the end.
  int64_t until_step = 0;
  // Keys of the recipe that a resumed run may have changed on purpose (`--change`): "optimizer.lr".
  std::vector<std::string> changed_keys = {};
};
struct RunResult {
  std::string directory;
  int64_t steps = 0;
  double valid_ppl = 0;  // of the last parameters; 0 when the run was interrupted before an evaluation
  double valid_nll = 0;  // its nats per token, which are finite where the perplexity is not
  std::string unit;      // what a token is: word, char, byte, subword
  double best_ppl = 0;
  int64_t best_step = 0;
  std::optional<double> true_ppl;                 // of the source, where it is known
  double train_seconds = 0;                       // without validation and saving, over all resumes
  std::string stopped;                            // why it ended before the last step (`stop`); "": it did not
  bool reached_target = false;                    // it ended because `stop.when` was met
  bool paused = false;                            // at until_step, with steps left
  std::optional<TranslationQuality> translation;  // train.final_bleu
  int exit_code = 0;                              // 0, 130 or 143
  bool translates = false;                        // the model is one for `lmx translate`, else one for `lmx generate`
  bool leads = true;                              // false on ranks but the first, whose process says the result for all
};
// UserError: a wrong recipe, missing data, a run that cannot be resumed. RunError: diverged, a full disk.
LMX_API RunResult run_recipe(const Node& composed, const std::string& name, const RunOptions& options);

// For a file that is written behind long work. UserError "`what`: cannot write `path`: why".
LMX_API void require_writable(const std::string& what, const std::string& path);

struct DryRun {
  std::string text;                // the output of `lmx run --dry-run`
  std::string parameters, memory;  // as printed: the count, and the estimate of a rank's memory ("1.2 GB")
  int64_t parameter_count = 0, memory_bytes = 0;  // the same as numbers
  std::vector<std::string> missing_data;          // reasons why a run would end before its first step for lack of data
  std::string missing_memory;  // the memory that the ranks of this machine need, and its own; "": enough
  bool ready() const { return missing_data.empty() && missing_memory.empty(); }
};
// Parameter count, memory estimate and data check. UserError: a wrong recipe.
LMX_API DryRun dry_run(const Node& composed, const std::string& name);

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
LMX_API EvalResult evaluate_run(const std::string& directory, const EvalOptions& options);

struct ScoreLinesOptions {
  std::string checkpoint = "last";
  int64_t batch = 32;           // lines of a batch
  int64_t max_length = 20'000;  // tokens; a longer line is not scored
  bool json = false;            // a JSON object a line, with all digits (docs/json.md)
};
struct LineScores {
  int64_t lines = 0, tokens = 0;      // of the lines that were scored; tokens are targets
  int64_t too_long = 0, unknown = 0;  // lines that were not scored; targets that the vocabulary lacks
  double nats = 0;                    // minus the sum of log-likelihoods
  std::string unit;                   // what a token is
};
// Likelihoods of lines of text under a language model, each line by itself behind a line end: for line i of `input`
// (`-`: standard input) a line `mean<TAB>sum<TAB>tokens` of log-likelihoods in nats over its tokens, the line end among
// them if the run's text has line ends; `-inf<TAB>-inf<TAB>0` for a line that is too long. UserError: a run that
// translates, invalid UTF-8.
LMX_API LineScores score_lines(const std::string& run, const ScoreLinesOptions& options, const std::string& input,
                               const std::string& output);

// One unit of a model's recurrent state.
struct StateUnit {
  std::string state = "cell";  // cell, hidden (of the last layer), or a tensor's own name: "lstm.0.c"
  int64_t unit = 0;
};
struct GenerateOptions {
  std::string prompt;
  int64_t tokens = 50;
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // draw among the k likeliest; 0: among all
  double top_p = 1;        // draw among the likeliest that have this probability together; 1: among all
  int64_t seed = 1;
  std::string checkpoint = "last";
  std::optional<StateUnit> held;  // a unit that has `held_value` before each token is read (Radford 2017)
  double held_value = 0;
};
// The prompt and its continuation: words with spaces between them, characters and bytes as they are; `</s>` is a line
// end. `<unk>` is never drawn. Needs no data but the run's own files.
LMX_API std::string generate_text(const std::string& directory, const GenerateOptions& options);

}  // namespace lmx
