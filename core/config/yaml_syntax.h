// What is no YAML, or none that means what it looks like, in words from which the fix is plain: yaml-cpp's own ones
// ("illegal map value") are a parser's.
#pragma once

#include <yaml-cpp/exceptions.h>

#include <optional>
#include <utility>
#include <vector>

#include "config/source_text.h"

namespace lmx::config {

// yaml-cpp passes over a line that begins with %, wherever it stands; YAML has directives in front of `---` alone.
// `quotes`: where each text in quotes begins and ends, in order; a line inside one is no directive.
void check_directives(const SourceText& source, const std::vector<std::pair<size_t, size_t>>& quotes);

// Something at `pos` that is part of no map or list.
[[noreturn]] void fail_loose(const SourceText& source, size_t pos);

// `open`: the bracket inside which the mistake shows.
[[noreturn]] void fail_syntax(const SourceText& source, const YAML::Exception& error, std::optional<size_t> open);

}  // namespace lmx::config
