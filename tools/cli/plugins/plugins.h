// Plugins by kind, the plugin in a file, and the files of `lmx plugins new`.
#pragma once

#include <string>
#include <vector>

#include "lmx/plugin.h"

namespace lmx::app::cli {

// Plugins by kind, and the plugin in a file.

inline constexpr PluginKind kPluginKinds[] = {PluginKind::model,    PluginKind::sync,  PluginKind::batcher,
                                              PluginKind::comm,     PluginKind::loss,  PluginKind::optimizer,
                                              PluginKind::schedule, PluginKind::codec, PluginKind::metric};

// Loads the library `file`, with plugin.toml beside it, and returns its plugin. UserError: it cannot be loaded; the
// message names the file.
const PluginInfo& plugin_of_file(const std::string& file);

// The files of `lmx plugins new`: templates/ of this folder, which the build embeds in the program.

struct TemplateFile {
  const char* kind;  // of the plugin ("model"), of a sync plugin also its base ("sync/feedback"), or "common"
  const char* name;  // "plugin.cc", "test.cc", "recipe.yaml", "CMakeLists.txt", "plugin.toml"
  const char* text;  // with @name@, @Name@, @kind@, @version@, @check@ and @summary@
};
const std::vector<TemplateFile>& template_files();

}  // namespace lmx::app::cli
