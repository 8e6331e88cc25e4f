#include "app/jobs/slurm.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "app/jobs/process.h"
#include "app/print/shell.h"
#include "app/records/line_file.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx_cli::jobs::slurm {

using lmx::str;

Answer ask(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += shell_quoted(word) + " ";
  char path[] = "/tmp/lmx_slurm_XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) throw lmx::RunError("[slurm] cannot write in /tmp");
  close(file);
  line += str("2>", path);
  Answer answer;
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) throw lmx::RunError("[slurm] cannot start " + words[0]);
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
    throw lmx::UserError("[slurm] --launcher slurm needs Slurm's sbatch, squeue and scontrol here: " +
                         one_line(version.err));
}

std::string submit(std::vector<std::string> words) {
  words.insert(words.begin(), {"sbatch", "--parsable"});
  const Answer answer = ask(words);
  if (answer.code != 0) throw lmx::UserError("[slurm] sbatch: " + one_line(answer.err));
  return one_line(answer.out.substr(0, answer.out.find(';')));
}

Queued job_named(const std::string& name) {
  const Answer a = ask({"squeue", "-h", "-o", "%F %T", "--name", name});
  if (a.code != 0) throw lmx::RunError("[slurm] squeue: " + one_line(a.err));
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

std::string state_of(const std::string& job) {
  const Answer a = ask({"scontrol", "show", "job", "-o", job});
  const std::string key = "JobState=";
  const size_t at = a.out.find(key);
  if (a.code != 0 || at == std::string::npos) return {};
  return a.out.substr(at + key.size(), a.out.find(' ', at) - at - key.size());
}

std::optional<int> exit_code(const std::string& file) {
  const std::string code = one_line(read_text(file));
  if (code.empty()) return {};
  return static_cast<int>(lmx::parse_int(code).value_or(1));
}

std::optional<std::string> lost_state(const std::string& job, int missed) {
  constexpr int kLeast = 3, kCompleted = 30;  // how often Slurm is asked, also if it says that the job has completed
  if (missed < kLeast) return {};
  std::string state = job.empty() ? "" : state_of(job);
  if (state.starts_with("COMPLET") && missed < kCompleted) return {};
  return state;
}

}  // namespace lmx_cli::jobs::slurm
