// Cells as jobs of Slurm. This program only submits and watches them; they continue when it ends.
//
//   slurm/ID.sh           the batch script, in the form of docs/cluster.md
//   slurm/ID.out          the output of the script; that of the cell is in cells/ID.log
//   slurm/ID.HASH.exit    the exit code of the cell, as soon as it has one; removed when the result has been recorded,
//                         and when the job starts again
//
// The name of a job follows from the folder, the cell and its recipe, so that a job is found again after this program
// was killed, and a job of another recipe has another name.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <sstream>

#include "app/cells/launcher.h"
#include "app/jobs/slurm.h"
#include "app/print/shell.h"
#include "app/records/line_file.h"
#include "app/records/recipe_values.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx_cli::experiments {
namespace {

namespace fs = std::filesystem;
namespace slurm = jobs::slurm;
using Clock = std::chrono::steady_clock;
using lmx::str;

constexpr auto kAskEvery = std::chrono::seconds(2);
// The exit codes of a run that has written a checkpoint because of SIGINT, or of SIGTERM, SIGUSR1 and others. srun also
// returns 143 if one rank has failed and it has ended the others, so the output of this start must name the checkpoint.
constexpr const char* kStopped = "$code == 130 || $code == 143";
constexpr const char* kCheckpoint = ": stopped after step ";

class SlurmCells : public CellLauncher {
 public:
  explicit SlurmCells(const SlurmOptions& options) : options_(options) {
    std::error_code error;
    fs::create_directories(options.folder, error);
    folder_ = fs::weakly_canonical(options.folder).string();
    if (folder_.find_first_of(" \t\"'\\%") != std::string::npos)
      throw lmx::UserError(str("[slurm] --out ", folder_,
                               ": Slurm's scripts name this folder, so it may hold no space, ",
                               "quote, backslash or %"));
  }

  bool start(const CellJob& job) override {
    if (options_.jobs > 0 && running_.size() >= static_cast<size_t>(options_.jobs)) return false;
    Running running{job.cell.id, job_name(job.cell), "", job.log, exit_file(job.cell), Clock::now()};
    running.job = slurm::settled_job_named(running.name).id;
    if (!running.job.empty()) {
      lmx::log_info(str("cell ", job.cell.id, " is job ", running.job, " already"));
    } else if (jobs::read_text(running.exit_file).empty()) {
      const std::string file = str(folder_, "/", job.cell.id, ".sh");
      lmx::write_file(file, script(job, running.name));
      running.job = slurm::submit({file});
      lmx::log_info(str("cell ", job.cell.id, ": submitted as job ", running.job));
    }
    running_.push_back(std::move(running));
    return true;
  }

  std::optional<jobs::Ended> poll() override {
    if (jobs::SignalNote::count() > 0) signal_ = jobs::SignalNote::received();
    const bool asking = Clock::now() - asked_ >= kAskEvery;
    if (asking) look();
    for (auto r = running_.begin(); r != running_.end(); ++r) {
      const std::optional<int> code = end_of(*r);
      if (!code) continue;
      jobs::Ended ended{r->cell, *code, lmx::seconds_since(r->since), {}};
      ended_[r->cell] = r->exit_file;
      running_.erase(r);
      return ended;
    }
    return {};
  }
  void recorded(const std::string& cell) override {
    std::error_code error;
    fs::remove(ended_[cell], error);
  }
  size_t running() const override { return running_.size(); }
  int signal() const override { return signal_; }
  bool outlives() const override { return true; }

 private:
  struct Running {
    std::string cell, name, job, log, exit_file;
    Clock::time_point since;
    int missed = 0;     // number of queries for which Slurm has not known it
    bool held = false;  // Slurm holds it, and a warning has been logged
  };

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
  std::string script(const CellJob& job, const std::string& name) const {
    const lmx::Node full = lmx::parse_yaml(job.cell.yaml, job.cell.id);
    const bool mpi = text_at(full, "comm.name") == "mpi";
    std::string command = str("srun ", mpi ? "--mpi=${SLURM_MPI_TYPE:-pmix} " : "", "--kill-on-bad-exit=1 -n ",
                              job.cell.demand.processes);
    if (job.cell.demand.threads > 0) command += str(" -c ", job.cell.demand.threads);  // srun does not take it over
    for (const std::string& word : job.words) command += " " + shell_quoted(word);
    const std::string done = shell_quoted(exit_file(job.cell)), log = shell_quoted(job.log);
    return str(
        "#!/bin/bash\n", directives(job.cell, name), "rm -f ", done, "\ncd ", shell_quoted(fs::current_path().string()),
        "\n", "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n", "export LMX_JOB_SECRET=$(openssl rand -hex 16)\n",
        "before=$(stat -c %s ", log, " 2>/dev/null || echo 0)\n\n", command, " >> ", log, " 2>&1\n", "code=$?\n",
        "if [[ ", kStopped, " ]] && tail -c \"+$((before + 1))\" ", log, " | grep -q '", kCheckpoint,
        "' && scontrol requeue \"$SLURM_JOB_ID\"; then exit; fi\n", "echo \"$code\" > ", done, ".tmp && mv ", done,
        ".tmp ", done, "\nexit \"$code\"\n");
  }

  // Counts how often Slurm has not known a job.
  void look() {
    asked_ = Clock::now();
    std::string names;
    for (const Running& r : running_) names += (names.empty() ? "" : ",") + r.name;
    if (names.empty()) return;
    const slurm::Answer answer = slurm::ask({"squeue", "-h", "-o", "%j %r", "--name", names});
    if (answer.code != 0) return;              // the controller is busy or starts again
    std::map<std::string, std::string> known;  // reason to wait by name
    std::istringstream lines(answer.out);
    for (std::string line; std::getline(lines, line);)
      known.emplace(line.substr(0, line.find(' ')), line.substr(std::min(line.find(' '), line.size())));
    for (Running& r : running_) {
      const auto found = known.find(r.name);
      r.missed = found != known.end() ? 0 : r.missed + 1;
      report_held(r, found != known.end() && is_held(found->second) ? found->second : "");
    }
  }
  // The reasons of Slurm are "JobHeldUser", "job requeued in held state" and the like.
  static bool is_held(const std::string& reason) {
    return reason.find("Held") != std::string::npos || reason.find("held") != std::string::npos;
  }
  // A held job would wait without end and without a message. `reason`: "" if it is not held.
  static void report_held(Running& r, const std::string& reason) {
    if (!reason.empty() && !r.held)
      lmx::log(lmx::LogLevel::warn, str("[slurm] cell ", r.cell, ": Slurm holds job ", r.job, " (", reason.substr(1),
                                        "); `scontrol release ", r.job, "` continues it"));
    r.held = !reason.empty();
  }

  // The exit code of a failure counts only when Slurm no longer has the job: a job of which a node fails is queued
  // again, although its script may have recorded the failure of its ranks before.
  std::optional<int> end_of(const Running& r) const {
    const std::optional<int> code = slurm::exit_code(r.exit_file);
    if (code && (*code == 0 || r.missed > 0)) return code;
    if (code) return {};
    const std::optional<std::string> state = slurm::lost_state(r.job, r.missed);
    if (!state) return {};
    jobs::append_line(r.log, str("error: [slurm] job ", r.job,
                                 " has ended without an exit code: ", state->empty() ? "Slurm has lost it" : *state));
    return 128 + SIGKILL;
  }

  const SlurmOptions options_;
  std::string folder_;
  const jobs::SignalNote note_;
  std::list<Running> running_;
  std::map<std::string, std::string> ended_;  // exit file by cell
  Clock::time_point asked_;
  int signal_ = 0;
};

}  // namespace

std::unique_ptr<CellLauncher> slurm_cells(const SlurmOptions& options) {
  return std::make_unique<SlurmCells>(options);
}

}  // namespace lmx_cli::experiments
