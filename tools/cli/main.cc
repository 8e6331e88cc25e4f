// Unlike the rest, compiled for any x86-64: an older CPU gets a message instead of an illegal instruction.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lmx/launch.h"

namespace lmx::app::cli {
int run_command_line(int argc, char** argv);
}

namespace {

// By default, libgomp's threads spin for milliseconds at a barrier. If another process needs the CPU, a step then takes
// several times as long. A short spin costs nothing on an idle machine (docs/performance.md). libgomp reads the
// variable before main() begins, so the program restarts itself.
void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "20000", 0);
  execv(lmx::own_program().c_str(), argv);  // returns only if there is no /proc; then nothing changes
}

// A file that lmx opens must not get the number of a closed standard stream: messages would be written into it.
void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));  // gets the lowest free number
}

}  // namespace

int main(int argc, char** argv) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fputs("error: lmx needs a CPU with AVX2 and FMA (x86-64-v3: Intel since 2013, AMD since 2015)\n", stderr);
    return 1;
  }
  open_standard_streams();
  limit_spinning(argv);
  prctl(PR_SET_NAME, "lmx");  // otherwise the name would be `exe`, that of its link in /proc
  return lmx::app::cli::run_command_line(argc, argv);
}
