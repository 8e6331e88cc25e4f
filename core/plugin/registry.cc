#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "config/messages.h"
#include "lmx/plugin.h"
#include "plugin/choice.h"
#include "plugin/library.h"
#include "plugin/manifest.h"

namespace lmx {
namespace {

namespace fs = std::filesystem;
using Key = std::pair<PluginKind, std::string>;

void require_directory(const fs::path& directory, const char* origin) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    throw UserError(str("[plugin] ", origin, ": ", directory.string(), " is no directory"));
  }
}

void refuse_built_in(const Key& key, const PluginInfo& info) {
  for (const auto& [name, fields] : built_in(key.first))
    if (name == info.name)
      throw UserError(str("[plugin] ", info.kind, " '", name, "' of ", info.path,
                          " has the name of one that is built into lmx; give the plugin another name"));
}

}  // namespace

struct Registry::Impl {
  std::mutex mutex;
  std::map<Key, PluginInfo> plugins;  // find() returns references to the values, so their addresses must not change

  // Adds all plugins of a directory or none: none if a plugin.toml is invalid or a plugin is a duplicate. Returns
  // whether there are any.
  bool add(const fs::path& directory) {
    std::map<Key, PluginInfo> found;
    const std::lock_guard lock(mutex);
    const std::vector<fs::path> files = find_manifests(fs::canonical(directory));
    for (const fs::path& file : files) {
      const PluginInfo info = read_manifest(file);
      const Key key{*kind_from_name(info.kind), info.name};
      refuse_built_in(key, info);
      const auto known = plugins.find(key);
      const PluginInfo* other = known != plugins.end() ? &known->second : nullptr;
      if (!other && found.contains(key)) other = &found.at(key);
      if (!other) {
        found.emplace(key, info);
      } else if (other->path != info.path) {
        throw UserError(str("[plugin] ", info.kind, " '", info.name, "' exists twice: ", other->path, " and ",
                            info.path, "; remove one or drop its folder from the search path"));
      }
    }
    plugins.merge(found);
    return !files.empty();
  }

  std::vector<std::string> names(PluginKind kind) const {
    std::vector<std::string> names;
    for (const auto& [key, info] : plugins) {
      if (key.first == kind) names.push_back(key.second);
    }
    return names;
  }

  PluginInfo& located(PluginKind kind, const std::string& name, const std::string& start) {
    const auto found = plugins.find({kind, name});
    if (found != plugins.end()) return found->second;
    const std::vector<std::string> known = names(kind);
    const std::string near = did_you_mean(name, known);
    const std::string there =
        known.empty()
            ? "there is none of this kind (search path: build tree or install prefix, LMX_PLUGIN_PATH, --plugin-dir)"
            : "there are: " + config::join(known);
    const char* elsewhere = known.empty() || !near.empty() ? ""
                                                           : "; --plugin-dir DIR adds the plugins of another folder (a "
                                                             "run's provenance.json has the paths of its plugins)";
    throw UserError(str(start, "no ", name_of(kind), " plugin '", name, "'", near, "; ", there, elsewhere));
  }

  const PluginInfo& find(PluginKind kind, const std::string& name, const std::string& start) {
    const std::lock_guard lock(mutex);
    PluginInfo& info = located(kind, name, start);
    if (!info.descriptor) {
      const PluginDescriptor* descriptor = load_plugin(info);
      info.hash = file_sha256(info.path);
      info.descriptor = descriptor;
      note_loaded_code(info);
    }
    return info;
  }

  std::optional<PluginDescription> described(PluginKind kind, const std::string& name) {
    const std::lock_guard lock(mutex);
    const PluginInfo& info = located(kind, name, "[plugin] ");
    const std::string build_id = check_build(info);
    std::optional<std::vector<FieldInfo>> fields = described_fields(info);
    if (build_id.empty() || !fields) return std::nullopt;
    return PluginDescription{info, build_id, *std::move(fields)};
  }
};

Registry::Registry() : impl_(new Impl) {}

Registry& Registry::instance() {
  // Never destroyed: code of plugins may use it while the process ends.
  static Registry* const instance = new Registry;
  return *instance;
}

void Registry::add_directory(const std::string& directory) {
  require_directory(directory, "plugin directory");
  if (!impl_->add(directory))
    throw UserError(str("[plugin] plugin directory: ", directory,
                        " contains no plugin.toml, nor do the folders up to two levels below it"));
}

void Registry::add_default_directories() {
  const fs::path own = fs::path(core_library()).parent_path() / "lmx" / "plugins";
  std::error_code error;
  if (fs::is_directory(own, error)) impl_->add(own);
  const char* value = std::getenv("LMX_PLUGIN_PATH");
  std::istringstream path(value ? value : "");
  for (std::string directory; std::getline(path, directory, ':');) {
    if (directory.empty()) continue;  // an empty entry must not mean the current directory
    require_directory(directory, "LMX_PLUGIN_PATH");
    impl_->add(directory);
  }
}

std::vector<PluginInfo> Registry::list() {
  const std::lock_guard lock(impl_->mutex);
  std::vector<PluginInfo> all;
  for (const auto& [key, info] : impl_->plugins) all.push_back(info);
  return all;
}

const PluginInfo& Registry::find(PluginKind kind, const std::string& name) {
  return impl_->find(kind, name, "[plugin] ");
}

const PluginInfo& Registry::find(PluginKind kind, const Node& node, const std::string& path) {
  const Node* name = node.find("name");
  const std::string start = str("[", path, "] ", to_string(name ? name->mark : node.mark), ": ");
  if (node.kind != Node::Kind::map) {
    throw UserError(str(start, "expected a map whose key 'name' chooses a ", name_of(kind), " plugin",
                        node.kind == Node::Kind::scalar ? str(", got '", node.text, "'") : ""));
  }
  if (!name || name->kind != Node::Kind::scalar || name->text.empty()) {
    throw UserError(str(start, "'", path, ".name' must name a ", name_of(kind), " plugin"));
  }
  return impl_->find(kind, name->text, start);
}

PluginDescription Registry::describe(PluginKind kind, const std::string& name) {
  if (auto description = impl_->described(kind, name)) return *std::move(description);
  const PluginInfo& info = find(kind, name);
  try {
    return {info, info.descriptor->build_id, info.descriptor->fields()};
  } catch (...) {
    rethrow_for(info);
  }
}

void rethrow_for(const PluginInfo& info) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw UserError(str("[plugin] ", info.path, ": failed with: ", e.what()));
  } catch (...) {
    throw UserError(str("[plugin] ", info.path, ": failed with an exception that is no std::exception"));
  }
}

Node full_component(PluginKind kind, const Node& node, const std::string& path) {
  const PluginInfo& info = Registry::instance().find(kind, node, path);
  Node full;
  try {
    full = info.descriptor->full_config(node, path);
  } catch (...) {
    rethrow_for(info);
  }
  Node result = Node::map(node.mark);
  result.set("name", *node.find("name"));
  for (auto& [key, value] : full.entries) result.set(key, std::move(value));
  return result;
}

std::string trait_of(PluginKind kind, const Node& node, const std::string& path, const char* trait) {
  const PluginInfo& info = Registry::instance().find(kind, node, path);
  try {
    const Traits traits = info.descriptor->traits(node, path);
    const auto found = traits.find(trait);
    return found == traits.end() ? std::string() : found->second;
  } catch (...) {
    rethrow_for(info);
  }
}

component::Described built_in(PluginKind kind) {
  switch (kind) {
    case PluginKind::loss:
      return component::losses();
    case PluginKind::optimizer:
      return component::optimizers();
    case PluginKind::schedule:
      return component::schedules();
    case PluginKind::codec:
      return component::codecs();
    default:
      return {};
  }
}

std::vector<std::string> plugin_names(PluginKind kind) {
  std::vector<std::string> names;
  for (const PluginInfo& info : Registry::instance().list())
    if (info.kind == name_of(kind)) names.push_back(info.name);
  return names;
}

}  // namespace lmx
