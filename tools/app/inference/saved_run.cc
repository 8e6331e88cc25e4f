#include "app/inference/saved_run.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <numbers>

#include "app/inference/run_text.h"
#include "app/runs/run_directory.h"
#include "app/runs/stored_parameters.h"
#include "app/translation/translate.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "nn/state_dict.h"
#include "runfiles/metrics.h"
#include "train/evaluate.h"

namespace lmx {
namespace train {

Recipe recipe_of_run(const std::string& directory, const std::string& device) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  Recipe recipe = read_recipe(read_run_config(directory), path.parent_path().filename().string());
  if (device.empty()) return recipe;
  recipe.device = device;
  recipe.device_place = "--device: ";
  return recipe;
}

namespace {

// Throws a separate message if a table with one row per word has a different number of rows. Then the checkpoint has
// another vocabulary, and is older than the vocabulary hashes in checkpoints.
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
  StoredParameters stored = load_stored(checkpoint, Allocator::cpu());
  check_vocabulary(stored.vocabulary, checkpoint, vocabulary, directory);
  check_rows(network, stored.values, vocabulary.size(), checkpoint);
  for (const ParameterSpec& spec : network.specs)
    params.add(ctx, {spec.name, spec.shape, Init{"zeros", 0}, spec.sparse, spec.output, spec.frozen}, RandomKey());
  load_parameters(params, stored.values, checkpoint);
  if (!stored.averages.empty()) {
    if (recipe.train.ema > 0)  // else they are those of the optimizer
      Ema(params, recipe.train.ema, ema_pattern(recipe)).load(stored.averages);
    for (const auto& [name, t] : stored.averages) stored.values[name] = t;
    load_parameters(params, stored.values, checkpoint);
  }
  require_finite(stored.values, checkpoint);
  step = stored.step;
}

}  // namespace train
}  // namespace lmx

namespace lmx::train {
namespace {

// Compares layer numbers in names that differ only in this number: the longer number is the higher one.
bool is_higher(const std::string& name, const std::string& other) {
  return name.size() != other.size() ? name.size() > other.size() : name > other;
}

}  // namespace

std::string state_name(const ModelState& state, const std::string& wanted) {
  if (state.empty())
    throw UserError(str("[state] this run's model keeps no state from token to token, so there is no ", wanted,
                        " state to look at"));
  if (state.contains(wanted)) return wanted;
  std::vector<std::string> names;
  std::string cell, hidden;  // of the last layer
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
    if (name.ends_with(".c") && is_higher(name, cell)) cell = name;
    if ((name.ends_with(".h") || name.ends_with(".s")) && is_higher(name, hidden)) hidden = name;
  }
  if (cell.empty()) cell = hidden;
  const std::string found = wanted == "cell" ? cell : wanted == "hidden" ? hidden : "";
  if (!found.empty()) return found;
  throw UserError(str("[state] this run's model has no ", wanted, " state", did_you_mean(wanted, names), "; it has ",
                      config::join(names)));
}

int64_t state_units(const ModelState& state, const std::string& name, int64_t unit) {
  const Tensor& tensor = state.at(name);
  const int64_t units = tensor.dim(0) > 0 ? tensor.numel() / tensor.dim(0) : 0;
  if (unit >= units || unit < -1)
    throw UserError(str("[state] ", name, " has units 0 to ", units - 1, ", no unit ", unit));
  return units;
}

}  // namespace lmx::train
