// lmx config: a recipe as it will run, without running it.
#include <filesystem>
#include <iostream>
#include <memory>

#include "commands.h"
#include "lmx/config.h"
#include "lmx/train.h"

namespace lmx_cli {
namespace {

struct Options {
  std::string recipe;
  lmx::ComposeOptions compose;
  bool as_written = false;
  PluginDirectories plugins;
};

void print_recipe(const Options& options) {
  lmx::Node tree = lmx::compose(options.recipe, options.compose);
  if (!options.as_written) {
    options.plugins.load();
    tree = lmx::full_recipe(tree, std::filesystem::path(options.recipe).stem().string());
  }
  std::cout << lmx::to_yaml(tree);
}

}  // namespace

void add_config(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("config", "print a recipe as it will run: composed, checked, with every default");
  set_examples(*command, {{"lmx config recipes/quickstart.yaml", "every value that a run would use"},
                          {"lmx config recipes/quickstart.yaml model.cells=512", "with one value changed"},
                          {"lmx config recipes/quickstart.yaml optimizer=adam", "with another option of a group"},
                          {"lmx config recipes/quickstart.yaml --composed", "only what the files say"}});
  const auto options = std::make_shared<Options>();
  command->add_option("RECIPE", options->recipe, "the recipe's file")->required()->type_name("");
  command->add_option("OVERRIDES", options->compose.overrides, "key=value, +key=value, ++key=value, ~key, group=option")
      ->type_name("");
  command->add_option("--config-dir", options->compose.search_path, "another folder of config groups (repeatable)")
      ->type_name("DIR")
      ->allow_extra_args(false);
  command->add_flag("--composed", options->as_written, "leave out the defaults and the checks of the components");
  options->plugins.add_to(*command);
  command->callback([options] { print_recipe(*options); });
}

}  // namespace lmx_cli
