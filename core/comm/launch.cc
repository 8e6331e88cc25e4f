#include <signal.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "lmx/launch.h"

namespace lmx {
namespace {

// A rank other than 0 waits for this time before it reports an error, so that rank 0 reports an error of all ranks
// first: Open MPI's mpirun then ends the other ranks within 1 s.
constexpr std::chrono::seconds kForRank0{3};

using Lookup = std::function<const char*(const char*)>;

// A launcher's variable for each value. Null: the launcher does not set it.
struct Names {
  Launcher launcher;
  const char *rank, *world, *local_rank, *local_size;
};
constexpr Names kTorchrun{Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kVariables{Launcher::variables, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kLmx{Launcher::lmx, "LMX_RANK", "LMX_RANKS", "LMX_RANK", "LMX_RANKS"};
constexpr Names kOpenMpi{Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMpich{Launcher::mpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

std::string_view value_of(const Lookup& lookup, const char* name) {
  const char* value = lookup(name);
  return value ? value : "";
}

int number(const Lookup& lookup, const char* name) {
  const std::string_view text = value_of(lookup, name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0)
    throw UserError(str("[launch] ", name, "='", text, "' in the environment: a number from 0 on was expected"));
  return value;
}

std::optional<int> optional_number(const Lookup& lookup, const char* name) {
  if (value_of(lookup, name).empty()) return std::nullopt;
  return number(lookup, name);
}

void check_range(const char* rank_name, int rank, const char* size_name, int size) {
  if (rank >= size)
    throw UserError(str("[launch] ", rank_name, "=", rank, " and ", size_name, "=", size,
                        " in the environment: a rank must be less than the number of ranks"));
}

std::optional<Launch> read(const Lookup& lookup, const Names& names) {
  const bool rank = !value_of(lookup, names.rank).empty(), world = !value_of(lookup, names.world).empty();
  if (!rank && !world) return std::nullopt;
  if (rank != world)
    throw UserError(str("[launch] ", rank ? names.rank : names.world, " is in the environment without ",
                        rank ? names.world : names.rank, "; ", name_of(names.launcher), " sets both"));
  Launch launch{names.launcher, number(lookup, names.rank), number(lookup, names.world), 0, 1};
  check_range(names.rank, launch.rank, names.world, launch.world);
  launch.local_rank = optional_number(lookup, names.local_rank).value_or(0);
  launch.local_size = optional_number(lookup, names.local_size).value_or(launch.local_rank + 1);
  check_range(names.local_rank, launch.local_rank, names.local_size, launch.local_size);
  return launch;
}

bool has_all(const Lookup& lookup, std::initializer_list<const char*> names) {
  return std::none_of(names.begin(), names.end(), [&](const char* name) { return value_of(lookup, name).empty(); });
}

// RANK and WORLD_SIZE alone may come from other software; torchrun sets all five variables.
std::optional<Launch> read_torchrun(const Lookup& lookup) {
  if (!has_all(lookup, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"})) return std::nullopt;
  return read(lookup, kTorchrun);
}

std::optional<Launch> read_variables(const Lookup& lookup) {
  if (!has_all(lookup, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})) return std::nullopt;
  return read(lookup, kVariables);
}

// Entry `node` of Slurm's counts: "4(x2),1" means 4, 4, 1. nullopt if the text does not have that form or has fewer
// entries.
std::optional<int> tasks_of_node(std::string_view text, int node) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int count = 0, times = 1;
    const char* const part_end = part.data() + part.size();
    const char* at = std::from_chars(part.data(), part_end, count).ptr;
    if (at == part.data()) return std::nullopt;
    if (at != part_end) {
      if (part_end - at < 4 || std::string_view(at, 2) != "(x" || part.back() != ')') return std::nullopt;
      if (std::from_chars(at + 2, part_end - 1, times).ptr != part_end - 1) return std::nullopt;
    }
    if (node < times) return count;
    node -= times;
  }
  return std::nullopt;
}

// A batch script has SLURM_PROCID, but no step. An interactive shell is a step, but runs one process at a time. Steps
// that are started from that shell inherit its job's name; they are recognised by PMIx, which numbers their processes.
std::optional<Launch> read_slurm(const Lookup& lookup) {
  if (value_of(lookup, "SLURM_STEP_ID").empty() && value_of(lookup, "SLURM_STEPID").empty()) return std::nullopt;
  const char* world = value_of(lookup, "SLURM_STEP_NUM_TASKS").empty() ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
  const char* tasks =
      value_of(lookup, "SLURM_STEP_TASKS_PER_NODE").empty() ? "SLURM_TASKS_PER_NODE" : "SLURM_STEP_TASKS_PER_NODE";
  if (value_of(lookup, "SLURM_PROCID").empty() || value_of(lookup, world).empty()) return std::nullopt;
  Launch launch{Launcher::slurm, number(lookup, "SLURM_PROCID"), number(lookup, world), 0, 1};
  const std::string_view job = value_of(lookup, "SLURM_JOB_NAME");
  const bool numbered = !value_of(lookup, "PMIX_RANK").empty() && launch.world > 1;
  if ((job == "bash" || job == "interactive") && !numbered) return std::nullopt;
  if (numbered && number(lookup, "PMIX_RANK") != launch.rank)
    throw UserError(str("[launch] PMIX_RANK=", number(lookup, "PMIX_RANK"), " and SLURM_PROCID=", launch.rank,
                        " in the environment contradict each other; start lmx by one launcher, and unset the variables "
                        "of the other"));
  check_range("SLURM_PROCID", launch.rank, world, launch.world);
  launch.local_rank = optional_number(lookup, "SLURM_LOCALID").value_or(0);
  const int node = optional_number(lookup, "SLURM_NODEID").value_or(0);
  launch.local_size = tasks_of_node(value_of(lookup, tasks), node).value_or(launch.local_rank + 1);
  check_range("SLURM_LOCALID", launch.local_rank, tasks, launch.local_size);
  return launch;
}

void check_agree(const Names& a, const Launch& x, const Names& b, const Launch& y) {
  const auto differ = [](const char* name, int v, const char* other, int w) {
    if (v != w)
      throw UserError(str("[launch] ", name, "=", v, " and ", other, "=", w,
                          " in the environment contradict each other; start lmx by one launcher, and unset the "
                          "variables of the other"));
  };
  differ(a.rank, x.rank, b.rank, y.rank);
  differ(a.world, x.world, b.world, y.world);
}

// Where the program of this process is, read from /proc; "" if /proc cannot be read.
std::filesystem::path executable() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

// Whether the start script of a package (tools/start) has called the loader in the package with the program as its
// argument: `libexec/ld-linux-x86-64.so.2 --library-path PATH libexec/lmx ...`.
bool is_loader(const std::filesystem::path& executable) {
  return executable.filename().string().starts_with("ld-linux");
}

}  // namespace

EndProcess::~EndProcess() = default;

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "no launcher";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "mpirun (Open MPI)";
    case Launcher::mpich:
      return "mpiexec (MPICH)";
    case Launcher::slurm:
      return "srun";
    case Launcher::variables:
      return "the variables RANK and WORLD_SIZE";
    case Launcher::lmx:
      return "lmx";
  }
  return "?";
}

std::string describe(const Launch& launch) {
  if (launch.launcher == Launcher::none) return "one process, started by no launcher";
  return str("rank ", launch.rank, " of ", launch.world, ", started by ", name_of(launch.launcher));
}

// Slurm is not compared with the others: under Slurm, mpirun and torchrun are themselves started by srun, once for each
// node, and their processes inherit the numbers of that step.
Launch detect_launch(const Lookup& lookup) {
  if (const std::optional<Launch> own = read(lookup, kLmx)) return *own;
  const std::optional<Launch> torchrun = read_torchrun(lookup), open_mpi = read(lookup, kOpenMpi),
                              mpich = read(lookup, kMpich);
  if (torchrun && open_mpi) check_agree(kTorchrun, *torchrun, kOpenMpi, *open_mpi);
  if (torchrun && mpich) check_agree(kTorchrun, *torchrun, kMpich, *mpich);
  if (open_mpi && mpich) check_agree(kOpenMpi, *open_mpi, kMpich, *mpich);
  if (torchrun) return *torchrun;
  if (open_mpi) return *open_mpi;
  if (mpich) return *mpich;
  if (const std::optional<Launch> slurm = read_slurm(lookup)) return *slurm;
  return read_variables(lookup).value_or(Launch{});
}

Launch detect_launch() {
  return detect_launch([](const char* name) -> const char* { return std::getenv(name); });
}

void require_one_process(const Launch& launch, const std::string& comm) {
  if (launch.world <= 1) return;
  throw UserError(str("[comm] ", name_of(launch.launcher), " started ", launch.world,
                      " processes, but the ranks of comm.name=", comm,
                      " live in one: each would train alone; add comm=",
                      launch.launcher == Launcher::torchrun || launch.launcher == Launcher::variables ? "gloo" : "mpi",
                      ", or start one process"));
}

std::string error_prefix() noexcept {
  try {
    const Launch launch = detect_launch();
    if (launch.rank == 0) return "";
    std::this_thread::sleep_for(kForRank0);
    return str("rank ", launch.rank, " of ", launch.world, ": ");
  } catch (const std::exception&) {  // the environment is invalid, which the error itself reports
    return "";
  }
}

bool stays_ignored(int signal) noexcept {
  struct sigaction now {};
  return (signal == SIGHUP || signal == SIGPIPE) && sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

std::string own_program() {
  const std::filesystem::path program = executable();
  if (program.empty()) return "/proc/self/exe";
  return is_loader(program) ? program.parent_path().parent_path() / "bin" / "lmx" : program;
}

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  const std::filesystem::path program = executable();
  const size_t of_loader = is_loader(program) ? 3 : 0;
  if (words.size() <= of_loader || program.empty())
    throw RunError("[launch] this process's own command line cannot be read from /proc");
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(of_loader));
  words[0] = own_program();
  return words;
}

namespace {

std::mutex g_mutex;
std::function<void(const std::string&)> g_note;

}  // namespace

TerminationNote::TerminationNote(std::function<void(const std::string& reason)> note) {
  const std::lock_guard lock(g_mutex);
  g_note = std::move(note);
}

TerminationNote::~TerminationNote() {
  const std::lock_guard lock(g_mutex);
  g_note = nullptr;
}

void leave_termination_note(const std::string& reason) {
  const std::lock_guard lock(g_mutex);
  try {
    if (g_note) g_note(reason);
  } catch (const std::exception&) {  // a full disk: the reason was already printed to stderr
  }
}

}  // namespace lmx
