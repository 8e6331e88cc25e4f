// Averages of checkpoints: `lmx average`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx {

// In a run's folder: the mean of its last checkpoints.
inline constexpr const char* kMeanFile = "mean.safetensors";
// The folders of a run's last `most` checkpoints, oldest first; of all where it keeps fewer.
std::vector<std::string> last_checkpoints(const std::string& run, int64_t most);
// Which checkpoints an average is of: paths of checkpoints and files, or of a run its last or best (by validation)
// ones.
struct AverageOptions {
  std::vector<std::string> checkpoints;
  std::string run;
  int64_t last = 0, best = 0;
};
// The mean of their parameters, each summed in f64 and rounded once, as safetensors at `output`. Returns the
// checkpoints. UserError: none, fewer than asked for, parameters whose names, shapes or types differ.
std::vector<std::string> average_checkpoints(const AverageOptions& options, const std::string& output);

}  // namespace lmx
