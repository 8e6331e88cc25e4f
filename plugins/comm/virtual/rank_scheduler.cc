#include "rank_scheduler.h"

#include "lmx/error.h"

namespace lmx::virtual_ranks {
namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return str("another rank failed: ", e.what());
  } catch (...) {
    return "another rank failed";
  }
}

}  // namespace

Aborted::Aborted(const std::exception_ptr& cause) : std::runtime_error(message_of(cause)) {}

RankScheduler::RankScheduler(int ranks, int slots) : slots_(static_cast<size_t>(ranks)), free_(slots) {}

void RankScheduler::queue(int rank) {
  Slot& seat = slots_[static_cast<size_t>(rank)];
  if (seat.running || seat.queued || seat.left) return;
  seat.queued = true;
  queue_.push_back(rank);
}

void RankScheduler::hand_out() {
  while (free_ > 0 && !queue_.empty()) {
    Slot& seat = slots_[static_cast<size_t>(queue_.front())];
    queue_.pop_front();
    seat.queued = false;
    seat.running = true;
    --free_;
    seat.called.notify_one();
  }
}

void RankScheduler::enter(int rank) {
  std::unique_lock lock(mutex_);
  Slot& seat = slots_[static_cast<size_t>(rank)];
  queue(rank);
  hand_out();
  seat.called.wait(lock, [&] { return seat.running; });
}

void RankScheduler::leave(int rank, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  Slot& seat = slots_[static_cast<size_t>(rank)];
  seat.running = false;
  seat.left = true;
  ++free_;
  if (error && !error_) {
    error_ = error;
    for (size_t r = 0; r < slots_.size(); ++r)
      if (slots_[r].waits_for) queue(static_cast<int>(r));
  }
  hand_out();
  check_deadlock();
}

void RankScheduler::wait(int rank, std::unique_lock<std::mutex>& lock, const char* what,
                         const std::function<bool()>& ready) {
  Slot& seat = slots_[static_cast<size_t>(rank)];
  while (!ready()) {
    if (error_) throw Aborted(error_);
    seat.waits_for = what;
    seat.running = false;
    ++free_;
    hand_out();
    check_deadlock();
    seat.called.wait(lock, [&] { return seat.running; });
    seat.waits_for = nullptr;
  }
}

void RankScheduler::wake(int rank) {
  if (slots_[static_cast<size_t>(rank)].waits_for) queue(rank);
  hand_out();
}

// No rank runs or can run: the calls of the ranks do not match.
void RankScheduler::check_deadlock() {
  if (error_ || !queue_.empty()) return;
  std::string waiting;
  for (size_t r = 0; r < slots_.size(); ++r) {
    const Slot& seat = slots_[r];
    if (seat.running) return;
    if (!seat.left && !seat.waits_for) return;  // has not called enter() yet
    if (seat.waits_for) waiting += str(waiting.empty() ? "" : "; ", "rank ", r, " in ", seat.waits_for);
  }
  if (waiting.empty()) return;
  error_ = std::make_exception_ptr(InternalError(str("[comm] the ranks wait for each other: ", waiting)));
  for (size_t r = 0; r < slots_.size(); ++r) queue(static_cast<int>(r));
  hand_out();
}

}  // namespace lmx::virtual_ranks
