// The files of `lmx plugins new`: templates/ of this folder, which the build embeds in the program.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli {

struct TemplateFile {
  const char* kind;  // of the plugin, or "common"
  const char* name;  // "plugin.cc", "test.cc", "recipe.yaml", "CMakeLists.txt", "plugin.toml"
  const char* text;  // with @name@, @Name@, @kind@, @version@ and @summary@
};
const std::vector<TemplateFile>& template_files();

}  // namespace lmx_cli
