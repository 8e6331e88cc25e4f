// Compiled for any x86-64, unlike the rest: an older CPU gets a message instead of an illegal instruction.
#include <cstdio>

namespace lmx_cli {
int run_command_line(int argc, char** argv);
}

int main(int argc, char** argv) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fputs("error: lmx needs a CPU with AVX2 and FMA (x86-64-v3: Intel since 2013, AMD since 2015)\n", stderr);
    return 1;
  }
  return lmx_cli::run_command_line(argc, argv);
}
