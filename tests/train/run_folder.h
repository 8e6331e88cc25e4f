// For tests that train runs or read them: finds the plugins, and logs errors only.
#pragma once

#include "app/datasets/open.h"
#include "app/runs/run_directory.h"
#include "app/text/text_codec.h"
#include "data/dataset.h"
#include "lmx/data.h"
#include "lmx/log.h"
#include "lmx/plugin.h"
#include "nn/state_dict.h"
#include "recipe/components.h"
#include "recipe/recipe.h"
#include "train/fixture.h"

namespace lmx::train {

class RunFolderTest : public FolderTest {
 protected:
  RunFolderTest() {
    static const bool once = [] {
      Registry::instance().add_default_directories();
      set_log_level(LogLevel::error);
      return true;
    }();
    static_cast<void>(once);
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

}  // namespace lmx::train
