#include "process_group.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <optional>
#include <vector>

#include "communicator.h"
#include "deadline.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"
#include "local_job.h"
#include "placement.h"

namespace lmx::processes {
namespace {

std::vector<Placement> gather_placements(Transport& transport, int ranks) {
  std::vector<Placement> placements(static_cast<size_t>(ranks));
  const Placement own = own_placement();
  transport.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(placements)));
  return placements;
}

}  // namespace

void require_started_ranks(const ProcessConfig& config, const Launch& launch, const std::string& path) {
  if (config.ranks == 0 || config.ranks == launch.world) return;
  throw UserError(str("[", path, "] ranks is ", config.ranks, ", and ", name_of(launch.launcher), " started ",
                      launch.world, "; start as many, or give comm.ranks=", launch.world,
                      " (0: whatever the launcher starts): the batches are the same"));
}

ProcessGroup::ProcessGroup(std::unique_ptr<Transport> transport, const std::string& library,
                           const ProcessConfig& config, const Launch& launch, const CommEnv& env,
                           double warned_silence_s)
    : transport_(std::move(transport)),
      library_(library),
      config_(config),
      launch_(launch),
      threads_(env.threads),
      deterministic_(env.deterministic),
      settings_{transport_->name(), config.heartbeat_s, {config.timeout_s, config.lag_s}, warned_silence_s} {}

ProcessGroup::~ProcessGroup() {
  // Leaving waits for all ranks; after a failure the launcher ends the processes instead.
  if (!started_ || failed_ || std::uncaught_exceptions() != 0) return;
  const Deadline end(in_turn(config_.timeout_s), settings_.name, late_end());
  transport_->leave();
}

void ProcessGroup::run(const std::function<void(Communicator&)>& body) {
  failed_ = true;  // until the end of this function is reached
  std::optional<Deadline> start(std::in_place, in_turn(start_s()), settings_.name,
                                str("rank ", launch_.rank, " of ", launch_.world, " has waited ", start_s(),
                                    " s for other ranks to start (comm.lag_s, at least comm.timeout_s)"),
                                WaitNote{config_.timeout_s, [this] { return transport_->absent(); }});
  ignore_broken_pipes();
  // mpirun ends all ranks if one has failed, and reports that one.
  const bool by_mpirun = launch_.launcher == Launcher::open_mpi || launch_.launcher == Launcher::mpich;
  const bool speaks = launch_.rank == 0 && !by_mpirun;
  std::optional<EndAtSignal> meeting(std::in_place, speaks);
  if (!started_) transport_->start();
  started_ = true;
  const std::vector<Placement> placements = gather_placements(*transport_, launch_.world);
  transport_->note_hosts(hosts_of(placements));
  Watchdog watchdog(launch_.rank, transport_->beats(), placements, settings_);
  ProcessCommunicator comm(transport_->link(watchdog), config_.reduce == "native", watchdog,
                           threads_for(fair_threads(placements, launch_.rank)));
  comm.set_nodes(config_.ranks_per_node > 0 ? std::make_shared<const RankNodes>(launch_.world, config_.ranks_per_node)
                                            : std::make_shared<const RankNodes>(hosts_of(placements)));
  set_num_threads(comm.threads());
  start.reset();
  meeting.reset();
  accept_forwarded_signals();
  try {
    body(comm);
    comm.finish();
  } catch (const EndProcess&) {
    throw;
  } catch (...) {
    rethrow_for_rank(watchdog.fail());
  }
  const Deadline end(in_turn(config_.timeout_s), settings_.name, late_end());
  watchdog.stop();
  comm.finish();
  watchdog.drain();
  failed_ = false;
}

std::string ProcessGroup::describe() const {
  return str(launch_.world, launch_.world == 1 ? " process (" : " processes (", library_) +
         (launch_.world == 1 ? ")" : str(", started by ", name_of(launch_.launcher), ")"));
}

// `fair`: number of cores for this rank alone. In a deterministic run it must not influence the bits.
int ProcessGroup::threads_for(int fair) const {
  if (threads_ > 0) return threads_;
  if (!deterministic_) return fair;
  if (fair > 1 && launch_.rank == 0)
    log_info(str("[", settings_.name, "] a rank has ", fair, " cores and uses one of them; threads=", fair,
                 " uses all, deterministic=false whatever there are"));
  return 1;
}

// The limits of the ranks differ, so that only one rank reports; the launcher then ends the others.
double ProcessGroup::in_turn(double seconds) const {
  return seconds > 0 ? seconds + 3 * std::min(launch_.rank, 5) : 0;
}

// A start takes seconds, a collective less, so a short lag_s does not apply to the start.
double ProcessGroup::start_s() const {
  return config_.lag_s > 0 ? std::max(config_.lag_s, config_.timeout_s) : 0;
}

std::string ProcessGroup::late_end() const {
  return str("rank ", launch_.rank, " of ", launch_.world,
             ": all has been computed, but another rank has not left the job ", config_.timeout_s,
             " s later (stopped, or its host is down or cut off?)");
}

// Reports an error that all ranks have only once: one rank reports it. If that is not rank 0, this rank is the only one
// with the error, and its message names it.
void ProcessGroup::rethrow_for_rank(bool speaks) {
  if (speaks && launch_.rank == 0) throw;
  int code = 1;
  std::string text = "an exception that is no std::exception";
  try {
    throw;
  } catch (const UserError& e) {
    code = 2;
    text = e.what();
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
  }
  if (speaks) throw EndProcess(code, str("rank ", launch_.rank, " of ", launch_.world, ": ", text), false);
  // The rank that reports exits first, with its code; then a signal of the launcher ends this wait.
  const timespec time{3, 0};
  nanosleep(&time, nullptr);
  throw EndProcess(code, text, true);
}

}  // namespace lmx::processes
