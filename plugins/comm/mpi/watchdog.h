// A thread of each rank that shows the others a sign of life and ends the process when one of them is lost: Open MPI
// waits for ever for a rank that was stopped, or whose link swallows everything.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "judge.h"
#include "running_time.h"
#include "seats.h"

namespace lmx_mpi {

class Watchdog {
 public:
  struct Settings {
    double heartbeat_s = 1;
    Limits limits;
    // The launcher sends SIGCONT to the ranks that are left when one is lost, before it ends them: time to find out
    // which it is, from who is silent for so long after. 0: the launcher does not.
    double warned_silence_s = 0;
  };
  // `comm` is its own: nobody else uses it.
  Watchdog(MPI_Comm comm, const std::vector<Seat>& seats, const Settings& settings);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void enter(Move move);  // the rank begins to wait
  void leave();           // and computes again
  void progress();        // something has come or left
  // This rank has an error: the others are told at once, and cease to expect anything of it. True: it is the one to say
  // what is wrong. Of ranks that fail within a second that is the lowest, which need not wait; another has spoken
  // before one that comes later.
  bool fail();
  // A rank other than this one that has said it failed, or is lost; -1: none.
  int failed_rank() const { return failed_rank_; }
  // No further signs are sent. Then a barrier of the caller's, so that nothing is under way any more; then drain().
  void stop();
  void drain();

 private:
  using Clock = std::chrono::steady_clock;
  struct Line;  // to and from one other rank

  void loop();
  void pause();
  void advance_clock();
  void receive();
  void send(bool now);
  void consider();
  void watch_launcher();
  Verdict look();
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
  std::vector<std::unique_ptr<Line>> lines_;  // null for the rank itself
  std::vector<Peer> peers_;

  std::mutex mutex_;  // of own_ and moved_, which the rank's thread writes too
  Beat own_;
  Clock::time_point moved_;  // when the rank last began to wait or to compute, or something came or left
  std::atomic<int> failed_rank_{-1};
  std::atomic<bool> lower_speaks_{false}, another_has_spoken_{false};
  std::atomic<bool> stop_{false}, hurry_{false};
  int wake_ = -1;  // eventfd

  RunningTime time_;
  double clock_ = 0, next_beat_ = 0, failed_since_ = -1, first_failure_ = -1, verdict_since_ = 0, alarm_since_ = -1;
  int warnings_ = 0;
  Verdict verdict_;
  std::thread thread_;
};

// enter() and leave() around a move.
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
