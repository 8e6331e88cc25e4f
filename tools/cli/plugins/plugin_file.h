// Plugins by kind, and the plugin in a file.
#pragma once

#include <string>

#include "lmx/plugin.h"

namespace lmx_cli {

inline constexpr lmx::PluginKind kPluginKinds[] = {
    lmx::PluginKind::model, lmx::PluginKind::sync,      lmx::PluginKind::batcher, lmx::PluginKind::comm,
    lmx::PluginKind::loss,  lmx::PluginKind::optimizer, lmx::PluginKind::schedule};

// Loads the library `file`, with plugin.toml beside it, and returns its plugin. UserError: it cannot be loaded; the
// message names the file.
const lmx::PluginInfo& plugin_of_file(const std::string& file);

}  // namespace lmx_cli
