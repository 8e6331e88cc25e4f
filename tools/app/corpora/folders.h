// Where data and caches are on this machine.
#pragma once

#include <string>
#include <vector>

namespace lmx::data {

// Where prepared data is kept: LMX_CACHE_DIR, else $XDG_CACHE_HOME/lmx, else ~/.cache/lmx.
std::string default_cache_directory();
// Folders that may hold corpora: those of LMX_DATA_DIR (':' between them), else $XDG_DATA_HOME/lmx or
// ~/.local/share/lmx.
std::vector<std::string> data_directories();

}  // namespace lmx::data
