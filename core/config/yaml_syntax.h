// Reports text that is not valid YAML, or whose meaning differs from its appearance. The messages suggest a correction;
// those of yaml-cpp ("illegal map value") describe the state of its parser.
#pragma once

#include <yaml-cpp/exceptions.h>

#include <optional>
#include <utility>
#include <vector>

#include "config/source_text.h"

namespace lmx::config {

// yaml-cpp ignores each line that begins with %, but YAML allows directives only before `---`. `quotes`: begin and end
// of each text in quotes, in order; a line inside quotes is no directive.
void check_directives(const SourceText& source, const std::vector<std::pair<size_t, size_t>>& quotes);

// Reports text at `pos` that belongs to no map or list.
[[noreturn]] void fail_loose(const SourceText& source, size_t pos);

// Reports a syntax error of yaml-cpp. `open`: the innermost open bracket at the error.
[[noreturn]] void fail_syntax(const SourceText& source, const YAML::Exception& error, std::optional<size_t> open);

}  // namespace lmx::config
