// A thread of each rank that sends heartbeats to the others and ends the process if one of them is lost. Open MPI
// itself waits forever for a rank that was stopped, or whose link drops all packets.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "diagnosis.h"
#include "placement.h"
#include "running_time.h"

namespace lmx_mpi {

class Watchdog {
 public:
  struct Settings {
    double heartbeat_s = 1;
    Limits limits;
    // If a rank is lost, the launcher sends SIGCONT to the remaining ranks before it ends them. The lost rank is then
    // the one that is silent for this time after the signal. 0: the launcher does not send SIGCONT.
    double warned_silence_s = 0;
  };
  // Only the watchdog may use `comm`.
  Watchdog(MPI_Comm comm, const std::vector<Placement>& placements, const Settings& settings);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void enter(Move move);  // this rank begins to wait
  void leave();           // this rank computes again
  void progress();        // this rank has sent or received data
  // Records that this rank has an error and informs the others, which then expect nothing more of it. Returns true if
  // this rank must report the error. If several ranks fail within a second, the lowest of them reports; rank 0 decides
  // that at once, other ranks first wait for lower ones. A rank that fails later does not report, because another rank
  // has reported.
  bool fail();
  // Another rank that has announced its failure or is lost; -1: none.
  int failed_rank() const { return failed_rank_; }
  // stop() ends the heartbeats. The caller then makes a barrier, so that no message is pending, and calls drain().
  void stop();
  void drain();

 private:
  using Clock = std::chrono::steady_clock;
  struct Line;  // connection to one other rank

  void loop();
  void pause();
  void advance_clock();
  void receive();
  void send(bool now);
  void consider();
  void watch_launcher();
  Diagnosis look();
  bool has_the_word();
  void note_failures();
  void end_silent();
  [[noreturn]] void end_job(const std::string& message);
  Beat own_beat();
  bool flush(double seconds);

  MPI_Comm comm_;
  int rank_ = 0;
  std::vector<std::string> hosts_;
  Settings settings_;
  double poll_s_;
  std::vector<std::unique_ptr<Line>> lines_;  // null for this rank
  std::vector<Peer> peers_;

  std::mutex mutex_;  // protects own_ and moved_, which the rank's own thread writes too
  Beat own_;
  Clock::time_point moved_;  // last time this rank began to wait or to compute, or moved data
  std::atomic<int> failed_rank_{-1};
  std::atomic<bool> lower_speaks_{false}, another_has_spoken_{false};
  std::atomic<bool> stop_{false}, hurry_{false};
  int wake_ = -1;  // eventfd

  RunningTime time_;
  double clock_ = 0, next_beat_ = 0, failed_since_ = -1, first_failure_ = -1, verdict_since_ = 0, alarm_since_ = -1;
  int warnings_ = 0;
  Diagnosis verdict_;
  std::thread thread_;
};

// Calls enter() and leave() around an operation.
class Waiting {
 public:
  Waiting(Watchdog& watchdog, Move move) : watchdog_(watchdog) { watchdog_.enter(move); }
  ~Waiting() { watchdog_.leave(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Watchdog& watchdog_;
};

}  // namespace lmx_mpi
