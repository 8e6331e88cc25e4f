// How this process was started among others, and how processes that train together end with one common message.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lmx/api.h"
#include "lmx/error.h"

namespace lmx {

enum class Launcher { none, torchrun, open_mpi, mpich, slurm, variables, lmx };
LMX_API const char* name_of(Launcher launcher);  // "mpirun (Open MPI)"

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host, if the launcher provides it
};
LMX_API std::string describe(const Launch& launch);  // "rank 2 of 4, started by srun"

// Reads an environment: `lookup` returns a variable's value or null. The first launcher that is found counts, in the
// order lmx itself (LMX_RANK, LMX_RANKS), torchrun, Open MPI, MPICH, Slurm, and at last the four variables RANK,
// WORLD_SIZE, MASTER_ADDR, MASTER_PORT, by which processes can be started by hand or by any other program. Slurm's
// variables in a batch script or an interactive shell are ignored.
// UserError: a value that is not a number or is out of range, a rank without a world size, launchers that contradict
// each other.
LMX_API Launch detect_launch(const std::function<const char*(const char*)>& lookup);
LMX_API Launch detect_launch();  // of this process

// UserError if a launcher started several processes although all ranks of `comm` ("self", "virtual") are in one
// process. Otherwise each process would train alone without an error.
LMX_API void require_one_process(const Launch& launch, const std::string& comm);

// The path by which this lmx is started again: its program, or the start script of a package whose own C library runs
// the program (tools/start). "/proc/self/exe" if /proc cannot be read.
LMX_API std::string own_program();

// The command line of this process, with own_program() as its first word. RunError: /proc cannot be read.
LMX_API std::vector<std::string> own_command_line();

// Ends one process of several that train together. `said` is true if this process must print nothing, because another
// process reports the error or there is no error to report. Otherwise the text is a complete message that names the
// rank.
class LMX_API EndProcess : public Error {
 public:
  EndProcess(int exit_code, const std::string& text, bool is_said) : Error(text), code(exit_code), said(is_said) {}
  ~EndProcess() override;
  int code;
  bool said;
};

// To be called before an error is printed outside of a group of ranks. Rank 0 returns "" at once. Every other rank
// waits first: if the error concerns all ranks, rank 0 reports it and the launcher ends this process. A rank that is
// still running after the wait is the only one with this error, and its message begins with "rank 3 of 4: ".
LMX_API std::string error_prefix() noexcept;

// Returns whether the process ignores SIGHUP (nohup) or SIGPIPE because whoever started it said so. It then stays
// ignored: no handler may be installed for it.
LMX_API bool stays_ignored(int signal) noexcept;

// A termination note: a run registers a function that records the reason if another thread must end the process at
// once. That happens if a rank is lost while the run's own thread waits for it inside MPI.
//
// While this object lives, the thread that ends the process calls `note` with the reason. `note` must not wait for the
// run's thread. At most one object exists at a time.
class LMX_API TerminationNote {
 public:
  explicit TerminationNote(std::function<void(const std::string& reason)> note);
  ~TerminationNote();
  TerminationNote(const TerminationNote&) = delete;
  TerminationNote& operator=(const TerminationNote&) = delete;
};

// To be called by the thread that is about to end the process. Does not throw.
LMX_API void leave_termination_note(const std::string& reason);

}  // namespace lmx
