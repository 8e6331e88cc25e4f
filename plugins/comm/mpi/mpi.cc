// Ranks are processes of an MPI job. This file joins the job; plugins/comm/processes makes a group of it.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/plugin.h"
#include "mpi_link.h"
#include "processes/process_group.h"
#include "start.h"

namespace lmx_mpi {
namespace {

using lmx::str;
using lmx::processes::ProcessConfig;

// To be called before MPI starts. Settings of the user, on mpirun's command line or in the environment, are kept.
void set_open_mpi_defaults() {
#ifdef OPEN_MPI
  // A spinning rank occupies the core of a rank that computes: all-reduces are 570 times slower with 4 ranks on 2
  // cores.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // The sender pushes messages. With Open MPI's default, the two directions of a link wait for each other.
  setenv("OMPI_MCA_btl_tcp_flags", "send", 0);
  // Small enough that the queue of a slow link does not overflow when a message starts after a pause, and large enough
  // for 10 Gbit/s with a delay of 0.2 ms. At 100 Mbit/s long messages take 1.10 times the link's time instead of 1.45
  // times.
  setenv("OMPI_MCA_btl_tcp_sndbuf", "262144", 0);
  setenv("OMPI_MCA_btl_tcp_rcvbuf", "262144", 0);
  // If a signal ends a rank, the other ranks report that in one line; Open MPI would print twenty lines of its stack.
  setenv("OMPI_MCA_opal_signal", "", 0);
  // MPI's components look up MPI's symbols globally, but a plugin and its libraries are loaded with local symbols.
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0 && info.dli_fname)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
#endif
}

// Suppresses Open MPI's output about a lost rank: pages of advice for each connection, and a line for each memory
// segment. The watchdog reports the lost rank. `mpirun -q` would suppress only the pages, and only if there is an
// mpirun.
void silence_open_mpi() {
#ifdef OPEN_MPI
  const char* told = std::getenv("OMPI_MCA_orte_execute_quiet");
  if (told && std::string_view(told) == "0") return;
  if (void* quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet")) *static_cast<bool*>(quiet) = true;
  if (void* change = dlsym(RTLD_DEFAULT, "opal_output_switch")) reinterpret_cast<bool (*)(int, bool)>(change)(0, false);
#endif
}

// Every process detects the same error, each in a job of one process, so only rank 0 reports it.
[[noreturn]] void refuse_launcher(const lmx::Launch& launch, const std::string& what) {
  const std::string text =
      str("[mpi] ", name_of(launch.launcher), " started ", launch.world, " processes, and ", what,
          ": the launcher belongs to another MPI than this build of lmx; under Slurm use srun --mpi=pmix for Open MPI "
          "and --mpi=pmi2 for MPICH");
  if (launch.rank == 0) throw lmx::UserError(text);
  throw lmx::EndProcess(2, text, true);
}

// Without this check Open MPI prints pages about the error and ends the process.
void require_process_manager(const lmx::Launch& launch) {
#ifdef OPEN_MPI
  if (launch.launcher != lmx::Launcher::slurm) return;
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "PMI_FD"})
    if (std::getenv(name)) return;
  refuse_launcher(launch, "does not announce them to MPI");
#else
  static_cast<void>(launch);
#endif
}

void start_mpi(const lmx::Launch& launch) {
  require_process_manager(launch);
  set_open_mpi_defaults();
  int provided = 0, size = 0, rank = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE)
    throw lmx::RunError("[mpi] this MPI lacks MPI_THREAD_MULTIPLE, which lmx's watchdog needs; Open MPI has it");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (size != launch.world || rank != launch.rank) refuse_launcher(launch, str("MPI sees ", size, " here"));
  silence_open_mpi();
}

class MpiTransport final : public lmx::processes::Transport {
 public:
  explicit MpiTransport(const lmx::Launch& launch) : launch_(launch) {}
  std::string name() const override { return "mpi"; }
  void start() override { start_mpi(launch_); }
  void gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    const auto bytes = static_cast<int>(own.size());
    check(MPI_Allgather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD), "MPI_Allgather");
  }
  // Without these settings mpirun waits eight minutes for the daemon of a lost host, although every rank has ended.
  void note_hosts(const std::vector<std::string>& hosts) override {
    const bool one_host = std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts[0]; });
    if (launch_.rank != 0 || launch_.launcher != lmx::Launcher::open_mpi || one_host) return;
    if (std::getenv("OMPI_MCA_oob_tcp_keepalive_time")) return;
    lmx::log_warn(
        "[mpi] if a host is cut off, this mpirun will end minutes after its ranks; it ends with them if you give --mca "
        "oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 4");
  }
  std::unique_ptr<lmx::processes::BeatLink> beats() override { return make_beats(); }
  std::unique_ptr<lmx::processes::Link> link(Watchdog& watchdog) override { return make_link(watchdog); }
  void leave() override { MPI_Finalize(); }

 private:
  lmx::Launch launch_;
};

// After the warning, Slurm ends the ranks half a minute later or more, which is enough for a reliable diagnosis; mpirun
// after one second.
double warned_silence_s(lmx::Launcher launcher) {
  return launcher == lmx::Launcher::open_mpi ? 0.5 : launcher == lmx::Launcher::slurm ? 2 : 0;
}

std::unique_ptr<lmx::CommGroup> make_mpi(const lmx::Node& node, const std::string& path, const lmx::CommEnv& env) {
  const auto config = lmx::read_config<ProcessConfig>(node, path);
  const lmx::Launch launch = lmx::detect_launch();
  if (launch.launcher == lmx::Launcher::torchrun || launch.launcher == lmx::Launcher::variables)
    throw lmx::UserError(
        str("[", path, "] name=mpi: this process was started by ", name_of(launch.launcher),
            ", which does not work with MPI; give comm=gloo, start lmx by mpirun or srun, or by itself "
            "with comm.ranks=",
            launch.world));
  if (launch.launcher == lmx::Launcher::none) {
    if (config.ranks == 0)
      throw lmx::UserError(
          str("[", path, "] name=mpi: say how many ranks, comm.ranks=4, or start lmx by mpirun or srun"));
    start_ranks(static_cast<int>(config.ranks), path);
  }
  require_started_ranks(config, launch, path);
  return std::make_unique<lmx::processes::ProcessGroup>(std::make_unique<MpiTransport>(launch), "MPI", config, launch,
                                                        env, warned_silence_s(launch.launcher));
}

}  // namespace
}  // namespace lmx_mpi

LMX_PLUGIN(comm, mpi, lmx::processes::ProcessConfig, lmx_mpi::make_mpi)
