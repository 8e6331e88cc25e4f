// Whether this machine and this process can start MPI jobs.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>

namespace lmx_test {

inline std::string on_path(const std::string& name) {
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

// Why jobs cannot be started here; empty where they can. Sets what their processes need: ranks beside each other on few
// cores must not wait for each other's threads, and in a sanitized build the leaks of Open MPI's own unloaded parts, which
// no suppression can name, are not looked for (threads as ranks run the same code with the search on).
inline std::string why_no_mpi() {
  if (on_path("mpirun.openmpi").empty() && on_path("mpirun").empty()) return "mpirun is not on PATH";
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_ID"})
    if (std::getenv(name)) return std::string("this test itself runs below a launcher (") + name + ")";
  setenv("OMP_NUM_THREADS", "1", 1);
  const std::string options = std::getenv("ASAN_OPTIONS") ? std::getenv("ASAN_OPTIONS") : "";
  setenv("ASAN_OPTIONS", (options + ":detect_leaks=0").c_str(), 1);
  return "";
}

}  // namespace lmx_test
