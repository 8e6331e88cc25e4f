// config_cases FILE: runs a file of composition cases; ends with "N passed, N failed".
#include <cstdio>
#include <exception>

#include "cases/case_file.h"

int main(int argc, char** argv) {
  using Verdict = lmx::test::CaseResult::Verdict;
  if (argc != 2) {
    std::fputs("usage: config-cases FILE\n", stderr);
    return 2;
  }
  try {
    size_t passed = 0, failed = 0;
    for (const lmx::test::CaseResult& r : lmx::test::run_case_file(argv[1])) {
      if (r.verdict == Verdict::differs)
        std::printf("differs %s (%s)\n  lmx: %s\n", r.id.c_str(), r.title.c_str(), r.text.c_str());
      if (r.verdict == Verdict::failed)
        std::printf("FAILED %s (%s)\n  %s\n", r.id.c_str(), r.title.c_str(), r.text.c_str());
      ++(r.verdict == Verdict::failed ? failed : passed);
    }
    std::printf("%zu passed, %zu failed\n", passed, failed);
    return failed ? 1 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
}
