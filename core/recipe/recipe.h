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
  int64_t global = 32;       // sequences of a step over all ranks; 0: `fit` chooses it, which it has done in a session
  int64_t micro = 0;         // sequences of one forward on a rank; 0: the rank's whole share
  int64_t micro_tokens = 0;  // parallel text: target tokens of one forward on a rank; 0: each sub-batch is one
  std::string fit = "none";  // none; memory: `micro` or `micro_tokens` becomes the largest value that fits into memory
  void fields(Fields& f);
};

struct TrainConfig {
  int64_t steps = 0;  // global batches, including those without an update; 0: `epochs` decides
  double epochs = 1;
  int64_t log_every = 50;
  int64_t eval_every = 0;    // steps; 0: once an epoch and at the end
  int64_t eval_batch = 32;   // sequences of an evaluation batch
  int64_t eval_tokens = 0;   // tokens of the validation split used during training; 0: all
  bool eval_shards = false;  // read as shards of strings (chars, bytes)
  bool eval_carry = true;    // state is carried between the windows of the split; false: each starts from zero
  double max_loss = 0;       // nats per token; the run diverged if its loss is higher; 0: default_max_loss()
  std::string on_divergence = "stop";  // stop, skip (no update), lower_lr (no update, and half the rate from then on)
  std::string preflight = "auto";      // auto, true, false: the largest batch of the epoch is computed before training
  double ema = 0;                      // decay of the parameters' moving average; 0: none
  std::string ema_params = ".*";       // pattern (lmx/config.h) of the averaged parameters
  std::string ema_place = {};          // prefix of messages about `ema`: "my.yaml:4:11: train.ema: "; not a key
  std::string ema_params_place = {};   // prefix of messages about it: "my.yaml:4:11: train.ema_params: "; not a key
  std::string final_bleu = "none";     // none, valid, test: the split that the last parameters translate after training
  int64_t final_average = 1;           // number of last checkpoints whose mean translates it
  void fields(Fields& f);
};

// `train.max_loss` for a vocabulary of V entries, in nats per token: ln V, a uniform guess's loss, plus kLossMargin.
inline constexpr double kLossMargin = 50;
double default_max_loss(int64_t vocab_size);

// `stop:`: conditions that end a run before its last step.
struct StopConfig {
  std::string when;      // "valid.nll_bit <= 2.11"; "": train to the last step
  int64_t patience = 0;  // validations in a row without a new best one; 0: no limit
  void fields(Fields& f);
};

// `init:`: initial values of parameters.
struct InitConfig {
  std::string from;                 // a run, a checkpoint's folder or a safetensors file; "": the model's own values
  std::string checkpoint = "last";  // of a run: last, best or a step
  std::string params = ".*";        // pattern of the parameters that are read from there
  std::string freeze;               // pattern of the parameters that are never updated; "": none
  // The places of these keys in the recipe, with which messages about them begin ("my.yaml:3:14: init.from: ").
  std::string from_place = "init.from: ", params_place = "init.params: ", freeze_place = "init.freeze: ";
  void fields(Fields& f);
};

// `loss_scale:` of precision fp16 (Ott 2018, Puri 2018): the factor by which gradients are multiplied while they are
// computed in half precision. 0: the preset's value.
struct LossScaleConfig {
  std::string preset = "ott";  // ott, puri, none (the scale stays 1)
  // The loss that is multiplied by the scale: preset (as in the preset), sum (over the tokens of the step), mean (the
  // loss that the update minimises). `init` and `min` refer to this loss.
  std::string loss = "preset";
  double init = 0;
  double factor = 0;  // divides the scale at an overflow (without an update), multiplies it after `window` good updates
  int64_t window = 0;
  double min = 0;  // a scale that would be smaller counts as divergence
  void fields(Fields& f);
  LossScaleConfig resolved() const;  // with the preset's values
};

struct CheckpointConfig {
  int64_t every = 0;  // steps; 0: at each evaluation
  int64_t keep_last = 2;
  bool keep_best = true;  // keep the checkpoint with the lowest validation perplexity
  void fields(Fields& f);
};

struct MemoryConfig {
  double budget = 0;  // GB; a run whose estimate is larger is refused; 0: it is warned
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
  bool deterministic = true;                  // equal bits in every group with the same number of ranks
  std::string precision = "fp32";             // fp32, bf16, fp16
  std::string products = "exact";             // exact, tf32, bf16x3: F32Products
  std::string products_place = "products: ";  // with which messages about it begin
  std::string device = "cpu";                 // auto, cpu, cuda, cuda:N
  std::string device_place = "device: ";      // with which messages about it begin
  int64_t threads = 0;                        // of a rank; 0: all cores; in a group of ranks: one (if deterministic)
  BatchConfig batch;
  TrainConfig train;
  StopConfig stop;
  InitConfig init;
  LossScaleConfig loss_scale;
  CheckpointConfig checkpoint;
  RunConfig run;
  MemoryConfig memory;
  LrRule lr_rule;
  // Each is read by its component.
  Node model, loss, data, batcher, optimizer, schedule, sync, clip, comm, metric;
  Node provenance;  // free form: sources of the values, assumptions
  void fields(Fields& f);
};

// Reads the composed tree and checks all of it against the fields of every component, before any data is read.
Recipe read_recipe(const Node& composed, const std::string& name);
// The composed tree with all defaults, as config.yaml records it.
Node full_recipe(const Node& composed, const std::string& name);

// A recipe that has been read and checked once.

struct CheckedRecipe {
  Recipe given;
  Node full;  // with all defaults, as config.yaml records it
};
// Returns the results of read_recipe and full_recipe, reading the tree only once. Throws the same UserErrors.
CheckedRecipe check_recipe(const Node& composed, const std::string& name);

}  // namespace lmx
