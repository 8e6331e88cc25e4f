#include "app/restart/restarts.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "app/jobs/process.h"
#include "app/records/records.h"
#include "app/runs/run_directory.h"
#include "app/runs/supervision.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics.h"

namespace lmx::app {
namespace {

using Milliseconds = std::chrono::milliseconds;
using FileTime = std::filesystem::file_time_type;

constexpr Milliseconds kPoll{10};
// Ranks whose lmx was killed get SIGTERM, and need time to write a checkpoint.
constexpr Milliseconds kForOrphans{20'000};
constexpr int kStalledRestarts = 2;  // so many restarts in a row without progress end the run

// 0.5 s, 1 s, 2 s, ..., at most 30 s.
Milliseconds pause_before(int64_t restart) {
  constexpr Milliseconds kFirst{500}, kLongest{30'000};
  constexpr int64_t kDoublings = 6;
  return std::min(kFirst * (int64_t{1} << std::min(restart - 1, kDoublings)), kLongest);
}

std::string remedy(Launcher launcher) {
  switch (launcher) {
    case Launcher::torchrun:
      return "torchrun --max-restarts N ... lmx run ... --resume auto";
    case Launcher::slurm:
      return "sbatch --requeue, with lmx run ... --resume auto in the script (docs/cluster.md)";
    default:
      return "a loop around the command that starts the ranks, with lmx run ... --resume auto";
  }
}

void refuse_below_launcher() {
  const Launch launch = detect_launch();
  if (launch.launcher == Launcher::none) return;
  throw UserError(str("[run] --restarts is for a run that lmx starts itself, and this process was started by ",
                      name_of(launch.launcher), "; use in its place: ", remedy(launch.launcher)));
}

// How far a run has come, and -1 if it has not.
struct Progress {
  int64_t saved = -1;    // step of the last checkpoint
  int64_t reached = -1;  // last step that is recorded
};

Progress progress_of(const std::string& run) {
  if (run.empty()) return {};
  const std::vector<CheckpointInfo> checkpoints = list_checkpoints(run);
  return {checkpoints.empty() ? -1 : checkpoints.back().step, std::max(read_status(run).step, last_recorded_step(run))};
}

// How a start has ended.
struct Ending {
  int code = 0;  // exit code, or 128 + signal
  std::string reason, cause;
  // A run whose output has lost its reader has saved itself, and SIGPIPE ends it when it prints its result.
  bool failed() const {
    return code == 1 || (code > 128 && code != 128 + SIGINT && code != 128 + SIGTERM && code != 128 + SIGPIPE);
  }
};

std::string end_text(int code) {
  if (code <= 128) return str("the run ended with exit code ", code);
  const char* name = sigabbrev_np(code - 128);
  return str("the run was ended by ", name ? str("SIG", name) : str("signal ", code - 128),
             " and could not record why");
}

// Reads what the start that began at `begin` has recorded in status.json; an earlier start's record does not count.
Ending ending_of(int code, const std::string& run, FileTime begin) {
  Ending end{code, end_text(code), ""};
  std::error_code error;
  if (!end.failed() || run.empty()) return end;
  note_lost_run(run, begin, end.reason);
  const FileTime written = std::filesystem::last_write_time(run + "/status.json", error);
  const RunStatus status = read_status(run);
  if (error || written < begin || status.state != "failed") return end;
  if (!status.reason.empty()) end.reason = status.reason.substr(0, status.reason.find('\n'));
  end.cause = status.cause;
  return end;
}

// Prints a line, and writes it to the log of the run.
void warn_in(const std::string& run, const std::string& text) {
  if (!run.empty()) set_log_file(run + "/log.txt");
  log_warn(text);
  set_log_file("");
}

class Supervisor {
 public:
  explicit Supervisor(const RestartOptions& options)
      : options_(options), resume_(options.resume), ranks_(options.ranks), fewer_(options.ranks > 1) {
    std::error_code error;
    if (std::filesystem::is_directory(resume_, error)) run_ = resume_;
  }

  int run() {
    Ending end = start(ranks_);
    for (int64_t restart = 1; may_restart(end); ++restart) {
      check_progress(end, restart);
      if (!wait_for_restart(restart, end)) return 128 + jobs::SignalNote::received();
      end = start_again();
    }
    return end.code;
  }

 private:
  Ending start(int64_t ranks) {
    std::vector<std::string> words = options_.words(resume_, ranks == options_.ranks ? 0 : ranks);
    words.insert(words.begin(), own_program());
    const FileTime begin = FileTime::clock::now();
    jobs::Child child(words, "", {.cores = {}, .environment = {files_.variable()}, .at_parents_end = SIGTERM});
    const int code = wait_for(child);
    reaper_.end_all(kForOrphans, interrupted);
    // A start that has failed before it opened the run leaves the folder of an earlier one.
    if (std::string run = files_.run(); !run.empty()) resume_ = run_ = std::move(run);
    return ending_of(code, run_, begin);
  }

  // Starts with the number of ranks of wait_for_restart(). A run that does not accept it continues with the number that
  // it had.
  Ending start_again() {
    Ending end = start(ranks_ - (fewer_ ? 1 : 0));
    if (!fewer_) return end;
    if (end.code != 2 || interrupted()) {
      fewer_ = --ranks_ > 1;
      return end;
    }
    warn_in(run_, str("--fewer-ranks: the run does not continue with ", ranks_ - 1, ranks_ == 2 ? " rank" : " ranks",
                      " (the error above); it continues with ", ranks_));
    fewer_ = false;
    restart_.ranks = 0;
    files_.announce(restart_);
    return start(ranks_);
  }

  int wait_for(jobs::Child& child) {
    for (;;) {
      if (const int count = jobs::SignalNote::count(); count > forwarded_) {
        forwarded_ = count;
        child.send(jobs::SignalNote::received());
      }
      if (const std::optional<int> code = child.poll()) return *code;
      std::this_thread::sleep_for(kPoll);
    }
  }

  bool may_restart(const Ending& end) const {
    if (!end.failed() || interrupted()) return false;
    if (end.cause.empty()) return true;
    warn_in(run_, str("not started again: ",
                      end.cause == "diverged" ? "the run would diverge again" : "its memory would be full again"));
    return false;
  }

  // RunError: the run shall not be started for the `restart`-th time.
  void check_progress(const Ending& end, int64_t restart) {
    const Progress now = progress_of(run_);
    const bool further = now.saved > best_.saved || now.reached > best_.reached;
    stalled_ = further || restart == 1 ? 0 : stalled_ + 1;
    best_ = {std::max(best_.saved, now.saved), std::max(best_.reached, now.reached)};
    const std::string rest = str(": ", end.reason, run_.empty() ? "" : str("; --resume ", run_, " continues it"));
    if (restart > options_.restarts)
      throw RunError(
          str("[run] the run has failed again after ", plural(options_.restarts, "restart"), " (--restarts)", rest));
    if (stalled_ >= kStalledRestarts)
      throw RunError(str("[run] ", kStalledRestarts, " restarts in a row have not come further than step ",
                         std::max<int64_t>(best_.reached, 0),
                         " (last checkpoint: ", best_.saved < 0 ? "none" : str("step ", best_.saved),
                         "), so the failure would probably come back", rest));
  }

  // Announces a restart and waits. Returns false if the user has interrupted it.
  bool wait_for_restart(int64_t restart, const Ending& end) {
    const Milliseconds pause = pause_before(restart);
    restart_ = {restart, options_.restarts, fewer_ ? ranks_ - 1 : 0, end.reason};
    files_.announce(restart_);
    const std::string where = best_.saved < 0 ? "starts from step 0" : str("continues from step ", best_.saved);
    warn_in(run_,
            str("restart ", restart, " of ", options_.restarts, " in ", static_cast<double>(pause.count()) / 1000,
                " s: ", end.reason, "; the run ", where, run_.empty() ? "" : " in " + run_,
                fewer_ ? str(" with ", ranks_ - 1, ranks_ == 2 ? " rank" : " ranks", " instead of ", ranks_) : ""));
    const auto until = std::chrono::steady_clock::now() + pause;
    while (std::chrono::steady_clock::now() < until && !interrupted()) std::this_thread::sleep_for(kPoll);
    return !interrupted();
  }

  static bool interrupted() { return jobs::SignalNote::count() > 0; }

  const RestartOptions& options_;
  const jobs::SignalNote signals_;
  const jobs::OrphanReaper reaper_;
  const Supervision files_;
  std::string resume_;  // of the next start
  std::string run_;     // the run's folder; "" until it is known
  int64_t ranks_;       // of the last start that was not refused; 0 without --fewer-ranks
  bool fewer_;          // whether the next restart uses fewer ranks
  int forwarded_ = 0;   // number of signals that the children have received
  Progress best_;       // of all starts
  int stalled_ = 0;     // restarts in a row without progress
  Restart restart_;     // the last one that was announced
};

}  // namespace

int run_with_restarts(const RestartOptions& options) {
  refuse_below_launcher();
  return Supervisor(options).run();
}

}  // namespace lmx::app
