// Cells as jobs of Slurm. This program only submits and watches them; they continue when it ends.
//
//   slurm/ID.sh           the batch script, in the form of docs/cluster.md
//   slurm/ID.out          the output of the script; that of the cell is in cells/ID.log
//   slurm/ID.HASH.exit    the exit code of the cell, as soon as it has one; removed when the result has been recorded,
//                         and when the job starts again
//
// The name of a job follows from the folder, the cell and its recipe, so that a job is found again after this program
// was killed, and a job of another recipe has another name.
#include "app/jobs/slurm.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>

#include "app/experiment/runner.h"
#include "app/print/shell.h"
#include "app/records/records.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

namespace fs = std::filesystem;
namespace slurm = jobs::slurm;
using lmx::str;

// The exit codes of a run that has written a checkpoint because of SIGINT, or of SIGTERM, SIGUSR1 and others. srun also
// returns 143 if one rank has failed and it has ended the others, so the output of this start must name the checkpoint.
constexpr const char* kStopped = "$code == 130 || $code == 143";
constexpr const char* kCheckpoint = ": stopped after step ";

class SlurmCells final : public jobs::SlurmLauncher {
 public:
  SlurmCells(const jobs::SlurmOptions& options, const std::vector<Cell>& cells)
      : SlurmLauncher(options), cells_(cells) {
    std::error_code error;
    fs::create_directories(options.folder, error);
    folder_ = fs::weakly_canonical(options.folder).string();
    if (folder_.find_first_of(" \t\"'\\%") != std::string::npos)
      throw lmx::UserError(str("[slurm] --out ", folder_,
                               ": Slurm's scripts name this folder, so it may hold no space, ",
                               "quote, backslash or %"));
  }

  size_t start(const std::deque<jobs::Job>& waiting) override {
    const size_t before = running().size(), most = options_.jobs > 0 ? static_cast<size_t>(options_.jobs) : SIZE_MAX;
    size_t started = 0;
    for (; started < waiting.size() && before + started < most && jobs::SignalNote::count() == 0; ++started)
      start(waiting[started]);
    return started;
  }

 private:
  // Finds the job in the queue, or its exit code, or submits it.
  void start(const jobs::Job& job) {
    const Cell& cell = *std::find_if(cells_.begin(), cells_.end(), [&](const Cell& c) { return c.id == job.id; });
    const std::string name = job_name(cell);
    std::string number = slurm::settled_job_named(name).id;
    if (!number.empty()) {
      say(lmx::LogLevel::info, str("cell ", job.id, " is job ", number, " already"));
    } else if (jobs::read_text(exit_file(cell)).empty()) {
      jobs::prepare(job);
      const std::string file = str(folder_, "/", job.id, ".sh");
      lmx::write_file(file, script(cell, job, name));
      number = slurm::submit({file});
      say(lmx::LogLevel::info, str("cell ", job.id, ": submitted as job ", number));
    }
    watch(job.id, number, exit_file(cell));
  }

  static std::string hash_of(const std::string& text) {
    std::ostringstream hash;
    hash << std::hex << std::hash<std::string>()(text);
    return hash.str();
  }
  std::string exit_file(const Cell& cell) const { return str(folder_, "/", cell.id, ".", hash_of(cell.yaml), ".exit"); }
  std::string job_name(const Cell& cell) const { return str("lmx-", hash_of(folder_ + cell.yaml), "-", cell.id); }

  std::string directives(const Cell& cell, const std::string& name) const {
    std::vector<std::string> options{"--job-name=" + name, str("--ntasks=", cell.demand.processes)};
    if (cell.demand.threads > 0) options.push_back(str("--cpus-per-task=", cell.demand.threads));
    options.insert(options.end(), {str("--output=", folder_, "/", cell.id, ".out"), "--open-mode=append", "--requeue",
                                   "--signal=USR1@120"});
    options.insert(options.end(), options_.scheduler.begin(), options_.scheduler.end());
    std::string text;
    for (const std::string& option : options) text += "#SBATCH " + option + "\n";
    return text;
  }

  // A run that ends with a checkpoint, because its time is over, is queued again; if Slurm refuses that, its exit code
  // is recorded.
  std::string script(const Cell& cell, const jobs::Job& job, const std::string& name) const {
    const lmx::Node full = lmx::parse_yaml(cell.yaml, cell.id);
    const bool mpi = text_at(full, "comm.name") == "mpi";
    std::string command =
        str("srun ", mpi ? "--mpi=${SLURM_MPI_TYPE:-pmix} " : "", "--kill-on-bad-exit=1 -n ", job.demand.processes);
    if (job.demand.threads > 0) command += str(" -c ", job.demand.threads);  // srun does not take it over
    for (const std::string& word : job.words) command += " " + shell_quoted(word);
    const std::string done = shell_quoted(exit_file(cell)), log = shell_quoted(job.log);
    return str(
        "#!/bin/bash\n", directives(cell, name), "rm -f ", done, "\ncd ", shell_quoted(fs::current_path().string()),
        "\n", "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n", "export LMX_JOB_SECRET=$(openssl rand -hex 16)\n",
        "before=$(stat -c %s ", log, " 2>/dev/null || echo 0)\n\n", command, " >> ", log, " 2>&1\n", "code=$?\n",
        "if [[ ", kStopped, " ]] && tail -c \"+$((before + 1))\" ", log, " | grep -q '", kCheckpoint,
        "' && scontrol requeue \"$SLURM_JOB_ID\"; then exit; fi\n", "echo \"$code\" > ", done, ".tmp && mv ", done,
        ".tmp ", done, "\nexit \"$code\"\n");
  }

  const std::vector<Cell>& cells_;
  std::string folder_;
};

}  // namespace

std::unique_ptr<jobs::Launcher> slurm_cells(const jobs::SlurmOptions& options, const std::vector<Cell>& cells) {
  return std::make_unique<SlurmCells>(options, cells);
}

}  // namespace lmx_cli::experiments
