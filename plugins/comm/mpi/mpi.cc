// Ranks are processes. This file joins the job; communicator.cc moves data, and watchdog.cc ends the job if a rank is
// lost.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>

#include "communicator.h"
#include "deadline.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/plugin.h"
#include "mpi_config.h"
#include "placement.h"
#include "start.h"
#include "watchdog.h"

namespace lmx_mpi {
namespace {

using lmx::str;

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
  ignore_broken_pipes();
  int provided = 0, size = 0, rank = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE)
    throw lmx::RunError("[mpi] this MPI lacks MPI_THREAD_MULTIPLE, which lmx's watchdog needs; Open MPI has it");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (size != launch.world || rank != launch.rank) refuse_launcher(launch, str("MPI sees ", size, " here"));
  silence_open_mpi();
}

// Without these settings mpirun waits eight minutes for the daemon of a lost host, although every rank has ended.
void warn_of_patient_mpirun(const std::vector<Placement>& placements, const lmx::Launch& launch) {
  const bool one_host = std::all_of(placements.begin(), placements.end(),
                                    [&](const Placement& s) { return std::string_view(s.host) == placements[0].host; });
  if (launch.rank != 0 || launch.launcher != lmx::Launcher::open_mpi || one_host) return;
  if (std::getenv("OMPI_MCA_oob_tcp_keepalive_time")) return;
  lmx::log_warn(
      "[mpi] if a host is cut off, this mpirun will end minutes after its ranks; it ends with them if you give --mca "
      "oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 4");
}

class MpiGroup : public lmx::CommGroup {
 public:
  MpiGroup(const MpiConfig& config, const lmx::Launch& launch, const lmx::CommEnv& env)
      : config_(config), launch_(launch), threads_(env.threads), deterministic_(env.deterministic) {}

  ~MpiGroup() override {
    // MPI_Finalize waits for all ranks; after a failure the launcher ends the processes instead.
    if (!started_ || failed_ || std::uncaught_exceptions() != 0) return;
    const Deadline end(in_turn(config_.timeout_s), late_end());
    MPI_Finalize();
  }

  int size() const override { return launch_.world; }

  void run(const std::function<void(lmx::Communicator&)>& body) override {
    failed_ = true;  // until the end of this function is reached
    std::optional<Deadline> start(std::in_place, in_turn(start_s()),
                                  str("rank ", launch_.rank, " of ", launch_.world, " has waited ", start_s(),
                                      " s for other ranks to start (comm.lag_s)"));
    if (!started_) start_mpi(launch_);
    started_ = true;
    accept_forwarded_signals();
    const MPI_Comm data = own_link(), beats = own_link();
    const std::vector<Placement> placements = gather_placements(data);
    Watchdog watchdog(beats, placements, settings());
    start.reset();
    warn_of_patient_mpirun(placements, launch_);
    MpiCommunicator comm(data, config_.reduce == "native", watchdog,
                         threads_for(fair_threads(placements, launch_.rank)));
    try {
      body(comm);
      comm.finish();
    } catch (const lmx::EndProcess&) {
      throw;
    } catch (...) {
      rethrow_for_rank(watchdog.fail());
    }
    const Deadline end(in_turn(config_.timeout_s), late_end());
    watchdog.stop();
    comm.finish();
    watchdog.drain();
    failed_ = false;
  }

  std::string describe() const override {
    return str(launch_.world, launch_.world == 1 ? " process (MPI)" : " processes (MPI, ") +
           (launch_.world == 1 ? "" : str("started by ", name_of(launch_.launcher), ")"));
  }

 private:
  // `fair`: number of cores for this rank alone. In a deterministic run it must not influence the bits.
  int threads_for(int fair) const {
    if (threads_ > 0) return threads_;
    if (!deterministic_) return fair;
    if (fair > 1 && launch_.rank == 0)
      lmx::log_info(str("[mpi] a rank has ", fair, " cores and uses one of them; threads=", fair,
                        " uses all, deterministic=false whatever there are"));
    return 1;
  }
  // The limits of the ranks differ, so that only one rank reports; the launcher then ends the others.
  double in_turn(double seconds) const { return seconds > 0 ? seconds + 3 * std::min(launch_.rank, 5) : 0; }
  // A start takes seconds, a collective less, so a short lag_s does not apply to the start.
  double start_s() const { return config_.lag_s > 0 ? std::max(config_.lag_s, config_.timeout_s) : 0; }
  std::string late_end() const {
    return str("rank ", launch_.rank, " of ", launch_.world,
               ": all has been computed, but another rank has not left the job ", config_.timeout_s,
               " s later (stopped, or its host is down or cut off?)");
  }

  Watchdog::Settings settings() const {
    // After the warning, Slurm ends the ranks half a minute later or more, which is enough for a reliable diagnosis;
    // mpirun after one second.
    const bool mpirun = launch_.launcher == lmx::Launcher::open_mpi, srun = launch_.launcher == lmx::Launcher::slurm;
    return {config_.heartbeat_s, {config_.timeout_s, config_.lag_s}, mpirun ? 0.5 : srun ? 2 : 0};
  }

  // Reports an error that all ranks have only once: one rank reports it. If that is not rank 0, this rank is the only
  // one with the error, and its message names it.
  [[noreturn]] void rethrow_for_rank(bool speaks) {
    if (speaks && launch_.rank == 0) throw;
    int code = 1;
    std::string text = "an exception that is no std::exception";
    try {
      throw;
    } catch (const lmx::UserError& e) {
      code = 2;
      text = e.what();
    } catch (const std::exception& e) {
      text = e.what();
    } catch (...) {
    }
    if (speaks) throw lmx::EndProcess(code, str("rank ", launch_.rank, " of ", launch_.world, ": ", text), false);
    // The rank that reports exits first, with its code; then a signal of the launcher ends this wait.
    const timespec time{3, 0};
    nanosleep(&time, nullptr);
    throw lmx::EndProcess(code, text, true);
  }

  MpiConfig config_;
  lmx::Launch launch_;
  int threads_;
  bool deterministic_;
  bool started_ = false, failed_ = false;
};

std::unique_ptr<lmx::CommGroup> make_mpi(const lmx::Node& node, const std::string& path, const lmx::CommEnv& env) {
  const MpiConfig config = read_mpi_config(node, path);
  const lmx::Launch launch = lmx::detect_launch();
  if (launch.launcher == lmx::Launcher::torchrun)
    throw lmx::UserError(
        str("[", path,
            "] name=mpi: this process was started by torchrun, which does not work with MPI; start lmx by mpirun or "
            "srun, or by itself with comm.ranks=",
            launch.world));
  if (launch.launcher == lmx::Launcher::none) {
    if (config.ranks == 0)
      throw lmx::UserError(
          str("[", path, "] name=mpi: say how many ranks, comm.ranks=4, or start lmx by mpirun or srun"));
    start_ranks(static_cast<int>(config.ranks), path);
  }
  if (config.ranks != 0 && config.ranks != launch.world)
    throw lmx::UserError(str("[", path, "] ranks is ", config.ranks, ", and ", name_of(launch.launcher), " started ",
                             launch.world, "; start as many, or give comm.ranks=", launch.world,
                             " (0: whatever the launcher starts): the batches are the same"));
  return std::make_unique<MpiGroup>(config, launch, env);
}

}  // namespace
}  // namespace lmx_mpi

LMX_PLUGIN(comm, mpi, lmx_mpi::MpiConfig, lmx_mpi::make_mpi)
