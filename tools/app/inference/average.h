// Averages of checkpoints: `lmx average`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx {

// Name of the file in a run's folder that contains the mean of its last checkpoints.
inline constexpr const char* kMeanFile = "mean.safetensors";
// Returns the folders of a run's last `most` checkpoints, oldest first. Returns all folders if the run keeps fewer.
std::vector<std::string> last_checkpoints(const std::string& run, int64_t most);
// The checkpoints to average: either the paths in `checkpoints` (checkpoints or files), or the last or the best (by
// validation) checkpoints of `run`.
struct AverageOptions {
  std::vector<std::string> checkpoints;
  std::string run;
  int64_t last = 0, best = 0;
};
// Writes the mean of their parameters to `output` as safetensors. Each mean is summed in f64 and rounded once. Returns
// the checkpoints. UserError: no checkpoints, fewer than requested, or parameters whose names, shapes or types differ.
std::vector<std::string> average_checkpoints(const AverageOptions& options, const std::string& output);

}  // namespace lmx
