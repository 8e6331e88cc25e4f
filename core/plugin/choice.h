// Components that are built in or plugins: losses, optimizers and schedules. Names that are built in have priority; the
// registry refuses plugins of such names.
#pragma once

#include <string>
#include <vector>

#include "lmx/plugin.h"
#include "nn/component.h"

namespace lmx {

// The names that are built into lmx, with their fields; empty for a kind of which every component is a plugin.
component::Described built_in(PluginKind kind);

// The names of the plugins of a kind.
std::vector<std::string> plugin_names(PluginKind kind);

// The component that a subtree of a recipe names: an entry of the built-in table, or a plugin.
template <class Factory>
class Choice {
 public:
  // `fallback`: the name that a recipe without this part has; null: there is none. UserError: an unknown name, with the
  // nearest one.
  Choice(PluginKind kind, const std::vector<component::Entry<Factory>>& table, const Node& config, std::string path,
         const char* fallback)
      : kind_(kind), config_(config), path_(std::move(path)) {
    entry_ = component::find(table, plugin_names(kind), config, path_, fallback);
    if (!entry_) plugin_ = &Registry::instance().find(kind, config, path_);
  }

  const PluginInfo* plugin() const { return plugin_; }  // null: the component is built in
  // The component's subtree with all defaults.
  Node full() const { return plugin_ ? full_component(kind_, config_, path_) : entry_->full(config_, path_); }
  // The value of a trait; "" if the component does not have it.
  std::string trait(const char* name) const {
    if (plugin_) return trait_of(kind_, config_, path_, name);
    const Traits traits = entry_->traits(config_, path_);
    const auto found = traits.find(name);
    return found == traits.end() ? "" : found->second;
  }
  // Calls the factory. UserError that names the plugin: it throws an exception or returns nothing.
  template <class... Args>
  auto make(const Args&... args) const {
    if (!plugin_) return entry_->make(config_, path_, args...);
    auto made = create<Factory>(*plugin_, config_, path_, args...);
    if (!made) throw UserError(str("[plugin] ", plugin_->path, ": its factory returns no ", name_of(kind_)));
    return made;
  }

 private:
  PluginKind kind_;
  const Node& config_;
  std::string path_;
  const component::Entry<Factory>* entry_ = nullptr;
  const PluginInfo* plugin_ = nullptr;
};

}  // namespace lmx
