// Replaces the plugin in a build without Gloo: the same fields, and one error.
#include "gloo_config.h"
#include "lmx/comm.h"
#include "lmx/plugin.h"

namespace {

std::unique_ptr<lmx::CommGroup> make_gloo(const lmx::Node& config, const std::string& path, const lmx::CommEnv&) {
  static_cast<void>(lmx::read_config<lmx_gloo::GlooConfig>(config, path));
  throw lmx::UserError(lmx::str("[", path,
                                "] name=gloo: this build of lmx has no Gloo; install it (Debian: apt-get install "
                                "libgloo-dev) and build again, or use comm.name=mpi or virtual"));
}

}  // namespace

LMX_PLUGIN(comm, gloo, lmx_gloo::GlooConfig, make_gloo)
