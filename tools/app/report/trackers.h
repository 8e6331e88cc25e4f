// Runs as files that other programs for tracking experiments read: MLflow and Weights & Biases.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "app/report/report.h"

namespace lmx::app::report {

// The part of a run that both programs store. The records of ranks are left out, as in TensorBoard's files.
struct TrackedRun {
  std::string key;  // 64 hexadecimal digits of the run's folder and start: a second export replaces the first one
  std::string name, group;      // the folder, and the folder that contains the run, or its sweep or experiment
  double began = 0, ended = 0;  // seconds since 1970; ended 0: unknown
  struct Moment {
    double time = 0;  // seconds since 1970: the start of the run, plus the seconds of training until this step
    std::map<std::string, double> values;  // by split and key: "train/nll_nat"
  };
  std::map<int64_t, Moment> steps;
};
TrackedRun tracked_run(const Report& run);

// Seconds since 1970 of "2026-05-01T10:15:00+0200"; 0 if it is no such text.
double seconds_of(const std::string& time);

// Each writes a run below `folder` and returns the path of its folder. RunError: it cannot be written.

// `folder`/EXPERIMENT/RUN, a file store of MLflow (mlflow/store/tracking/file_store.py). The group is the experiment:
// one of this name that is there already, or a new one.
std::string write_mlflow(const Report& run, const std::string& folder);

// `folder`/offline-run-TIME-ID, an offline run of W&B. The group is the project.
std::string write_wandb(const Report& run, const std::string& folder);

// The records of a .wandb file: a log of LevelDB (doc/log_format.md) with a header of its own, and CRC-32 instead of
// CRC-32C. Public for tests.
std::string leveldb_log(std::string_view header, const std::vector<std::string>& records);

}  // namespace lmx::app::report
