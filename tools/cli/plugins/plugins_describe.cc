// lmx plugins describe: the last step of a build, so that a plugin's fields are known without loading it.
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/plugins/plugin_file.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx_cli {

const lmx::PluginInfo& plugin_of_file(const std::string& file) {
  namespace fs = std::filesystem;
  if (!fs::exists(file)) throw lmx::UserError(lmx::str("[plugins] ", file, " does not exist"));
  const fs::path path = fs::canonical(file);
  if (path.extension() != ".so")
    throw lmx::UserError(lmx::str("[plugins] ", file, " is no library; build the plugin and give its library, such as ",
                                  "build/lib/lmx/plugins/KIND/", path.stem().string(), "/", path.stem().string(),
                                  ".so"));
  if (!fs::exists(path.parent_path() / "plugin.toml"))
    throw lmx::UserError(
        lmx::str("[plugins] ", file, ": its folder contains no plugin.toml; lmx_plugin() in CMake copies it there"));
  lmx::Registry& registry = lmx::Registry::instance();
  registry.add_directory(path.parent_path().string());
  for (const lmx::PluginInfo& info : registry.list()) {
    if (fs::path(info.path) != path) continue;
    for (const lmx::PluginKind kind : kPluginKinds)
      if (info.kind == lmx::name_of(kind)) return registry.find(kind, info.name);
  }
  throw lmx::UserError(lmx::str("[plugins] plugin.toml beside ", file,
                                " names another plugin: the library must be called ",
                                "as its key `name` says, with .so"));
}

void add_plugins_describe(Command group) {
  const Command command =
      group.add_subcommand("describe", "load a plugin once and write its fields beside it, in NAME.fields.toml");
  set_examples(command, {{"lmx plugins describe by_hand/my_sync.so", "what lmx_plugin() in CMake does by itself"}});
  const auto file = std::make_shared<std::string>();
  command.add_option("FILE", *file, "the library; its folder contains plugin.toml").required();
  command.callback([file] {
    const lmx::PluginInfo& plugin = plugin_of_file(*file);
    const std::string description = lmx::description_file(plugin);
    lmx::write_file(description, lmx::description_text(plugin));
    std::cout << description << "\n";
  });
}

}  // namespace lmx_cli
