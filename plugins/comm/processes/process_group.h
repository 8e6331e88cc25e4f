// A group whose ranks are processes: joins the job, runs the body under the watchdog, and ends all ranks with one
// message. The library of messages is a Transport.
#pragma once

#include <memory>
#include <string>

#include "link.h"
#include "lmx/comm.h"
#include "lmx/launch.h"
#include "process_config.h"
#include "watchdog.h"

namespace lmx::processes {

// UserError if a launcher has started another number of processes than `config.ranks`, which is not 0. `path`: of the
// config.
void require_started_ranks(const ProcessConfig& config, const Launch& launch, const std::string& path);

class ProcessGroup final : public CommGroup {
 public:
  // `library`: "MPI", for describe(). `warned_silence_s`: see Watchdog::Settings.
  ProcessGroup(std::unique_ptr<Transport> transport, const std::string& library, const ProcessConfig& config,
               const Launch& launch, const CommEnv& env, double warned_silence_s);
  ~ProcessGroup() override;
  int size() const override { return launch_.world; }
  void run(const std::function<void(Communicator&)>& body) override;
  std::string describe() const override;

 private:
  int threads_for(int fair) const;
  double in_turn(double seconds) const;
  double start_s() const;
  std::string late_end() const;
  [[noreturn]] void rethrow_for_rank(bool speaks);

  std::unique_ptr<Transport> transport_;
  std::string library_;
  ProcessConfig config_;
  Launch launch_;
  int threads_;
  bool deterministic_;
  Watchdog::Settings settings_;
  bool started_ = false, failed_ = false;
};

}  // namespace lmx::processes
