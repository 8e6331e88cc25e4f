// The status that a run reports to the program that started it.
#pragma once

#include <cstdint>
#include <string>

namespace lmx_cli::jobs {

// The contents of a run's status.json (docs/run-files.md); state is "" if there is none.
struct RunStatus {
  std::string state, cause, reason;
  int64_t step = 0;
  std::string time;  // time of writing: "2026-05-01T10:15:00+0200"
  bool diverged() const { return state == "failed" && cause == "diverged"; }
};
RunStatus read_status(const std::string& run);

}  // namespace lmx_cli::jobs
