// Folders that commands fill with files: that of a run (docs/run-files.md), and any other one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/memory/batch_fit.h"
#include "app/runs/stored_parameters.h"
#include "app/runs/supervision.h"
#include "backend/cuda.h"
#include "base/files.h"
#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/plugin.h"
#include "train/signals.h"

namespace lmx::app {

// Creates the run's folder: `wanted` if given (it must not exist, or be empty), otherwise runs/<recipe>/<date-time>
// with a suffix if that exists. Two runs that start at the same time get different folders. UserError: `wanted` is in
// use.
std::string create_run_directory(const std::string& wanted, const std::string& recipe);

// Whether create_run_directory() will succeed, as far as that is known without creating anything. UserError: `wanted`
// is in use. RunError: it cannot be created.
void require_place(const std::string& wanted, const std::string& recipe);

// Returns `wanted` or the newest folder of runs/<recipe>/ that contains a run; "" if there is none (--resume auto).
std::string newest_run(const std::string& wanted, const std::string& recipe);

// Reads config.yaml of a run. UserError: `directory` is missing, unreadable, or not a run.
Node read_run_config(const std::string& directory);

// Returns true for a folder in which a run was killed before it wrote its config.yaml. Such a folder contains nothing
// to resume.
bool holds_nothing(const std::string& directory);

// Prevents other processes from using the run during its lifetime. UserError: another process uses it; the message
// names the folder.
class RunLock {
 public:
  explicit RunLock(const std::string& directory);

 private:
  FileLock lock_;
};

std::string host_name();

// Writes status.json for scripts that poll it: state (running, done, paused, failed, interrupted), step, reason, cause
// (of a failure: diverged, out_of_memory or ""), pid, host.
void write_status(const std::string& directory, const std::string& state, int64_t step, const std::string& reason,
                  const std::string& cause = "");

// Returns whether status.json exists and says "running".
bool says_running(const std::string& directory);

// Returns whether status.json says "running", and its process on this machine has ended without another status, for
// example because it was killed. False if the run was started on another machine.
bool has_lost_process(const std::string& directory);

// Records that the run in `directory` has failed, for ranks that could not do so. Does nothing unless its status.json
// says "running", was written after `begin`, and no process holds the folder any more. Errors of the disk are ignored.
void note_lost_run(const std::string& directory, std::filesystem::file_time_type begin, const std::string& reason);

// A key whose value `--change` has replaced from `step` on.
struct RecipeChange {
  std::string key, before, now;
  int64_t step = 0;
};
// Returns a line of metrics.jsonl: {"step":120,"split":"change","key":"optimizer.lr","before":"0.01","now":"0.001"}.
std::string to_json_line(const RecipeChange& change);

struct Provenance {
  std::vector<std::string> command_line;
  std::string data_hash, data_directory, data_note;
  std::optional<double> valid_true_perplexity;  // of the source on the valid split, if it is known
  std::vector<PluginInfo> plugins;              // plugins that were loaded
  std::string device, isa, precision, products;
  std::optional<CudaDeviceInfo> cuda;
  std::string cudnn;  // the version of cuDNN that the run may use; "": none
  int threads = 0;
  double lr_factor = 1;
  int64_t parameters = 0;
  InitReport init;
  std::vector<RecipeChange> changes;
  std::optional<Restart> restart;  // `--restarts` has started the run again
  std::optional<FittedBatch> fit;  // batch.fit has chosen the batch at this start
};
// Writes provenance.json: the data, software and hardware of the run. Resumed runs append to its list "starts".
void write_provenance(const std::string& directory, const Provenance& p);

// Returns a text for each of `plugins` whose build has changed since the last start of the run: its name, and the old
// and new version and SHA-256. Empty if the run recorded none.
std::vector<std::string> changed_plugins(const std::string& directory, const std::vector<PluginInfo>& plugins);

// Returns the data hash that the run's last start recorded; "" if none is readable.
std::string recorded_data_hash(const std::string& directory);

// Writes vocabulary.tsv, which `lmx generate` needs.
void save_vocabulary(const std::string& directory, const Vocabulary& vocabulary);
Vocabulary load_vocabulary(const std::string& directory);  // UserError: it is missing

// A folder that a command fills with files.

// UserError, which `command` ("export") begins: `target` is a file, or not empty, or its last part is no name.
void check_new_folder(const std::string& command, const std::string& target);

// The folder has a temporary name until finish(), so that unfinished files never appear under its name. After a signal,
// the next file or call of end_after_signal() ends the process, which removes the folder.
class NewFolder {
 public:
  // Creates the folders above it. UserError as above. RunError: no folder can be created there.
  NewFolder(std::string command, std::string target);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  const std::string& draft() const { return draft_; }  // its present path
  void end_after_signal() const;                       // EndProcess: a signal has arrived
  // Path of a file to write; the folders in `name` are created. EndProcess as above.
  std::string path(const std::string& name);
  void write(const std::string& name, std::string_view text);
  void write(const std::string& name, const nlohmann::ordered_json& json);
  void copy(const std::string& from, const std::string& name);
  std::vector<std::string> finish();  // returns the names of the files that path(), write() and copy() have named

 private:
  SignalGuard guard_;
  std::string command_, target_, draft_;
  std::vector<std::string> names_;
  int lock_ = -1;  // of the draft, while this process lives
  bool finished_ = false;
};

}  // namespace lmx::app
