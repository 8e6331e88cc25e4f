// The process's logger: lines to stderr and, after a run has created its folder, to its log.txt.
#pragma once

#include <string>
#include <string_view>

#include "lmx/api.h"

namespace lmx {

enum class LogLevel { debug, info, warn, error };

// Thread-safe. A line below the threshold (default info) is written to the file only.
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
// Prints a line that the next one overwrites; "" clears it. If stderr is not a terminal, prints one line every 30 s
// instead.
LMX_API void progress_line(std::string_view text);
// True if stderr is a terminal that can overwrite a line; colour also requires that NO_COLOR is not set.
LMX_API bool progress_enabled();
LMX_API bool colour_enabled();

}  // namespace lmx
