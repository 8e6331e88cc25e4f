// The folder that a run writes (docs/run-files.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/file_lock.h"

namespace lmx::train {

// Makes the run's folder: `wanted` when given (it must not exist, or be empty), else runs/<recipe>/<date-time> with a
// suffix where that is taken. Two runs that start at once get two folders. UserError: `wanted` is in use.
LMX_API std::string create_run_directory(const std::string& wanted, const std::string& recipe);

// `wanted` or the newest folder of runs/<recipe>/ that holds a run; "" when there is none (--resume auto).
LMX_API std::string newest_run(const std::string& wanted, const std::string& recipe);

// config.yaml of a run. UserError where `directory` is missing, unreadable, or no run.
LMX_API Node read_run_config(const std::string& directory);

// True for a folder in which a run was killed before it wrote its config.yaml, so that nothing in it counts.
LMX_API bool holds_nothing(const std::string& directory);

// Keeps a second process out of the run for its lifetime. UserError names the folder.
class LMX_API RunLock {
 public:
  explicit RunLock(const std::string& directory);

 private:
  FileLock lock_;
};

// status.json: state (running, done, paused, failed, interrupted), step, reason, cause (of a failure: diverged,
// out_of_memory or ""), pid, host. What a script polls.
LMX_API void write_status(const std::string& directory, const std::string& state, int64_t step, const std::string& reason,
                          const std::string& cause = "");

// Whether status.json is there and says that the run is under way.
LMX_API bool says_running(const std::string& directory);

struct Provenance {
  std::vector<std::string> command_line;
  std::string data_hash, data_directory, data_note;
  std::vector<std::pair<std::string, std::string>> plugins;  // "model/lstm", SHA-256
  std::string isa, precision;
  int threads = 0;
  double lr_factor = 1;
  int64_t parameters = 0;
};
// provenance.json: what it took to make this run; resumed runs append to its list "starts".
LMX_API void write_provenance(const std::string& directory, const Provenance& p);

// The data hash that the run's last start recorded; "" where none is readable.
LMX_API std::string recorded_data_hash(const std::string& directory);

// vocabulary.tsv: what `lmx generate` needs of the data.
LMX_API void save_vocabulary(const std::string& directory, const Vocabulary& vocabulary);
LMX_API Vocabulary load_vocabulary(const std::string& directory);  // UserError when it is missing

}  // namespace lmx::train
