#include "plugin/choice.h"

namespace lmx {

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
