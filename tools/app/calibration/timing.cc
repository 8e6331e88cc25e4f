#include "app/calibration/timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "app/records/median.h"
#include "backend/cuda.h"
#include "base/clock.h"
#include "lmx/parallel.h"

namespace lmx::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSpin = 0.3;         // seconds: many times as long as a scheduler lets one thread run
constexpr double kDeviceSpin = 0.05;  // a GPU is not shared

double mean_s(const std::function<void()>& body) {
  const auto begin = Clock::now();
  int calls = 0;
  do {
    body();
    ++calls;
  } while (seconds_since(begin) < kSpin);
  return seconds_since(begin) / calls;
}

// Twice as many calls after each wait as before it.
double mean_on_device_s(const Context& ctx, const std::function<void()>& body) {
  finish_work(ctx);
  const auto begin = Clock::now();
  int64_t calls = 0;
  do {
    for (const int64_t until = 2 * calls + 1; calls < until; ++calls) body();
    finish_work(ctx);
  } while (seconds_since(begin) < kDeviceSpin);
  return seconds_since(begin) / static_cast<double>(calls);
}

// The mean of the ranks' numbers.
double mean_of_ranks(Communicator& comm, double own) {
  const std::vector<double> all = comm.gather_numbers(std::span(&own, 1), "calibration");
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

}  // namespace

double seconds_of_mean_rate(Communicator& comm, double own) {
  return 1 / mean_of_ranks(comm, 1 / own);
}

double together_s(const Context& ctx, const std::function<void()>& body) {
  const bool device = ctx.device.kind != Device::Kind::cpu;
  body();              // the first call allocates memory
  if (device) body();  // the second one records loops as graphs
  ctx.comm->barrier();
  return seconds_of_mean_rate(*ctx.comm, device ? mean_on_device_s(ctx, body) : mean_s(body));
}

void finish_work(const Context& ctx) {
  if (ctx.device.kind != Device::Kind::cpu) cuda_device(ctx.device).fence()->wait();
}

double stretch_of(Communicator& comm, const std::function<void()>& body) {
  body();
  comm.barrier();
  const auto begin = Clock::now();
  const double cpu = thread_cpu_s();
  mean_s(body);
  return seconds_of_mean_rate(comm, seconds_since(begin) / (thread_cpu_s() - cpu));
}

Beside beside_s(Communicator& comm, const std::function<void()>& body, const std::function<void()>& beside) {
  body();
  comm.barrier();
  std::atomic<bool> ended{false};
  Beside result;
  std::thread other([&] {
    set_num_threads(1);  // as the thread of a run that exchanges gradients
    const auto begin = Clock::now();
    beside();
    result.seconds = seconds_since(begin);
    ended = true;
  });
  const auto begin = Clock::now();
  double last = 0;
  int calls = 0;
  while (!ended || calls == 0) {
    last = seconds_since(begin);
    body();
    ++calls;
  }
  other.join();
  // The last call began inside `beside`, but may have ended after it.
  const double took = seconds_since(begin) - last;
  result.calls = calls - 1 + std::clamp((result.seconds - last) / std::max(took, 1e-9), 0.0, 1.0);
  return {mean_of_ranks(comm, result.seconds), mean_of_ranks(comm, result.calls)};
}

double between_barriers_s(Communicator& comm, const std::function<void()>& body, int calls) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    comm.barrier();
    const auto begin = Clock::now();
    body();
    const double own = seconds_since(begin);
    comm.barrier();
    const double all = seconds_since(begin);
    const auto alone = Clock::now();
    comm.barrier();
    times.push_back(std::max(all - seconds_since(alone), own));
  }
  return lmx_cli::median(std::move(times));
}

}  // namespace lmx::plan
