// Files of composition cases: lmx's own, and the suite that LMX_CONFIG_CASES names.
#include <cstdlib>

#include "cases/case_file.h"
#include "test.h"

namespace lmx {
namespace {

void expect_all(const std::string& path, size_t at_least) {
  const std::vector<test::CaseResult> results = test::run_case_file(path);
  for (const test::CaseResult& r : results)
    EXPECT_NE(r.verdict, test::CaseResult::Verdict::failed) << r.id << " (" << r.title << "): " << r.text;
  EXPECT_GE(results.size(), at_least);
}

TEST(Conformance, OwnCases) {
  expect_all(lmx_test::source_path("/tests/config/more_cases.yaml"), 50);
}

TEST(Conformance, GivenCases) {
  const char* named = std::getenv("LMX_CONFIG_CASES");
  const std::string path = named ? named : lmx_test::source_path("/../shared/design/config_cases.yaml");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "LMX_CONFIG_CASES names no suite";
  expect_all(path, 100);
}

}  // namespace
}  // namespace lmx
