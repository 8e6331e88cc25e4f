#include "sync/unit_queue.h"

#include <chrono>

#include "lmx/parallel.h"

namespace lmx::train {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

UnitQueue::UnitQueue(bool beside) {
  if (beside) thread_ = std::thread([this] { work(); });
}

UnitQueue::~UnitQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void UnitQueue::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void UnitQueue::run_one(const std::function<void()>& job) {
  const Clock::time_point start = Clock::now();
  std::exception_ptr error;
  try {
    job();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  times_.busy += since(start);
  if (error) {
    error_ = error;
    jobs_.clear();
  }
}

void UnitQueue::work() {
  set_num_threads(1);  // the cores belong to backward
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    run_one(job);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void UnitQueue::drain() {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  while (!thread_.joinable() && !jobs_.empty()) {
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    run_one(job);
    lock.lock();
  }
  changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
  times_.exposed += since(start);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

CommTimes UnitQueue::take_times() {
  const std::lock_guard lock(mutex_);
  return std::exchange(times_, {});
}

}  // namespace lmx::train
