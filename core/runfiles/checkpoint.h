// Checkpoints: named tensors in safetensors files, written so that a kill at any instant leaves a whole one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lmx/optim.h"

namespace lmx {

// A safetensors file: u64 header length, JSON header, data. Tensors in name order, so equal contents are equal bytes.
// RunError: cannot write (disk full names the path). UserError on reading: missing, truncated, malformed header,
// overlaps.
void save_safetensors(const std::string& path, const StateDict& tensors,
                      const std::map<std::string, std::string>& metadata = {});
StateDict load_safetensors(const std::string& path, const std::shared_ptr<Allocator>& allocator);
// The same, not to be written to: the tensors lie in the file, whose pages the system drops where memory is short.
StateDict map_safetensors(const std::string& path, const std::shared_ptr<Allocator>& allocator);
// What save_safetensors() was given beside the tensors.
std::map<std::string, std::string> safetensors_metadata(const std::string& path);

// What a run needs to go on bit by bit. `numbers` holds scalars as text ("step", "schedule.0").
struct TrainState {
  StateDict model;                             // parameters: model.safetensors
  StateDict train;                             // optimizer, EMA, carried state: train_state.safetensors
  std::vector<StateDict> ranks;                // what only one rank has (residuals): rank-R.safetensors
  std::map<std::string, std::string> numbers;  // state.json
};

// <run>/checkpoints/step-N/, written as a hidden temporary folder, fsynced, renamed. Returns the folder.
std::string save_checkpoint(const std::string& run_dir, int64_t step, const TrainState& state);
// The same in three steps, for several ranks on one file system: rank 0 begins, every rank adds what only it has, and
// when all have, rank 0 finishes with the rest (whose `ranks` are not read) and the number of ranks.
void begin_checkpoint(const std::string& run_dir, int64_t step);
void add_to_checkpoint(const std::string& run_dir, int64_t step, int rank, const StateDict& state);
std::string finish_checkpoint(const std::string& run_dir, int64_t step, const TrainState& state, int ranks);
// Verifies the hashes of state.json. UserError names the damaged file and what to do.
TrainState load_checkpoint(const std::string& folder, const std::shared_ptr<Allocator>& allocator);
// For rank `rank` of `ranks` processes. Of a checkpoint of as many ranks only the rank's own file is read, and the
// others' entries of `ranks` stay empty; of another number all are mapped, and take memory only while they are looked
// at. Rank 0 alone verifies the files of other ranks. `rank` -1: for somebody who wants none of them.
TrainState load_checkpoint_of(const std::string& folder, const std::shared_ptr<Allocator>& allocator, int rank,
                              int ranks);
// Only its `numbers`, read and verified without the tensors.
std::map<std::string, std::string> checkpoint_numbers(const std::string& folder);
// Complete checkpoints of a run by ascending step, unfinished temporary folders skipped.
struct CheckpointInfo {
  int64_t step;
  std::string folder;
};
std::vector<CheckpointInfo> list_checkpoints(const std::string& run_dir);
// What a killed writer left in the run's folder, removed.
void remove_unfinished_checkpoints(const std::string& run_dir);
// Removes all but the last `keep` and those in `protect`.
void prune_checkpoints(const std::string& run_dir, int keep, const std::vector<int64_t>& protect);

}  // namespace lmx
