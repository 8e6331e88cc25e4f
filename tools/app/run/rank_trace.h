// A trace of several ranks: a group of rows for each of them, named after it.
#pragma once

#include <string>
#include <vector>

#include "lmx/trace.h"

namespace lmx::train {

// The spans of a rank's tracer as JSON for write_rank_trace(): in the process "rank <rank>" a row for each thread, the
// first one named "rank <rank>" too. RunError: no memory to write them to.
std::string rank_rows(const Tracer& tracer, int rank);

// A Chrome trace of the rows of all ranks. RunError: the file cannot be written.
void write_rank_trace(const std::string& path, const std::vector<std::string>& rows);

}  // namespace lmx::train
