// A thread of each rank that sends heartbeats to the others and ends the process if one of them is lost. Libraries of
// messages wait forever for a rank that was stopped, or whose link drops all packets.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "deadline.h"
#include "diagnosis.h"
#include "link.h"
#include "placement.h"

namespace lmx::processes {

class Watchdog {
 public:
  struct Settings {
    std::string name;  // of the group, in front of messages: "mpi"
    double heartbeat_s = 1;
    Limits limits;
    // If a rank is lost, the launcher sends SIGCONT to the remaining ranks before it ends them. The lost rank is then
    // the one that is silent for this time after the signal. 0: the launcher does not send SIGCONT.
    double warned_silence_s = 0;
  };
  Watchdog(int rank, std::unique_ptr<BeatLink> beats, const std::vector<Placement>& placements,
           const Settings& settings);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void enter(Move move);  // this rank begins to wait
  void leave();           // this rank computes again
  void progress();        // this rank has sent or received data
  // The same as enter() and leave() for a wait for a device, which several threads may do at a time. Waits of less than
  // a second count as computing.
  void enter_device();
  void leave_device();
  // Records that this rank has an error and informs the others, which then expect nothing more of it. Returns true if
  // this rank must report the error. If several ranks fail within a second, the lowest of them reports; rank 0 decides
  // that at once, other ranks first wait for lower ones. A rank that fails later does not report, because another rank
  // has reported.
  bool fail();
  // If another rank has announced its failure, ends this rank's wait by EndProcess. That rank reports its error first
  // and determines the exit code.
  void end_if_another_failed() const;
  // The connection to this rank has broken: the rank has ended, unless it announces a failure at the same time. Has no
  // effect for a process of this host, whose end the kernel reports: it may have closed the connection because it has
  // itself lost another rank.
  void note_lost(int rank);
  // To be called if a message to or from another rank has failed, which `what` describes. Waits for the diagnosis of
  // the lost rank; throws RunError if there is none.
  [[noreturn]] void lost_connection(const std::string& what) const;
  // The watchdog's thread calls `interrupt` when another rank has announced its failure, for waits that do not poll
  // end_if_another_failed(). One function for each `owner`; null ends that.
  void on_failure(const void* owner, std::function<void()> interrupt);
  // stop() ends the heartbeats. The caller then makes a barrier, so that no message is pending, and calls drain().
  void stop();
  void drain();

 private:
  using Clock = std::chrono::steady_clock;
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
  void announce_failure();
  Beat own_beat();
  bool flush(double seconds);

  int rank_;
  std::unique_ptr<BeatLink> beats_;
  std::vector<std::string> hosts_;
  Settings settings_;
  double poll_s_;
  std::vector<int> processes_;  // pidfd of each rank; -1: none
  std::vector<double> heard_;   // time of each rank's last heartbeat, by clock_
  std::vector<Peer> peers_;

  std::mutex mutex_;  // protects the following five, which other threads write too
  Beat own_;
  int device_waits_ = 0;
  Clock::time_point device_since_;  // the first of these waits has begun
  std::vector<bool> lost_;          // of each rank: its connection has broken, and it is no process of this host
  Clock::time_point moved_;         // last time this rank began to wait or to compute, or moved data
  std::atomic<int> failed_rank_{-1};
  std::mutex interrupt_mutex_;
  std::map<const void*, std::function<void()>> interrupts_;
  std::atomic<bool> lower_speaks_{false}, another_has_spoken_{false};
  std::atomic<bool> stop_{false}, hurry_{false};
  int wake_ = -1;  // eventfd

  RunningTime time_;
  double clock_ = 0, next_beat_ = 0, failed_since_ = -1, first_failure_ = -1, verdict_since_ = 0, alarm_since_ = -1;
  int warnings_ = 0;
  Diagnosis verdict_;
  std::thread thread_;
};

class DeviceWaiting {
 public:
  explicit DeviceWaiting(Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.enter_device(); }
  ~DeviceWaiting() { watchdog_.leave_device(); }
  DeviceWaiting(const DeviceWaiting&) = delete;
  DeviceWaiting& operator=(const DeviceWaiting&) = delete;

 private:
  Watchdog& watchdog_;
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

}  // namespace lmx::processes
