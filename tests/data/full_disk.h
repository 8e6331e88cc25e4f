// What a call says on a full disk.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>

#include "lmx/error.h"

namespace lmx_test {

// The text of the RunError that `call` throws where a file may hold `bytes` at most, which stands in for a full disk;
// it runs in a process of its own. "" where it throws none.
template <class Call>
std::string error_on_full_disk(rlim_t bytes, Call&& call) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string error;
    try {
      call();
    } catch (const lmx::RunError& e) {
      error = e.what();
    } catch (...) {
    }
    _exit(write(pipe_ends[1], error.data(), error.size()) == static_cast<ssize_t>(error.size()) ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string error;
  char part[512];
  for (ssize_t n; (n = read(pipe_ends[0], part, sizeof part)) > 0;) error.append(part, static_cast<size_t>(n));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return error;
}

}  // namespace lmx_test
