// The results of a run, read from its metrics.jsonl, provenance.json and config.yaml.
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/records/records.h"
#include "app/report/step_times.h"
#include "lmx/codec.h"
#include "sync/unit_queue.h"

namespace lmx::app::report {

// Bytes of one group of parameters in one collective.
struct TrafficLine {
  double mean = 0, max = 0, total = 0;  // sent: per step, mean and maximum of ranks; of all ranks and steps
  double received = 0;                  // per step, mean of ranks
  // Sent to other nodes, per step, mean of ranks; nullopt: all ranks of the run are in one node.
  std::optional<double> between_nodes = {};
};

struct MemoryLine {
  double first = 0, max = 0;  // rank 0, any rank
};

// The last `train` record covers `steps` steps, the others cover `usual` steps.
struct LastWindow {
  int64_t step = 0, steps = 0, usual = 0;
  bool is_short() const { return steps > 0 && 2 * steps < usual; }
};

struct Report {
  std::string directory;
  std::string start = "null";  // the last entry of provenance.json, as JSON
  size_t starts = 0;
  std::string began;  // time of the first start: "2026-05-01T10:15:00+0200"
  RunStatus status;
  // Leaves of config.yaml: {"optimizer.lr", "0.1"}. A value that `--change` has replaced is "0.1; 0.01 from step 60
  // on".
  std::vector<std::pair<std::string, std::string>> config;
  std::string samples;  // text of samples.txt, "" without that file
  int64_t step = 0;     // of the last record
  size_t ranks = 1;
  std::vector<RunRecord> records;
  std::optional<RunRecord> train, valid, best;
  std::optional<RunRecord> translation;  // of train.final_bleu
  std::map<std::string, double> rows;    // means over the run, by parameter
  // By parameter: sums over all ranks and the whole run; but `residual` is from the last record.
  std::map<std::string, CodecHealth> codec;
  std::map<std::pair<std::string, std::string>, TrafficLine> traffic;  // by group and collective
  std::map<int64_t, std::map<std::string, double>> rank_memory;        // peak bytes of each rank, by class
  std::map<std::string, MemoryLine> memory;                            // by class
  // By rule: number of a parameter server's updates by staleness, at the shard of rank 0.
  std::map<std::string, std::map<int64_t, double>> staleness;
  // Last value of each SyncReport::take_values(), by "<rule>/<name>".
  std::map<std::string, double> strategy;
  LastWindow last_window;
  bool on_a_wire = false;  // ranks are processes; virtual ranks share cores, so their times mean little
  CommTimes times;
  SubBatches sub_batches;
};

// UserError: no run in `directory`, or damaged records.
Report read_report(const std::string& directory);

// Returns whether a key of train records is a value of a strategy: "<rule>/<name>".
bool is_strategy_key(const std::string& key);

// Returns the steps that each train record covers, in order: as counted by rank 0, otherwise the steps since the
// previous record.
std::vector<double> window_steps(const std::vector<RunRecord>& records);

// "done", "diverged", "failed", "running", "unknown" ...
std::string state_text(const Report& report);

// Returns the bytes that a rank sends per step, all groups and collectives together, mean of ranks.
double sent_per_step(const Report& report);

// Returns the text at a JSON pointer of the run's last start; "?" if there is none.
std::string start_text(const Report& report, const char* pointer);

// "1.25 MB".
std::string bytes(double n);

// Returns the run's metrics at its end: {name, value, step}.
std::vector<std::vector<std::string>> result_rows(const Report& report);

void print_text(const Report& report);                   // tables, to stdout
void print_comparison(const std::vector<Report>& runs);  // a line per run and the best one's number, to stdout
void print_json(const Report& report);

// Finds the runs below a folder.

// Returns whether `directory` contains the records of a run.
bool holds_run(const std::string& directory);

// Returns the folders of runs below `directory` at any depth, sorted by path; or `directory` itself if it contains a
// run. Hidden folders, links and the folders inside a run are not searched. UserError: there is no such directory.
std::vector<std::string> runs_below(const std::string& directory);

// Returns the reports of these runs, and of all runs below those that are no runs. A run below a folder that cannot be
// read is left out with a warning. UserError: a folder with no run that can be read, a run that is damaged. `command`
// begins messages: "report".
std::vector<Report> read_reports(const std::vector<std::string>& directories, const std::string& command);

}  // namespace lmx::app::report
