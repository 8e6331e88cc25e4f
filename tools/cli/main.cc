// Compiled for any x86-64, unlike the rest: an older CPU gets a message instead of an illegal instruction.
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace lmx_cli {
int run_command_line(int argc, char** argv);
}

namespace {

// libgomp's threads spin for milliseconds at a barrier, by default; where another process wants the processor, a step
// then takes several times as long. A short spin costs nothing on a quiet machine (docs/performance.md). libgomp reads
// the variable before main() begins, so the program starts itself again.
void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "20000", 0);
  execv("/proc/self/exe", argv);  // returns only where there is no /proc: then nothing is changed
}

}  // namespace

int main(int argc, char** argv) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fputs("error: lmx needs a CPU with AVX2 and FMA (x86-64-v3: Intel since 2013, AMD since 2015)\n", stderr);
    return 1;
  }
  limit_spinning(argv);
  prctl(PR_SET_NAME, "lmx");  // started by its link in /proc, it is called exe
  return lmx_cli::run_command_line(argc, argv);
}
