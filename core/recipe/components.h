// Creates the components that a recipe names, for training, evaluation and generation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "lmx/batcher.h"
#include "lmx/plugin.h"
#include "recipe/exchanger.h"
#include "recipe/recipe.h"

namespace lmx {

// A model, its loss and their parameters.
struct Network {
  std::unique_ptr<Model> model;
  std::unique_ptr<Loss> loss;
  std::vector<ParameterSpec> specs;    // of both, those of the model first
  const PluginInfo* plugin = nullptr;  // of the model

  // Call the functions of the model with these names. An error in them names the plugin (in_plugin()).
  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const;
  ModelState initial_state(Context& ctx, int64_t sequences) const;
};
// Sets `frozen` of the parameters that init.freeze matches. UserError: an invalid regular expression, one that matches
// no parameter, or one that matches all.
void mark_frozen(std::vector<ParameterSpec>& specs, const InitConfig& init);
// `vocabulary` null: structure only, for a dry run.
Network make_network(const Recipe& recipe, int64_t vocab_size, const Vocabulary* vocabulary);

// The name in a component's config, or "?".
std::string component_name(const Node& component);

// The environment of a batcher of `recipe` for `data`; `cost` and `macs`, for pairs, are left empty.
BatcherEnv batcher_env(const Recipe& recipe, const Dataset& data, std::shared_ptr<Allocator> allocator);
std::unique_ptr<Batcher> make_batcher(const Recipe& recipe, const BatcherEnv& env);

// A translation model needs parallel text and a batcher of pairs, a language model a batcher of sequences. The
// UserError names both components and the possible replacements.
void check_model_fits_data(const Recipe& recipe, const Model& model, const Dataset& data);
void check_batcher_fits_model(const Recipe& recipe, const Batcher& batcher, const Model& model);

// The token before which the sequences of the batcher are cut into documents; -1: they are not cut. UserError: the
// data has no such token, or the model does not read documents.
int32_t separator_of(const Recipe& recipe, const Batcher& batcher, const Model& model, const Dataset& data);

// Checks the patterns of `clip` and `train.ema_params` against the model's parameters. UserError at the pattern's
// place: it matches no parameter, or earlier rules of `clip` match all of its parameters.
void check_patterns(const Recipe& recipe, const std::vector<ParameterSpec>& specs);
// The pattern of train.ema_params, compiled.
ParamPattern ema_pattern(const Recipe& recipe);

// The forward pass of the rank with the largest share of the batch.
ForwardShape forward_shape(const Recipe& recipe, int ranks, const BatchPlan& plan);

// Warnings to print about settings that have no effect or lose information.
std::vector<std::string> warnings_of(const Recipe& recipe, const Network& network, const Exchanger& sync, int ranks,
                                     const BatchPlan& plan);

// The type of matrix products under `precision`.
DType compute_of(const Recipe& recipe);
// exact, tf32 or bf16x3.
F32Products products_named(const std::string& name);
// UserError: the recipe's `products` need a GPU, and `device` is none.
void check_products(const Recipe& recipe, Device device);

// The context of a rank: precision, allocator, random key. `device`: where it computes; empty: where the recipe says.
Context make_context(const Recipe& recipe, Communicator& comm, const std::optional<Device>& device = {});

// Adds every parameter with its initial value.
void add_parameters(Context& ctx, ParameterStore& params, const Network& network, int64_t seed);

}  // namespace lmx
