// Starts the ranks of a job on this host: lmx runs itself once for each rank.
#pragma once

#include <string>

namespace lmx_gloo {

// The variable that names the folder where the ranks that lmx has started exchange their addresses.
inline constexpr const char* kFolderVariable = "LMX_RENDEZVOUS";

// The exit code of a rank, started by lmx, that has lost a connection while the ranks were meeting, although no rank
// has ended. It prints nothing, because several ranks can lose the same connection: the lmx that has started it reports
// it.
inline constexpr int kDisturbed = 75;

// Runs this process's own command line as `ranks` processes, and always throws lmx::EndProcess with their exit code.
// This process only forwards signals, ends the ranks if one is lost and the others do not end by themselves, and
// reports how a rank ended if no rank has printed an error.
[[noreturn]] void start_ranks(int ranks);

}  // namespace lmx_gloo
