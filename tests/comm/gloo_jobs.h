// Jobs of the Gloo group whose ranks a test starts itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "process/free_port.h"
#include "process_jobs.h"

namespace lmx_test {

inline constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

class Gloo : public ProcessJobs {
 protected:
  Gloo() : ProcessJobs("gloo") {}

  // One rank that this test starts with the four variables. `more` is appended to the environment.
  std::unique_ptr<Job> rank(int rank, int world, const std::string& scenario, std::vector<std::string> more,
                            const std::string& config = "heartbeat_s: 0.5, timeout_s: 3, lag_s: 60", int who = -1) {
    std::vector<std::string> words{"env", lmx::str("RANK=", rank), lmx::str("WORLD_SIZE=", world)};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {rank_program(), scenario, this->config(0, config), std::to_string(who)});
    return std::make_unique<Job>(words);
  }
  static std::vector<std::string> meeting(const FreePort& port, const std::string& secret = kSecret) {
    return {"MASTER_ADDR=127.0.0.1", lmx::str("MASTER_PORT=", port.number()), "LMX_JOB_SECRET=" + secret};
  }
};

}  // namespace lmx_test
