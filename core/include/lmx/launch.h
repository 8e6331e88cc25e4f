// How this process was started among others, and how processes that train together end with one message.
#pragma once

#include <functional>
#include <string>

#include "lmx/api.h"
#include "lmx/error.h"

namespace lmx {

enum class Launcher { none, torchrun, open_mpi, mpich, slurm };
LMX_API const char* name_of(Launcher launcher);  // "mpirun (Open MPI)"

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host, where the launcher tells
};
LMX_API std::string describe(const Launch& launch);  // "rank 2 of 4, started by srun"

// Reads an environment: `lookup` returns a variable's value or null. The first of torchrun, Open MPI, MPICH and Slurm
// that is there counts; Slurm's variables of a batch script or an interactive shell do not. UserError: a value that is
// no number or out of range, a rank without a world size, launchers that contradict each other.
LMX_API Launch detect_launch(const std::function<const char*(const char*)>& lookup);
LMX_API Launch detect_launch();  // of this process

// UserError where a launcher started several processes, though `comm` ("self", "virtual") has all its ranks in one:
// each process would train alone, and none would notice.
LMX_API void require_one_process(const Launch& launch, const std::string& comm);

// Ends a process that belongs to others. `said`: another process prints what is wrong, or has nothing to complain of,
// and this one ends in silence; else the text is complete as it stands: it names the rank.
class LMX_API EndProcess : public Error {
 public:
  EndProcess(int exit_code, const std::string& text, bool is_said) : Error(text), code(exit_code), said(is_said) {}
  ~EndProcess() override;
  int code;
  bool said;
};

// To be called before an error is printed outside of a group of ranks. Rank 0 prints at once. Another waits, because
// what is wrong for all ranks is said by rank 0, after which the launcher ends this one; a rank that is still there is
// alone with its error, and "rank 3 of 4: " goes in front of it.
LMX_API std::string error_prefix() noexcept;

}  // namespace lmx
