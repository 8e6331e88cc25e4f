// The text of `lmx --version`.
#include <gnu/libc-version.h>

#include "cli/commands.h"
#include "lmx/error.h"
#include "plugin/library.h"

namespace lmx::app::cli {

std::string version_text() {
  return str("lmx ", kVersion, " (MIT licence)\n\nbuilt by   ", LMX_COMPILER, "\nplugins    build id ", own_build_id(),
             "\nC library  glibc ", gnu_get_libc_version(), "\nlibraries  ", LMX_LIBRARIES);
}

}  // namespace lmx::app::cli
