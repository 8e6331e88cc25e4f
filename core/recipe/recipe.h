// A recipe as one typed config.
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
#include "lmx/sync.h"
#include "schedule/schedule.h"

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
double default_max_loss(int64_t vocab_size);

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
struct LossScaleConfig {
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
Recipe read_recipe(const Node& composed, const std::string& name);
// The composed tree with every default, as config.yaml records it.
Node full_recipe(const Node& composed, const std::string& name);

}  // namespace lmx
