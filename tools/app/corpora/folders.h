// Folders for data and caches on this machine.
#pragma once

#include <string>
#include <vector>

namespace lmx::data {

// Returns the folder of prepared data: LMX_CACHE_DIR, otherwise $XDG_CACHE_HOME/lmx, otherwise ~/.cache/lmx.
std::string default_cache_directory();
// Returns the folders that may contain corpora: those of LMX_DATA_DIR (separated by ':'), otherwise $XDG_DATA_HOME/lmx
// or ~/.local/share/lmx.
std::vector<std::string> data_directories();

}  // namespace lmx::data
