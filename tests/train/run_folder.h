// For tests that train runs or read them: finds the plugins, logs errors only, and makes recipes of small runs.
#pragma once

#include "app/datasets/open.h"
#include "app/inference/saved_run.h"
#include "app/runs/run_directory.h"
#include "app/text/subwords.h"
#include "data/dataset.h"
#include "device.h"
#include "lmx/data.h"
#include "lmx/log.h"
#include "lmx/plugin.h"
#include "nn/state_dict.h"
#include "recipe/components.h"
#include "recipe/recipe.h"
#include "train/fixture.h"

namespace lmx::app {

// The parts that the small runs of word models have in common.
inline constexpr const char* kWordRecipe = R"(
data: {name: synthetic, vocab_size: 40, train_tokens: 1500, valid_tokens: 157, test_tokens: 0, branching: 6, classes: 4}
batcher: {name: tbptt, sequence_length: 5}
batch: {global: 6}
run: {tensorboard: false}
threads: 1
)";

// Values of a recipe to replace, in YAML: {"batch.micro", "2"}.
using Changes = std::vector<std::pair<std::string, std::string>>;

// Parses `yaml` and makes the changes. A group that the recipe does not have is added. The run computes on the device
// that LMX_TEST_DEVICE names.
inline Node changed(const std::string& yaml, const Changes& changes) {
  Node tree = parse_yaml(yaml, "recipe.yaml");
  if (lmx_test::test_device() != "cpu") tree.set("device", Node::string(lmx_test::test_device()));
  for (const auto& [key, text] : changes) {
    const size_t dot = key.rfind('.');
    const Node value = parse_yaml(text, "change");
    if (dot == std::string::npos) {
      tree.set(key, value);
      continue;
    }
    const std::string group = key.substr(0, dot);
    if (!tree.at_path(group)) tree.set(group, Node::map());
    tree.at_path(group)->set(key.substr(dot + 1), value);
  }
  return tree;
}

// All values, in the order of the parameters.
inline std::vector<float> values_of(const ParameterStore& params) {
  std::vector<float> all;
  for (const std::string& name : params.names()) {
    const Tensor host = copy_to(params.at(name).value(), Allocator::cpu());
    const auto values = host.values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// The logits (V) of the token that follows `ids`, which are read after those of `state`.
inline std::vector<float> logits_after(SavedRun& run, ModelState& state, const std::vector<int32_t>& ids) {
  Batch batch;
  batch.inputs = Tensor::from<int32_t>(run.ctx.allocator, {1, std::ssize(ids)}, ids);
  batch.targets = batch.inputs;
  batch.slots = {0};
  batch.fresh = {0};
  const Tensor features = run.network.model->forward(run.ctx, run.params, batch, state).value();
  const Tensor last = features.slice(features.dim(0) - 1, features.dim(0));
  const Tensor logits = run.network.loss->logits(run.ctx, run.params, last);
  const auto values = logits.values<float>();
  return {values.begin(), values.end()};
}

class RunFolderTest : public FolderTest {
 protected:
  RunFolderTest() {
    load_plugins();
    set_log_level(LogLevel::error);
  }

  // A recipe whose run is written to the folder `dir`. `ranks` 0: without a group.
  Node recipe_in(const std::string& dir, int64_t ranks, const std::string& yaml, const Changes& changes) const {
    Changes all{{"run.dir", to_yaml(Node::string(path(dir)))}};
    if (ranks > 0) all.emplace_back("comm", str("{name: virtual, ranks: ", ranks, "}"));
    all.insert(all.end(), changes.begin(), changes.end());
    return changed(yaml, all);
  }

  // Writes the files that a run writes before its first step to the folder `name`, and a checkpoint of the initial
  // parameters as that of `step`.
  void save_new_run(const std::string& name, const std::string& yaml, int64_t step) const {
    const Node full = full_recipe(parse_yaml(yaml, "recipe.yaml"), name);
    const Recipe recipe = read_recipe(full, name);
    const Dataset data = open_dataset(recipe.data);
    std::filesystem::create_directories(path(name));
    write_all(path(name + "/config.yaml"), to_yaml(full));
    save_vocabulary(path(name), data.vocabulary);
    if (data.codecs.target) save_text_codecs(data.codecs, path(name));
    const auto comm = make_self_communicator(1);
    Context ctx = make_context(recipe, *comm);
    const Network network = make_network(recipe, data.vocabulary.size(), &data.vocabulary);
    ParameterStore params;
    add_parameters(ctx, params, network, 3);
    TrainState state;
    state.model = parameter_values(params);
    state.numbers["step"] = str(step);
    save_checkpoint(path(name), step, state);
  }
};

}  // namespace lmx::app
