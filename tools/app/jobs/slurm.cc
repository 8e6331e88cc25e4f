#include "app/jobs/slurm.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "app/print/words.h"
#include "app/records/records.h"
#include "base/clock.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app::jobs {

namespace slurm {

Answer ask(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += shell_quoted(word) + " ";
  char path[] = "/tmp/lmx_slurm_XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) throw RunError("[slurm] cannot write in /tmp");
  close(file);
  line += str("2>", path);
  Answer answer;
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) throw RunError("[slurm] cannot start " + words[0]);
  std::array<char, 4096> buffer{};
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) answer.out.append(buffer.data(), n);
  const int status = pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  answer.err = read_text(path);
  unlink(path);
  return answer;
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void require() {
  const Answer version = ask({"sbatch", "--version"});
  if (version.code != 0)
    throw UserError("[slurm] --launcher slurm needs Slurm's sbatch, squeue and scontrol here: " +
                    one_line(version.err));
}

std::string submit(std::vector<std::string> words) {
  words.insert(words.begin(), {"sbatch", "--parsable"});
  const Answer answer = ask(words);
  if (answer.code != 0) throw UserError("[slurm] sbatch: " + one_line(answer.err));
  return one_line(answer.out.substr(0, answer.out.find(';')));
}

Queued job_named(const std::string& name) {
  const Answer a = ask({"squeue", "-h", "-o", "%F %T", "--name", name});
  if (a.code != 0) throw RunError("[slurm] squeue: " + one_line(a.err));
  Queued job;
  std::istringstream(a.out) >> job.id >> job.state;
  return job;
}

Queued settled_job_named(const std::string& name) {
  constexpr int kMost = 60;
  Queued job = job_named(name);
  for (int i = 0; i < kMost && job.state == "COMPLETING" && SignalNote::count() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    job = job_named(name);
  }
  return job;
}

}  // namespace slurm

namespace {

constexpr auto kAskEvery = std::chrono::seconds(2);
constexpr const char* kOutOfMemory = "OUT_OF_MEMORY";

// Returns the JobState of a job that is over; "" if Slurm no longer lists it.
std::string state_of(const std::string& job) {
  if (job.empty()) return {};
  const slurm::Answer a = slurm::ask({"scontrol", "show", "job", "-o", job});
  const std::string key = "JobState=";
  const size_t at = a.out.find(key);
  if (a.code != 0 || at == std::string::npos) return {};
  return a.out.substr(at + key.size(), a.out.find(' ', at) - at - key.size());
}

// The state of a job of which Slurm has not known `missed` times in a row that it runs, although there is no exit code;
// "": Slurm has lost it. Nothing: the code may still arrive, because a file of another host may be visible here after a
// minute only (NFS).
std::optional<std::string> lost_state(const std::string& job, int missed) {
  constexpr int kLeast = 3, kCompleted = 30;  // how often Slurm is asked, also if it says that the job has completed
  if (missed < kLeast) return {};
  const std::string state = state_of(job);
  if (state.starts_with("COMPLET") && missed < kCompleted) return {};
  return state;
}

// Returns the exit code that a script has written to a file; nothing: none yet. 1: the file has another content.
std::optional<int> exit_code(const std::string& file) {
  const std::string code = slurm::one_line(read_text(file));
  if (code.empty()) return {};
  return static_cast<int>(parse_int(code).value_or(1));
}

// The reasons of Slurm are "JobHeldUser", "job requeued in held state" and the like.
bool is_held(const std::string& reason) {
  return reason.find("Held") != std::string::npos || reason.find("held") != std::string::npos;
}

}  // namespace

SlurmLauncher::SlurmLauncher(SlurmOptions options) : options_(std::move(options)) {}

void SlurmLauncher::watch(const std::string& id, const std::string& job, const std::string& exit_file) {
  watched_.push_back({id, job, exit_file, std::chrono::steady_clock::now()});
}

std::vector<std::string> SlurmLauncher::running() const {
  std::vector<std::string> ids;
  for (const Watched& w : watched_) ids.push_back(w.id);
  return ids;
}

void SlurmLauncher::recorded(const std::string& id) {
  std::error_code error;
  std::filesystem::remove(exit_files_[id], error);
}

// Jobs of the queue; arrays without their tasks.
std::set<std::string> SlurmLauncher::submitted() const {
  std::set<std::string> jobs;
  for (const Watched& w : watched_)
    if (!w.job.empty()) jobs.insert(w.job.substr(0, w.job.find('_')));
  return jobs;
}

void SlurmLauncher::stop() {
  for (const std::string& job : submitted()) slurm::ask({"scancel", job});
}

std::vector<Ended> SlurmLauncher::poll() {
  if (std::chrono::steady_clock::now() - asked_ >= kAskEvery) look();
  std::vector<Ended> all;
  for (auto w = watched_.begin(); w != watched_.end();) {
    const std::optional<Ended> ended = end_of(*w);
    if (!ended) {
      ++w;
      continue;
    }
    all.push_back(*ended);
    exit_files_[w->id] = w->exit_file;
    w = watched_.erase(w);
  }
  return all;
}

// Counts how often Slurm has not known a job. `squeue` lists the tasks of an array as %F (its job) and %K (the task),
// and other jobs with %K "N/A".
void SlurmLauncher::look() {
  asked_ = std::chrono::steady_clock::now();
  std::map<std::string, std::string> known;  // reason to wait by job
  if (const std::set<std::string> jobs = submitted(); !jobs.empty()) {
    const slurm::Answer a = slurm::ask({"squeue", "-h", "-r", "-o", "%F %K %r", "-j", joined(jobs, ",")});
    // Otherwise the controller is busy or starts again.
    if (a.code != 0 && a.err.find("Invalid job id") == std::string::npos) return;
    std::istringstream lines(a.out);
    for (std::string line, job, task, reason; std::getline(lines, line);) {
      std::istringstream words(line);
      words >> job >> task;
      std::getline(words >> std::ws, reason);
      known.emplace(parse_int(task) ? job + "_" + task : job, reason);
    }
  }
  for (Watched& w : watched_) {
    const auto found = known.find(w.job);
    w.missed = found != known.end() ? 0 : w.missed + 1;
    report_held(w, found != known.end() && is_held(found->second) ? found->second : "");
  }
}

// A held job would wait without end and without a message. `reason`: "" if it is not held.
void SlurmLauncher::report_held(Watched& w, const std::string& reason) const {
  if (!reason.empty() && !w.held)
    say(LogLevel::warn, str("[slurm] ", options_.noun, " ", w.id, ": Slurm holds job ", w.job, " (", reason,
                            "); `scontrol release ", w.job, "` continues it"));
  w.held = !reason.empty();
}

std::optional<Ended> SlurmLauncher::end_of(const Watched& w) {
  constexpr int kKilled = 128 + SIGKILL;
  const double seconds = seconds_since(w.since);
  if (const std::optional<int> code = exit_code(w.exit_file)) {
    if (*code != 0 && w.missed == 0) return {};
    return Ended{w.id, *code, seconds, *code == kKilled && state_of(w.job) == kOutOfMemory};
  }
  const std::optional<std::string> state = lost_state(w.job, w.missed);
  if (!state) return {};
  if (*state == kOutOfMemory) return Ended{w.id, kKilled, seconds, true};
  return Ended{w.id, kKilled, seconds, false, state->empty() ? "Slurm has lost it" : *state};
}

}  // namespace lmx::app::jobs
