// Jobs of process_rank, and what a test expects of them.
#pragma once

#include <cstdlib>
#include <memory>
#include <sstream>

#include "job.h"
#include "lmx/error.h"
#include "mpi_here.h"
#include "process/free_port.h"

namespace lmx_test {

// Returns why jobs of this group cannot be started here, or "" if they can.
inline std::string why_no_job(const std::string& group) {
  if (group == "mpi") return why_no_mpi();
  setenv("OMP_NUM_THREADS", "1", 1);
  return LMX_HAS_GLOO ? "" : "this build has no Gloo";
}

// The program that each rank of a job runs.
inline std::string rank_program() {
  return build_path("/tests/comm/process_rank");
}

class ProcessJobs : public testing::Test {
 protected:
  explicit ProcessJobs(std::string group) : group_(std::move(group)) {}
  void SetUp() override {
    if (const std::string why = why_no_job(group_); !why.empty()) GTEST_SKIP() << why;
  }

  // lmx starts the ranks itself. `more` is appended to the config.
  std::vector<std::string> started(const std::string& scenario, int ranks, const std::string& more = "",
                                   int who = -1) const {
    return {rank_program(), scenario, config(ranks, more), std::to_string(who)};
  }
  std::string config(int ranks, const std::string& more) const {
    return lmx::str("{name: ", group_, ", ranks: ", ranks, more.empty() ? "" : ", ", more, "}");
  }
  // The folder in shared memory where the ranks meet, as the variables of one of them name it.
  static std::string meeting_folder(pid_t rank) {
    std::ifstream variables(lmx::str("/proc/", rank, "/environ"), std::ios::binary);
    for (std::string line; std::getline(variables, line, '\0');)
      if (line.starts_with("LMX_RENDEZVOUS=")) return line.substr(line.find('=') + 1);
    return "";
  }
  static size_t errors_in(const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("error:"); at != std::string::npos; at = text.find("error:", at + 1)) ++count;
    return count;
  }
  // mpirun itself sometimes reports a descriptor that was closed with its process ("[warn] Epoll MOD(1) on ..."), or
  // its own crash after the last rank has ended ("[host:pid] *** Process received signal ***").
  static int64_t lines_of_lmx(const std::string& err) {
    int64_t count = 0;
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);) count += !line.empty() && !line.starts_with("[");
    return count;
  }
  // Runs a job that must succeed without a message. Returns what it prints.
  static std::string expect_success(const std::vector<std::string>& command) {
    Job job(command);
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(job.err(), "");
    return job.out();
  }
  // Expects one message that matches, and no remaining process.
  static void expect_one_message(Job& job, int code, const testing::Matcher<std::string>& text) {
    const auto ranks = job.ranks();
    EXPECT_EQ(job.wait(), code);
    const std::string err = job.err();
    EXPECT_THAT(err, text);
    EXPECT_EQ(errors_in(err), 1u) << err;
    EXPECT_EQ(lines_of_lmx(err), 1) << err;
    EXPECT_TRUE(job.all_gone(ranks));
  }
  // The same for a job whose ranks all start and then end by themselves.
  static void expect_end(const std::vector<std::string>& command, size_t ranks, int code,
                         const testing::Matcher<std::string>& text) {
    Job job(command);
    ASSERT_TRUE(job.wait_for_ranks(ranks)) << job.err();
    expect_one_message(job, code, text);
  }

 private:
  std::string group_;
};

// Jobs of the Gloo group whose ranks a test starts itself.
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
