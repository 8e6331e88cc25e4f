// What a recipe names, made: the pieces that training, evaluation and generation share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/checkpoint.h"
#include "lmx/data.h"
#include "lmx/plugin.h"
#include "lmx/train.h"

namespace lmx::train {

// A model, its loss and their parameters.
struct Network {
  std::unique_ptr<Model> model;
  std::unique_ptr<Loss> loss;
  std::vector<ParameterSpec> specs;  // of both, the model's first
  const PluginInfo* plugin = nullptr;  // of the model

  // The model's functions of these names. What goes wrong there names the plugin (in_plugin()).
  Var forward(Context& ctx, ParameterStore& params, const Batch& batch, ModelState& state) const;
  ModelState initial_state(Context& ctx, int64_t sequences) const;
};
// `vocabulary` null: structure only, for a dry run.
LMX_API Network make_network(const Recipe& recipe, int64_t vocab_size, const Vocabulary* vocabulary);

// The name that a component's config gives, or "?".
std::string component_name(const Node& component);

// What a batcher of `recipe` reads of `data`; `cost` and `macs`, of pairs, are left empty.
BatcherEnv batcher_env(const Recipe& recipe, const Dataset& data, std::shared_ptr<Allocator> allocator);
std::unique_ptr<Batcher> make_batcher(const Recipe& recipe, const BatcherEnv& env);

// What would otherwise be found at the first validation, or when hours of training are over. UserError: a validation
// split without a token to predict, or with fewer strings than train.eval_shards needs.
void check_validation(const Recipe& recipe, const Dataset& data);

// A translation model needs parallel text and a batcher of it, a language model a batcher of sequences. UserError names
// both and what would fit.
LMX_API void check_model_fits_data(const Recipe& recipe, const Model& model, const Dataset& data);
LMX_API void check_batcher_fits_model(const Recipe& recipe, const Batcher& batcher, const Model& model);

// The patterns of `clip` and `train.ema_params` against the model's parameters. UserError at the pattern's place: one that
// matches none, a rule of `clip` to which an earlier one leaves none.
LMX_API void check_patterns(const Recipe& recipe, const std::vector<ParameterSpec>& specs);
// The pattern of train.ema_params, compiled.
ParamPattern ema_pattern(const Recipe& recipe);

// Lines for people on rules of `sync` whose codec makes zeros of small gradients: fp16 that nothing scales.
std::vector<std::string> unscaled_codecs(const Recipe& recipe, int ranks);

// The type of matrix products under `precision`.
DType compute_of(const Recipe& recipe);

// The context of a rank: precision, allocator, random key.
LMX_API Context make_context(const Recipe& recipe, Communicator& comm);

// Adds every parameter with its initial value.
LMX_API void add_parameters(Context& ctx, ParameterStore& params, const Network& network, int64_t seed);

// Copies a checkpoint's values into `params`. UserError naming the parameter and both shapes where they do not fit.
LMX_API void load_parameters(ParameterStore& params, const StateDict& values, const std::string& from);
LMX_API StateDict parameter_values(const ParameterStore& params);

// The entries of `all` whose names begin with `prefix`, without it; and the way back.
LMX_API StateDict with_prefix(const StateDict& all, const std::string& prefix);
LMX_API void add_with_prefix(StateDict& all, const std::string& prefix, const StateDict& part);

// optimizer.lr of a recipe, before rule and schedule.
LMX_API double optimizer_rate(const Recipe& recipe);

// "111,845,376"; "1.3 GB".
LMX_API std::string count_text(int64_t value);
LMX_API std::string bytes_text(int64_t bytes);

}  // namespace lmx::train
