// A job of several processes that a test can observe and disturb while it runs. All its processes end with the test.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "test.h"

namespace lmx_test {

class Job {
 public:
  explicit Job(std::vector<std::string> command) {
    const std::string out = folder_.path("out"), err = folder_.path("err");
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    execvp(words[0], words.data());
    _exit(127);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    if (code_ < 0) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const auto& [rank, pid] : ranks()) kill(pid, SIGKILL);
  }

  std::string out() const { return read_file(folder_.path("out")); }
  std::string err() const { return read_file(folder_.path("err")); }
  pid_t pid() const { return pid_; }

  // The processes of the ranks, from the lines "rank 2 pid 345".
  std::map<int, pid_t> ranks() const {
    std::map<int, pid_t> pids;
    std::istringstream lines(out());
    for (std::string word, name; lines >> word;) {
      int rank = 0;
      pid_t pid = 0;
      if (word == "rank" && lines >> rank >> name >> pid) pids[rank] = pid;
    }
    return pids;
  }
  // Waits until `n` ranks have printed their number. Returns false if they have not done so within the limit.
  bool wait_for_ranks(size_t n, double limit_s = 60) {
    return until(limit_s, [&] { return ranks().size() == n || ended(); }) && ranks().size() == n;
  }
  // Returns the exit code, or 128 + signal. If the limit passes, kills the job and returns -1.
  int wait(double limit_s = 120) {
    until(limit_s, [&] { return ended(); });
    return code_;
  }
  bool all_gone(const std::map<int, pid_t>& pids, double limit_s = 60) {
    return until(limit_s, [&] {
      for (const auto& [rank, pid] : pids)
        if (kill(pid, 0) == 0) return false;
      return true;
    });
  }

 private:
  template <class Condition>
  static bool until(double limit_s, Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  bool ended() {
    int status = 0;
    if (code_ < 0 && waitpid(pid_, &status, WNOHANG) == pid_)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_ >= 0;
  }

  TempFolder folder_;
  pid_t pid_ = -1;
  int code_ = -1;
};

}  // namespace lmx_test
