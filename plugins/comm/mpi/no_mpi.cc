// Replaces the plugin in a build without MPI: the same fields, and one error.
#include "lmx/comm.h"
#include "lmx/plugin.h"
#include "processes/process_config.h"

namespace {

std::unique_ptr<lmx::CommGroup> make_mpi(const lmx::Node& config, const std::string& path, const lmx::CommEnv&) {
  static_cast<void>(lmx::read_config<lmx::processes::ProcessConfig>(config, path));
  throw lmx::UserError(lmx::str("[", path,
                                "] name=mpi: this build of lmx has no MPI; install it (Debian: apt-get install "
                                "libopenmpi-dev openmpi-bin) and build again, or use comm.name=virtual"));
}

}  // namespace

LMX_PLUGIN(comm, mpi, lmx::processes::ProcessConfig, make_mpi)
