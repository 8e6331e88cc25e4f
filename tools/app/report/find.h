// Finds the runs below a folder.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli::reports {

// Returns whether `directory` contains the records of a run.
bool holds_run(const std::string& directory);

// Returns the folders of runs below `directory` at any depth, sorted by path; or `directory` itself if it contains a
// run. Hidden folders, links and the folders inside a run are not searched. UserError: there is no such directory.
std::vector<std::string> runs_below(const std::string& directory);

}  // namespace lmx_cli::reports
