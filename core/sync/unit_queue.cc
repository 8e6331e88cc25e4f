#include "sync/unit_queue.h"

#include <algorithm>
#include <optional>

#include "backend/cuda.h"
#include "lmx/parallel.h"

namespace lmx {

void UnitBytes::add(const std::vector<LedgerEntry>& lines, size_t from) {
  for (; from < lines.size(); ++from) {
    const LedgerEntry& entry = lines[from];
    sent += entry.sent;
    received += entry.received;
    sent_between_nodes += entry.sent_between_nodes;
    received_between_nodes += entry.received_between_nodes;
    collectives += entry.collective == "all_reduce" ? 2 : 1;
  }
}

namespace {

using Moment = UnitQueue::Moment;

CudaDevice* device_of(bool beside, Device device) {
  return beside && device.kind == Device::Kind::cuda ? &cuda_device(device) : nullptr;
}

bool reached(const Moment& moment) {
  return !moment.device || moment.device->reached();
}

// REQUIRES: both are moments of the same queue, and reached.
double seconds(const Moment& from, const Moment& to) {
  if (to.device) return to.device->seconds_since(*from.device);
  return std::chrono::duration<double>(to.host - from.host).count();
}

}  // namespace

UnitQueue::UnitQueue(bool beside, Device device)
    : device_(device_of(beside, device)), at_once_(beside && device.counts) {
  if (beside && !at_once_) thread_ = std::thread([this] { work(); });
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

Moment UnitQueue::now() const {
  return {std::chrono::steady_clock::now(), device_ ? device_->point() : nullptr};
}

void UnitQueue::begin_step() {
  const std::lock_guard lock(mutex_);
  count_times();
  done_.clear();
  drains_.clear();
  counted_jobs_ = counted_drains_ = 0;
  start_ = now();
}

void UnitQueue::post(Moment ready, std::function<void()> job, std::vector<Tensor> used) {
  posted_ = true;
  if (at_once_) return run_one({std::move(job), std::move(ready), {}, {}});
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    if (device_)
      for (const Tensor& t : used) shares_.push_back(device_->share(t, WorkStream::exchange));
    used.clear();  // so that the job holds the last reference, unless another one lives longer than this call
    jobs_.push_back({std::move(job), std::move(ready), {}, {}});
  }
  changed_.notify_all();
}

void UnitQueue::run_one(Job job) {
  std::exception_ptr error;
  try {
    if (device_) device_->wait_for(*job.ready.device);
    job.begin = now();
    std::exchange(job.run, nullptr)();
    job.end = now();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (error) {
    error_ = error;
    jobs_.clear();
  } else {
    done_.push_back(std::move(job));
  }
}

void UnitQueue::work() {
  set_num_threads(1);  // the cores belong to backward
  std::optional<OnStream> exchange;
  if (device_) exchange.emplace(WorkStream::exchange);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    run_one(std::move(job));
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void UnitQueue::drain() {
  if (!std::exchange(posted_, false)) return;
  Moment begin = now();
  std::unique_lock lock(mutex_);
  while (!thread_.joinable() && !jobs_.empty()) {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    run_one(std::move(job));
    lock.lock();
  }
  changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  {
    std::optional<OnStream> exchange;
    if (device_) exchange.emplace(WorkStream::exchange);
    drains_.emplace_back(std::move(begin), now());
  }
  if (device_) device_->wait_for(*drains_.back().second.device);
  shares_.clear();
}

// Adds the times that are not counted yet, up to the first one that the device has not reached.
void UnitQueue::count_times() {
  for (; counted_jobs_ < done_.size() && reached(done_[counted_jobs_].end); ++counted_jobs_)
    times_.busy += seconds(done_[counted_jobs_].begin, done_[counted_jobs_].end);
  for (; counted_drains_ < drains_.size(); ++counted_drains_) {
    const auto& [begin, end] = drains_[counted_drains_];
    if (!reached(begin) || !reached(end)) return;
    times_.exposed += std::max(0.0, seconds(start_, end) - seconds(start_, begin));
  }
}

CommTimes UnitQueue::take_times() {
  const std::lock_guard lock(mutex_);
  count_times();
  return std::exchange(times_, {});
}

std::vector<UnitQueue::JobTime> UnitQueue::job_times() const {
  const std::lock_guard lock(mutex_);
  std::vector<JobTime> times;
  for (const Job& job : done_) {
    const bool known = reached(job.ready) && reached(job.end);
    times.push_back(known ? JobTime{seconds(start_, job.ready), seconds(start_, job.begin), seconds(start_, job.end)}
                          : JobTime{});
  }
  return times;
}

}  // namespace lmx
