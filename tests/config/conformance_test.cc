// Files of composition cases: lmx's own, and the suite that LMX_CONFIG_CASES names.
#include <cstdio>
#include <cstdlib>

#include "cases/case_file.h"
#include "test.h"

namespace lmx {
namespace {

// Prints for tools/dev/config-cases how many cases pass, and where lmx differs on purpose.
void expect_all(const std::string& path, size_t at_least) {
  using Verdict = test::CaseResult::Verdict;
  const std::vector<test::CaseResult> results = test::run_case_file(path);
  size_t failed = 0;
  for (const test::CaseResult& r : results) {
    EXPECT_NE(r.verdict, Verdict::failed) << r.id << " (" << r.title << "): " << r.text;
    failed += r.verdict == Verdict::failed;
    if (r.verdict == Verdict::differs)
      std::printf("differs %s (%s)\n  lmx: %s\n", r.id.c_str(), r.title.c_str(), r.text.c_str());
  }
  std::printf("%zu passed, %zu failed\n", results.size() - failed, failed);
  EXPECT_GE(results.size(), at_least);
}

TEST(Conformance, OwnCases) {
  expect_all(lmx_test::source_path("/tests/config/more_cases.yaml"), 50);
}

TEST(Conformance, GivenCases) {
  const char* named = std::getenv("LMX_CONFIG_CASES");
  const std::string path = named ? named : lmx_test::source_path("/../shared/design/config_cases.yaml");
  if (!named && !std::filesystem::exists(path)) GTEST_SKIP() << "LMX_CONFIG_CASES names no suite";
  expect_all(path, named ? 1 : 100);
}

}  // namespace
}  // namespace lmx
