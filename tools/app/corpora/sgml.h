// The sentences of WMT's development and test sets, which come as SGML.
#pragma once

#include <string>
#include <string_view>

namespace lmx::data {

// A line for each `<seg ...> ... </seg>`, in their order: white space to single spaces, none at the ends, character
// references as characters. An empty segment is an empty line, so that both sides keep step. UserError, which begins
// with `name`: a segment without an end, or none at all.
std::string lines_of_segments(std::string_view sgml, const std::string& name);

}  // namespace lmx::data
