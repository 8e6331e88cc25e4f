// The folder that a run writes (docs/run-files.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/runs/init_report.h"
#include "base/file_lock.h"
#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/plugin.h"

namespace lmx::train {

// Makes the run's folder: `wanted` when given (it must not exist, or be empty), else runs/<recipe>/<date-time> with a
// suffix where that is taken. Two runs that start at once get two folders. UserError: `wanted` is in use.
std::string create_run_directory(const std::string& wanted, const std::string& recipe);

// `wanted` or the newest folder of runs/<recipe>/ that holds a run; "" when there is none (--resume auto).
std::string newest_run(const std::string& wanted, const std::string& recipe);

// config.yaml of a run. UserError where `directory` is missing, unreadable, or no run.
Node read_run_config(const std::string& directory);

// True for a folder in which a run was killed before it wrote its config.yaml, so that nothing in it counts.
bool holds_nothing(const std::string& directory);

// Keeps a second process out of the run for its lifetime. UserError names the folder.
class RunLock {
 public:
  explicit RunLock(const std::string& directory);

 private:
  FileLock lock_;
};

std::string host_name();

// status.json: state (running, done, paused, failed, interrupted), step, reason, cause (of a failure: diverged,
// out_of_memory or ""), pid, host. What a script polls.
void write_status(const std::string& directory, const std::string& state, int64_t step, const std::string& reason,
                  const std::string& cause = "");

// Whether status.json is there and says that the run is under way.
bool says_running(const std::string& directory);

// Notes that the run in `directory` has failed, for ranks that could not: if its status.json says that it is under way,
// was written after `begin`, and no process holds the folder any more. A disk that cannot be written changes nothing.
void note_lost_run(const std::string& directory, std::filesystem::file_time_type begin, const std::string& reason);

// A key to which `--change` gave another value from `step` on.
struct RecipeChange {
  std::string key, before, now;
  int64_t step = 0;
};
// As a line of metrics.jsonl: {"step":120,"split":"change","key":"optimizer.lr","before":"0.01","now":"0.001"}.
std::string to_json_line(const RecipeChange& change);

struct Provenance {
  std::vector<std::string> command_line;
  std::string data_hash, data_directory, data_note;
  std::optional<double> valid_true_perplexity;  // of the source on the valid split, if it is known
  std::vector<PluginInfo> plugins;              // those that were loaded
  std::string isa, precision;
  int threads = 0;
  double lr_factor = 1;
  int64_t parameters = 0;
  InitReport init;
  std::vector<RecipeChange> changes;
};
// provenance.json: what it took to make this run; resumed runs append to its list "starts".
void write_provenance(const std::string& directory, const Provenance& p);

// One text for each of `plugins` that is another build than at the last start of the run: which, its version and
// SHA-256 then and now. Empty for a run that recorded none.
std::vector<std::string> changed_plugins(const std::string& directory, const std::vector<PluginInfo>& plugins);

// The data hash that the run's last start recorded; "" where none is readable.
std::string recorded_data_hash(const std::string& directory);

// vocabulary.tsv: what `lmx generate` needs of the data.
void save_vocabulary(const std::string& directory, const Vocabulary& vocabulary);
Vocabulary load_vocabulary(const std::string& directory);  // UserError when it is missing

}  // namespace lmx::train
