// mpirun as a child process of lmx.
#pragma once

#include <string>
#include <vector>

namespace lmx_mpi {

// A folder in shared memory for what Open MPI keeps of a job; removed with all that mpirun left in it, when the object
// goes. `path` is "" if the folder cannot be made: Open MPI then uses its own places.
class JobFolder {
 public:
  JobFolder();
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct JobEnd {
  int code = 0;       // lmx's exit code: 0, 1, 2, 130 or 143
  std::string error;  // why mpirun ended, if it failed and no rank has printed an error; else ""
};

// Runs `command` (mpirun with its words) to its end: passes its messages on to stderr and signals to it, and kills
// ranks that mpirun has left behind. RunError: it cannot be started.
JobEnd run_mpirun(const std::vector<std::string>& command);

}  // namespace lmx_mpi
