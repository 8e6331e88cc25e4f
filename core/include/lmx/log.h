// The process's logger: lines to stderr and, once a run has a directory, to its log.txt.
#pragma once

#include <string>
#include <string_view>

#include "lmx/api.h"

namespace lmx {

enum class LogLevel { debug, info, warn, error };

// Thread-safe. Below the threshold (default info) a line goes to the file only.
LMX_API void log(LogLevel level, std::string_view text);
inline void log_debug(std::string_view text) {
  log(LogLevel::debug, text);
}
inline void log_info(std::string_view text) {
  log(LogLevel::info, text);
}
inline void log_warn(std::string_view text) {
  log(LogLevel::warn, text);
}

LMX_API void set_log_level(LogLevel threshold);
// Appends every further line to `path` as well; "" stops that.
LMX_API void set_log_file(const std::string& path);
// A line that the next one overwrites; "" clears it. Without a terminal on stderr one is printed every 30 s.
LMX_API void progress_line(std::string_view text);
// True where stderr is a terminal that can overwrite a line; colour also needs NO_COLOR unset.
LMX_API bool progress_enabled();
LMX_API bool colour_enabled();

}  // namespace lmx
