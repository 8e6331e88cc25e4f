// Starts the ranks of a job on this host: lmx runs itself once for each rank.
#pragma once

#include <string>

namespace lmx_gloo {

// The variable that names the folder where the ranks that lmx has started exchange their addresses.
inline constexpr const char* kFolderVariable = "LMX_RENDEZVOUS";

// Runs this process's own command line as `ranks` processes, and always throws lmx::EndProcess with their exit code.
// This process only forwards signals, ends the ranks if one is lost and the others do not end by themselves, and
// reports how a rank ended if no rank has printed an error.
[[noreturn]] void start_ranks(int ranks);

}  // namespace lmx_gloo
