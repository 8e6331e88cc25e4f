// A trace of several ranks: each rank has a named group of rows.
#pragma once

#include <string>
#include <vector>

#include "lmx/trace.h"

namespace lmx::train {

// Returns the spans of a rank's tracer as JSON for write_rank_trace(): the process "rank <rank>" with one row per
// thread, of which the first is also named "rank <rank>". RunError: no memory for the file.
std::string rank_rows(const Tracer& tracer, int rank);

// A Chrome trace of the rows of all ranks. RunError: the file cannot be written.
void write_rank_trace(const std::string& path, const std::vector<std::string>& rows);

}  // namespace lmx::train
