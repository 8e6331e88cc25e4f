#include "watchdog.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"

namespace lmx::processes {
namespace {

// After the launcher's warning, heartbeats are sent every kAlarmBeat seconds. The other two are multiples of
// warned_silence_s: a rank that is found silent before the first is the lost one. Between the first and the second the
// launcher ends the job, and ranks that vanish are ignored.
constexpr double kAlarmBeat = 0.1, kAlarmDiagnosis = 3, kAlarmEnd = 12;

// The signal handler, on any thread, counts warnings; the watchdog's thread reads the count. Handlers must be
// lock-free.
std::atomic<int> g_warnings{0};
static_assert(std::atomic<int>::is_always_lock_free);
extern "C" void note_warning(int) {
  g_warnings.fetch_add(1, std::memory_order_relaxed);
}

// Seconds between a rank's announcement that it will report and its report; and between its report and the first exit.
// After an exit, mpirun may not read the remaining output.
constexpr double kToHearOthers = 0.2, kToBeRead = 0.5;

// Seconds for which a failing rank that does not report waits before it exits, so that the reporting rank exits first.
constexpr double kForTheReport = 2;

// A rank that fails this long after another does not report, because the other has reported or is about to. A failing
// rank waits longer than that for lower ranks, so that exactly one rank reports.
constexpr double kSameFailure = 1, kToHearLower = 1.8;

// A device is waited for in every step, and most waits are part of computing.
constexpr double kLongDeviceWait = 1;

// How long a rank waits before it ends because of another one, so that the other one reports first.
constexpr timespec kTimeToReport{4, 0};

// Seconds that this rank has to end by itself after another rank has announced its failure.
constexpr double kSecondsToEnd = 10;

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

Watchdog::Watchdog(int rank, std::unique_ptr<BeatLink> beats, const std::vector<Placement>& placements,
                   const Settings& settings)
    : rank_(rank),
      beats_(std::move(beats)),
      hosts_(hosts_of(placements)),
      settings_(settings),
      poll_s_(std::min(0.1, settings.heartbeat_s / 2)),
      heard_(placements.size(), 0.0),
      peers_(placements.size()),
      lost_(placements.size(), false),
      moved_(Clock::now()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      time_(5 * poll_s_) {
  if (settings_.warned_silence_s > 0) {
    struct sigaction action {};
    action.sa_handler = note_warning;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGCONT, &action, nullptr);
    warnings_ = g_warnings;
  }
  const Placement& own = placements[static_cast<size_t>(rank_)];
  for (const Placement& other : placements) processes_.push_back(&other == &own ? -1 : open_process(own, other));
  thread_ = std::thread([this] { loop(); });
}

Watchdog::~Watchdog() {
  stop();
  for (const int process : processes_)
    if (process >= 0) close(process);
  close(wake_);
}

void Watchdog::end_if_another_failed() const {
  const int rank = failed_rank_;
  if (rank < 0) return;
  nanosleep(&kTimeToReport, nullptr);
  throw EndProcess(1, str("[", settings_.name, "] rank ", rank, " of ", peers_.size(), " has failed"), true);
}

void Watchdog::note_lost(int rank) {
  if (processes_[static_cast<size_t>(rank)] >= 0) return;
  const std::lock_guard lock(mutex_);
  lost_[static_cast<size_t>(rank)] = true;
}

void Watchdog::lost_connection(const std::string& what) const {
  const double limit = settings_.limits.silence_s + kSecondsToEnd;
  for (const auto start = Clock::now(); seconds_between(start, Clock::now()) < limit;) {
    end_if_another_failed();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw RunError(str("[", settings_.name, "] ", what));
}

void Watchdog::on_failure(const void* owner, std::function<void()> interrupt) {
  const std::lock_guard lock(interrupt_mutex_);
  if (interrupt && failed_rank_ >= 0) interrupt();
  if (interrupt)
    interrupts_[owner] = std::move(interrupt);
  else
    interrupts_.erase(owner);
}

void Watchdog::enter(Move move) {
  const std::lock_guard lock(mutex_);
  own_.move = move;
  if (is_collective(move)) ++own_.collectives;
  moved_ = Clock::now();
}

void Watchdog::leave() {
  const std::lock_guard lock(mutex_);
  own_.move = Move::none;
  moved_ = Clock::now();
}

void Watchdog::progress() {
  const std::lock_guard lock(mutex_);
  moved_ = Clock::now();
}

void Watchdog::enter_device() {
  const std::lock_guard lock(mutex_);
  if (device_waits_++ == 0) device_since_ = Clock::now();
}

void Watchdog::leave_device() {
  const std::lock_guard lock(mutex_);
  --device_waits_;
}

bool Watchdog::fail() {
  const bool late = another_has_spoken_;
  {
    const std::lock_guard lock(mutex_);
    own_.failed = late ? 2 : 1;
  }
  hurry_ = true;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
  if (late || rank_ == 0) return !late;
  const auto start = Clock::now();
  while (!lower_speaks_ && seconds_between(start, Clock::now()) < kToHearLower)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !lower_speaks_;
}

void Watchdog::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
  thread_.join();
}

void Watchdog::drain() {
  beats_->drain();
}

void Watchdog::loop() {
  while (!stop_) {
    pause();
    advance_clock();
    watch_launcher();
    receive();
    note_failures();
    const bool now = hurry_.exchange(false);
    if (now || clock_ >= next_beat_) send(now);
    consider();
  }
  if (own_beat().failed) announce_failure();
  flush(0.5);
}

// Waits until the next poll, or until a process of this host ends.
void Watchdog::pause() {
  std::vector<pollfd> events{{wake_, POLLIN, 0}};
  std::vector<Peer*> whose{nullptr};
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (processes_[r] < 0 || peers_[r].ended) continue;
    events.push_back({processes_[r], POLLIN, 0});
    whose.push_back(&peers_[r]);
  }
  if (poll(events.data(), events.size(), static_cast<int>(poll_s_ * 1000)) <= 0) return;
  uint64_t count = 0;
  if (events[0].revents) static_cast<void>(!read(wake_, &count, sizeof count));
  for (size_t i = 1; i < events.size(); ++i)
    if (events[i].revents) whose[i]->ended = true;
}

// Neither the silence of others nor this rank's own wait includes the time in which the process was stopped.
void Watchdog::advance_clock() {
  time_.advance();
  clock_ = time_.seconds();
  if (time_.stopped_s() == 0) return;
  const auto stopped = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time_.stopped_s()));
  const std::lock_guard lock(mutex_);
  moved_ = std::min(time_.last(), moved_ + stopped);
  device_since_ = std::min(time_.last(), device_since_ + stopped);
}

// A rank that was itself stopped has received the SIGCONT that continued it, which is not a warning.
void Watchdog::watch_launcher() {
  if (alarm_since_ >= 0 && clock_ - alarm_since_ > kAlarmEnd * settings_.warned_silence_s) alarm_since_ = -1;
  const int warnings = g_warnings;
  if (warnings == warnings_) return;
  warnings_ = warnings;
  if (time_.gap_s() > settings_.warned_silence_s) return;
  alarm_since_ = clock_;
  hurry_ = true;
}

void Watchdog::receive() {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r == rank_) continue;
    const auto i = static_cast<size_t>(r);
    while (beats_->receive(r, peers_[i].beat)) heard_[i] = clock_;
    peers_[i].silent_s = clock_ - heard_[i];
    if (beats_->is_lost(r)) note_lost(r);
    const std::lock_guard lock(mutex_);
    if (lost_[i]) peers_[i].ended = true;
  }
  peers_[static_cast<size_t>(rank_)].beat = own_beat();
}

void Watchdog::send(bool now) {
  const Beat beat = own_beat();
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r)
    if (r != rank_ && !beats_->send(r, beat) && now) hurry_ = true;  // repeated at the next poll
  next_beat_ = clock_ + (alarm_since_ >= 0 ? std::min(kAlarmBeat, settings_.heartbeat_s) : settings_.heartbeat_s);
}

Beat Watchdog::own_beat() {
  const std::lock_guard lock(mutex_);
  Beat beat = own_;
  beat.number = ++own_.number;
  const auto now = Clock::now();
  beat.still_s = seconds_between(moved_, now);
  const double device_s = device_waits_ > 0 ? seconds_between(std::max(moved_, device_since_), now) : 0;
  if (beat.move == Move::none && device_s > kLongDeviceWait) {
    beat.move = Move::device;
    beat.still_s = device_s;
  }
  return beat;
}

// An earlier heartbeat may still be on its way to some rank, so the announcement is repeated until all have accepted
// it. A rank that is stopped or cut off does not.
void Watchdog::announce_failure() {
  const auto start = Clock::now();
  do {
    hurry_ = false;
    send(true);
    if (hurry_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (hurry_ && seconds_between(start, Clock::now()) < kToHearOthers);
}

bool Watchdog::flush(double seconds) {
  for (const auto start = Clock::now(); !beats_->all_sent();) {
    if (seconds_between(start, Clock::now()) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// If two ranks announce a report at the same time, the lower rank reports.
bool Watchdog::has_the_word() {
  for (double waited = 0; waited < kToHearOthers; waited += 0.01) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    receive();
    for (size_t r = 0; r < static_cast<size_t>(rank_); ++r)
      if (peers_[r].beat.failed) return false;
  }
  return true;
}

// A process of this host that counts as lost must not continue while the job ends: it would resume a run that has
// ended, and report missing ranks.
void Watchdog::end_silent() {
  if (verdict_.kind != Diagnosis::silent) return;
  for (const int r : verdict_.ranks) {
    const int process = processes_[static_cast<size_t>(r)];
    if (process >= 0) syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0);
  }
}

// Exits without the rank's own thread, which waits for a message or computes, and cannot react.
void Watchdog::end_job(const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    own_.failed = 1;
  }
  announce_failure();
  if (has_the_word()) {
    const std::string text = str("[", settings_.name, "] ", message);
    log(LogLevel::error, text + "; the run ends");
    leave_termination_note(text);
    std::this_thread::sleep_for(std::chrono::duration<double>(kToBeRead));
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(kForTheReport));
  }
  end_silent();
  _exit(1);
}

void Watchdog::note_failures() {
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (static_cast<int>(r) == rank_ || peers_[r].beat.failed != 1) continue;
    if (first_failure_ < 0) first_failure_ = clock_;
    if (static_cast<int>(r) < rank_) lower_speaks_ = true;
  }
  if (first_failure_ >= 0 && clock_ - first_failure_ > kSameFailure) another_has_spoken_ = true;
}

Diagnosis Watchdog::look() {
  if (alarm_since_ < 0) return diagnose(rank_, peers_, settings_.limits);
  std::vector<Peer> since = peers_;
  for (Peer& p : since) p.silent_s = std::min(p.silent_s, clock_ - alarm_since_);
  const Diagnosis v = diagnose(rank_, since, {settings_.warned_silence_s, 0, true});
  const bool fresh = clock_ - alarm_since_ < kAlarmDiagnosis * settings_.warned_silence_s;
  return v.kind == Diagnosis::failed || fresh ? v : Diagnosis{};
}

void Watchdog::consider() {
  if (peers_[static_cast<size_t>(rank_)].beat.failed) return;  // this rank reports its own error
  const Diagnosis v = look();
  if (v.kind == Diagnosis::failed) {
    failed_rank_ = v.ranks[0];
    if (failed_since_ < 0) {
      failed_since_ = clock_;
      const std::lock_guard lock(interrupt_mutex_);
      for (const auto& [owner, interrupt] : interrupts_) interrupt();
    }
    if (clock_ - failed_since_ > kToHearOthers + kToBeRead / 2) end_silent();
    if (clock_ - failed_since_ > kSecondsToEnd) _exit(1);
    return;
  }
  if (v.kind == Diagnosis::fine || v.kind != verdict_.kind) verdict_since_ = clock_;
  verdict_ = v;
  if (v.kind != Diagnosis::fine && clock_ - verdict_since_ >= patience(rank_, peers_, v))
    end_job(sentence(v, rank_, peers_, hosts_));
}

}  // namespace lmx::processes
