#include "train/saved_run.h"

#include <cmath>
#include <filesystem>

#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/resume.h"
#include "train/run_directory.h"

namespace lmx {
namespace train {

Recipe recipe_of_run(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  return read_recipe(read_run_config(directory), path.parent_path().filename().string());
}

SavedRun::SavedRun(const std::string& directory, const Recipe& recipe, const Vocabulary& vocabulary,
                   const std::string& checkpoint)
    : comm(make_self_communicator(static_cast<int>(recipe.threads))), ctx(make_context(recipe, *comm)) {
  set_num_threads(comm->threads());
  ctx.training = false;
  network = make_network(recipe, vocabulary.size(), &vocabulary);
  const std::string folder = find_checkpoint(directory, checkpoint);
  const TrainState state = load_checkpoint(folder, ctx.allocator);
  for (const ParameterSpec& spec : network.specs)
    params.add(ctx, {spec.name, spec.shape, Init{"zeros", 0}, spec.sparse}, RandomKey());
  load_parameters(params, state.model, folder);
  if (recipe.train.ema > 0) {
    Ema ema(ctx, params, recipe.train.ema, recipe.train.ema_params);
    ema.load(with_prefix(state.train, "ema/"));
    ema.swap(params);
  }
  const auto found = state.numbers.find("step");
  if (found != state.numbers.end()) step = static_cast<int64_t>(std::llround(number_from_text(found->second)));
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
    throw UserError(str("[eval] the ", split, " split of this run's data holds ", tokens->size(), " tokens"));
  return *tokens;
}

int64_t window_of(const Recipe& recipe) {
  const Node full = full_component(PluginKind::batcher, recipe.batcher, "batcher");
  const Node* length = full.find("sequence_length");
  return length ? parse_int(length->text).value_or(35) : 35;
}

}  // namespace
}  // namespace train

EvalResult evaluate_run(const std::string& directory, const EvalOptions& options) {
  using namespace train;
  const Recipe recipe = recipe_of_run(directory);
  static_cast<void>(find_checkpoint(directory, options.checkpoint));  // its message before the data is read
  const Dataset data = open_dataset(recipe.data);
  const std::string recorded = recorded_data_hash(directory);
  if (!recorded.empty() && recorded != data.hash)
    throw UserError(str("[eval] the data of ", directory, " has changed since it was trained: its hash was ", recorded,
                        ", now it is ", data.hash));
  const TokenArray& tokens = split_of(data, options.split);
  SavedRun run(directory, recipe, data.vocabulary, options.checkpoint);
  const SplitPlan plan{options.split, recipe.train.eval_batch, window_of(recipe), 0, recipe.train.eval_carry};
  const SplitScore score = score_split(run.ctx, run.network, run.params, tokens, plan, {});
  EvalResult r{run.step, score.tokens, score.nll(), score.ppl(), data.unit, {}};
  if (options.split == "valid") r.true_ppl = data.true_perplexity;
  return r;
}

}  // namespace lmx
