// Line ends that yaml-cpp 0.7 loses at the end of a scalar.
#pragma once

#include <string>

#include "config/source_text.h"

namespace lmx::config {

// `value`: the text that yaml-cpp has read for the quoted or block scalar that begins at `pos`. Returns it with the
// line ends that YAML 1.2 keeps and yaml-cpp drops: those of blank lines before a closing quote, and after a text
// folded by `>+`.
std::string with_line_ends(const SourceText& source, size_t pos, std::string value);

}  // namespace lmx::config
