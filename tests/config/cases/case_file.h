// A file of conformance cases for Hydra-style composition: files and a command line in, the composed tree or an error
// out.
#pragma once

#include <string>
#include <vector>

namespace lmx::test {

struct CaseResult {
  enum class Verdict {
    passed,
    differs,  // lmx decides otherwise on purpose: `text` says how; docs/configuration.md says why
    failed
  };
  std::string id, title, text;
  Verdict verdict = Verdict::passed;
};

// UserError when the file is no such file.
std::vector<CaseResult> run_case_file(const std::string& path);

}  // namespace lmx::test
