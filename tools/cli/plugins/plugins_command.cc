// lmx plugins list | info | new | check | describe
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/print/terminal.h"
#include "app/print/words.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "cli/plugins/plugins.h"
#include "lmx/error.h"
#include "plugin/choice.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

struct PluginsFlags {
  PluginDirectories directories;
  std::string name, kind;
  bool json = false;
};

void list(const PluginsFlags& options) {
  options.directories.load();
  std::vector<std::vector<std::string>> rows{{"KIND", "NAME", "VERSION", "SUMMARY", "PATH"}};
  Json plugins = Json::array();
  for (const PluginInfo& p : Registry::instance().list()) {
    rows.push_back({p.kind, p.name, p.version, p.summary, p.path});
    plugins.push_back({{"kind", p.kind},
                       {"name", p.name},
                       {"version", p.version},
                       {"licence", p.licence},
                       {"summary", p.summary},
                       {"path", p.path},
                       {"built_in", false}});
  }
  for (const PluginKind kind : kPluginKinds)
    for (const auto& [name, fields] : built_in(kind)) {
      rows.push_back({name_of(kind), name, "-", "", "built in"});
      plugins.push_back({{"kind", name_of(kind)},
                         {"name", name},
                         {"version", ""},
                         {"licence", ""},
                         {"summary", ""},
                         {"path", ""},
                         {"built_in", true}});
    }
  if (options.json) return print_json({{"plugins", plugins}});
  std::cout << table(rows);
}

void print_fields(const std::vector<FieldInfo>& fields) {
  if (fields.empty()) {
    std::cout << "\nIt has no fields.\n";
    return;
  }
  std::vector<std::vector<std::string>> rows{{"FIELD", "TYPE", "DEFAULT", "RANGE", "MEANING"}};
  for (const FieldInfo& f : fields) rows.push_back({f.name, f.type, f.default_text, f.range, f.help});
  std::cout << "\n" << table(rows);
}

// Losses, optimizers, schedules and codecs of lmx itself. Returns false if there is none of that name.
bool info_of_built_in(const PluginsFlags& options) {
  for (const PluginKind kind : kPluginKinds) {
    if (!options.kind.empty() && options.kind != name_of(kind)) continue;
    for (const auto& [name, fields] : built_in(kind)) {
      if (name != options.name) continue;
      std::cout << table({{"name", name}, {"kind", name_of(kind)}, {"file", "built in"}});
      print_fields(fields);
      return true;
    }
  }
  return false;
}

// Returns the only plugin of that name. --kind selects one if several kinds have this name.
PluginDescription choose(const PluginsFlags& options) {
  Registry& registry = Registry::instance();
  std::vector<PluginKind> kinds;
  std::vector<std::string> names, other_kinds;
  for (const PluginKind kind : kPluginKinds) {
    const bool asked = options.kind.empty() || options.kind == name_of(kind);
    const auto note = [&](const std::string& name) {
      if (asked) names.push_back(name);
      if (!asked && name == options.name) other_kinds.emplace_back(name_of(kind));
    };
    for (const PluginInfo& p : registry.list()) {
      if (p.kind != name_of(kind)) continue;
      note(p.name);
      if (asked && p.name == options.name) kinds.push_back(kind);
    }
    for (const auto& [name, fields] : built_in(kind)) note(name);
  }
  if (kinds.size() > 1) {
    throw UserError(str("[plugins] '", options.name, "' is the name of ", kinds.size(),
                        " plugins; choose one with --kind ", name_of(kinds[0]), " or --kind ", name_of(kinds[1])));
  }
  if (kinds.empty()) {
    throw UserError(str("[plugins] no ", options.kind.empty() ? "plugin" : options.kind, " '", options.name, "'",
                        other_kinds.empty() ? did_you_mean(options.name, names)
                                            : "; there is one of the kind " + joined(other_kinds, " and of the kind "),
                        "; `lmx plugins list` shows them all"));
  }
  return registry.describe(kinds[0], options.name);
}

void info(const PluginsFlags& options) {
  options.directories.load();
  if (info_of_built_in(options)) return;
  const PluginDescription description = choose(options);
  const PluginInfo& p = description.plugin;
  std::cout << table({{"name", p.name},
                      {"kind", p.kind},
                      {"summary", p.summary},
                      {"version", p.version},
                      {"licence", p.licence},
                      {"file", p.path},
                      {"sha256", file_sha256(p.path)},
                      {"build", description.build_id}});
  print_fields(description.fields);
}

// lmx plugins describe: the last step of a build, so that a plugin's fields are known without loading it.
void add_plugins_describe(Command group) {
  const Command command =
      group.add_subcommand("describe", "load a plugin once and write its fields beside it, in NAME.fields.toml");
  set_examples(command, {{"lmx plugins describe by_hand/my_sync.so", "what lmx_plugin() in CMake does by itself"}});
  const auto file = std::make_shared<std::string>();
  command.add_option("FILE", *file, "the library; its folder contains plugin.toml").required();
  command.callback([file] {
    const PluginInfo& plugin = plugin_of_file(*file);
    const std::string description = description_file(plugin);
    write_file(description, description_text(plugin));
    std::cout << description << "\n";
  });
}

}  // namespace

const PluginInfo& plugin_of_file(const std::string& file) {
  namespace fs = std::filesystem;
  if (!fs::exists(file)) throw UserError(str("[plugins] ", file, " does not exist"));
  const fs::path path = fs::canonical(file);
  if (path.extension() != ".so")
    throw UserError(str("[plugins] ", file, " is no library; build the plugin and give its library, such as ",
                        "build/lib/lmx/plugins/KIND/", path.stem().string(), "/", path.stem().string(), ".so"));
  if (!fs::exists(path.parent_path() / "plugin.toml"))
    throw UserError(
        str("[plugins] ", file, ": its folder contains no plugin.toml; lmx_plugin() in CMake copies it there"));
  Registry& registry = Registry::instance();
  registry.add_directory(path.parent_path().string());
  for (const PluginInfo& info : registry.list()) {
    if (fs::path(info.path) != path) continue;
    for (const PluginKind kind : kPluginKinds)
      if (info.kind == name_of(kind)) return registry.find(kind, info.name);
  }
  throw UserError(str("[plugins] plugin.toml beside ", file, " names another plugin: the library must be called ",
                      "as its key `name` says, with .so"));
}

void add_plugins(Command app) {
  const Command group = app.add_subcommand("plugins", "list, show, write and check plugins");
  set_examples(group,
               {{"lmx plugins list", "what is found, and where"},
                {"lmx plugins info lstm", "the fields of one plugin"},
                {"lmx plugins info adam", "those of a loss, an optimizer, a schedule or a codec that is built in"},
                {"lmx plugins new sync my_sync", "write one to start from"},
                {"lmx plugins check my_sync.so", "tests it by the rules of its kind"}});

  const auto options = std::make_shared<PluginsFlags>();
  const Command list_command = group.add_subcommand(
      "list", "every plugin that is found, and what is built in: kind, name, version, summary, file");
  set_examples(list_command, {{"lmx plugins list", "build tree or install prefix, and LMX_PLUGIN_PATH"},
                              {"lmx plugins list --plugin-dir my/plugins", "and another folder"}});
  options->directories.add_to(list_command);
  add_json(list_command, options->json);
  list_command.callback([options] { list(*options); });

  const Command info_command = group.add_subcommand("info", "one plugin: licence, file, hash, and each field it reads");
  set_examples(info_command, {{"lmx plugins info lstm", "name, type, default, range and meaning of each field"}});
  info_command.add_option("NAME", options->name, "the plugin's name").required();
  info_command
      .add_option("--kind KIND", options->kind,
                  "model, sync, batcher, comm, loss, optimizer, schedule, codec or metric, if several plugins have the "
                  "same name")
      .one_of({"model", "sync", "batcher", "comm", "loss", "optimizer", "schedule", "codec", "metric"});
  options->directories.add_to(info_command);
  info_command.callback([options] { info(*options); });
  add_plugins_new(group);
  add_plugins_check(group);
  add_plugins_describe(group);
}

}  // namespace lmx::app::cli
