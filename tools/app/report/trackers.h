// Runs as files that other programs for tracking experiments read: MLflow and Weights & Biases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/report/report.h"

namespace lmx::app::report {

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
