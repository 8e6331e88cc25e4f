// Extracts the sentences of WMT's development and test sets from SGML.
#pragma once

#include <string>
#include <string_view>

namespace lmx::data {

// Returns one line for each `<seg ...> ... </seg>`, in their order. White space becomes single spaces and is removed at
// the ends; character references become characters. An empty segment becomes an empty line, so that both sides stay
// aligned. UserError, starting with `name`: a segment without an end, or no segment.
std::string lines_of_segments(std::string_view sgml, const std::string& name);

}  // namespace lmx::data
