// Checkpoints: named tensors in safetensors files, written so that a complete one exists even if the run is killed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lmx/optim.h"

namespace lmx {

// A safetensors file: u64 header length, JSON header, data. Tensors are in the order of their names, so equal contents
// give equal bytes. RunError if the file cannot be written; for a full disk it names the path. UserError on reading:
// missing, truncated, malformed header, overlapping tensors.
void save_safetensors(const std::string& path, const StateDict& tensors,
                      const std::map<std::string, std::string>& metadata = {});
StateDict load_safetensors(const std::string& path, const std::shared_ptr<Allocator>& allocator);
// Maps the file instead of reading it. The tensors are read-only; the system can drop their pages if memory is short.
StateDict map_safetensors(const std::string& path, const std::shared_ptr<Allocator>& allocator);
// The metadata that save_safetensors() was given.
std::map<std::string, std::string> safetensors_metadata(const std::string& path);

// The state that a run needs to continue bit-exactly. `numbers` holds scalars as text ("step", "schedule.0").
struct TrainState {
  StateDict model;                             // parameters: model.safetensors
  StateDict train;                             // optimizer, EMA, carried state: train_state.safetensors
  std::vector<StateDict> ranks;                // state that differs between ranks (residuals): rank-R.safetensors
  std::map<std::string, std::string> numbers;  // state.json
};

// Writes <run>/checkpoints/step-N/ as a hidden temporary folder, fsyncs it and renames it. Returns the folder.
std::string save_checkpoint(const std::string& run_dir, int64_t step, const TrainState& state);
// The same in three steps, for several ranks on one file system. Rank 0 begins, and every rank adds its own state. When
// all have done so, rank 0 finishes with the common state (its `ranks` are not used) and the number of ranks.
void begin_checkpoint(const std::string& run_dir, int64_t step);
void add_to_checkpoint(const std::string& run_dir, int64_t step, int rank, const StateDict& state);
std::string finish_checkpoint(const std::string& run_dir, int64_t step, const TrainState& state, int ranks);
// Verifies the hashes of state.json. UserError names the damaged file and suggests what to do.
TrainState load_checkpoint(const std::string& folder, const std::shared_ptr<Allocator>& allocator);
// Loads a checkpoint for rank `rank` of `ranks` processes. If the checkpoint has the same number of ranks, only the
// rank's own file is read, and the other entries of `ranks` stay empty. Otherwise all files are mapped, and use memory
// only while they are accessed. Only rank 0 verifies the files of other ranks.
TrainState load_checkpoint_of(const std::string& folder, const std::shared_ptr<Allocator>& allocator, int rank,
                              int ranks);
// Loads the parameters, to use the model and not to train it. `train` of the result has only the tensors whose names
// begin with `prefix`. If there are none, the training state, which can be larger than the model, is neither read nor
// verified.
TrainState load_model(const std::string& folder, const std::shared_ptr<Allocator>& allocator,
                      const std::string& prefix);
// Returns only the `numbers`, read and verified without the tensors.
std::map<std::string, std::string> checkpoint_numbers(const std::string& folder);
// Complete checkpoints of a run, by ascending step. Unfinished temporary folders are skipped.
struct CheckpointInfo {
  int64_t step;
  std::string folder;
};
std::vector<CheckpointInfo> list_checkpoints(const std::string& run_dir);
// The checkpoint whose folder contains this path, whether or not a file exists there; "" if none does.
std::string checkpoint_around(const std::string& path);
// Removes the unfinished checkpoints of a killed process from the run's folder.
void remove_unfinished_checkpoints(const std::string& run_dir);
// Removes all but the last `keep` and those in `protect`.
void prune_checkpoints(const std::string& run_dir, int keep, const std::vector<int64_t>& protect);

}  // namespace lmx
