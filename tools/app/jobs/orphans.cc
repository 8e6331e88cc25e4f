#include "app/jobs/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace lmx_cli::jobs {
namespace {

void kill_children() {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) kill(child, SIGKILL);
  }
}

}  // namespace

OrphanReaper::OrphanReaper() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void OrphanReaper::end_all(std::chrono::milliseconds patience, const std::function<bool()>& urgent) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + patience;
  for (pid_t ended = 0; (ended = waitpid(-1, nullptr, WNOHANG)) >= 0;) {
    if (ended > 0) continue;
    // Repeated, because a process that is killed may leave further ones behind.
    if (urgent() || Clock::now() > end) kill_children();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace lmx_cli::jobs
