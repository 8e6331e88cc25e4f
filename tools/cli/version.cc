// The text of `lmx --version`.
#include <gnu/libc-version.h>

#include "cli/commands.h"
#include "lmx/error.h"
#include "plugin/library.h"

namespace lmx_cli {

std::string version_text() {
  return lmx::str("lmx ", lmx::kVersion, " (MIT licence)\n\nbuilt by   ", LMX_COMPILER, "\nplugins    build id ",
                  lmx::own_build_id(), "\nC library  glibc ", gnu_get_libc_version(), "\nlibraries  ", LMX_LIBRARIES);
}

}  // namespace lmx_cli
