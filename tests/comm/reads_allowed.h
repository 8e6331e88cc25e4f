// Whether the kernel lets a process read the memory of its children. Yama and the rules of a container may forbid it.
#pragma once

#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lmx_test {

inline bool reads_allowed() {
  static int value = 5;
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  int copy = 0;
  const iovec to{&copy, sizeof copy}, from{&value, sizeof value};
  const bool allowed = process_vm_readv(child, &to, 1, &from, 1, 0) == sizeof value && copy == value;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return allowed;
}

}  // namespace lmx_test
