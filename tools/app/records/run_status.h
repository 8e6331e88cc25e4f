// How a run says that it stands, for whoever started it.
#pragma once

#include <cstdint>
#include <string>

namespace lmx_cli::jobs {

// What a run's status.json says (docs/run-files.md); state "" where there is none.
struct RunStatus {
  std::string state, cause, reason;
  int64_t step = 0;
  std::string time;  // when it was written: "2026-05-01T10:15:00+0200"
  bool diverged() const { return state == "failed" && cause == "diverged"; }
};
RunStatus read_status(const std::string& run);

}  // namespace lmx_cli::jobs
