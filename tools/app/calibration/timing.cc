#include "app/calibration/timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "app/records/median.h"
#include "base/clock.h"
#include "lmx/parallel.h"

namespace lmx::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWindow = 0.3;  // seconds: many times as long as a scheduler lets one thread run
constexpr int kExchanges = 5;

double mean_s(const std::function<void()>& body) {
  const auto begin = Clock::now();
  int calls = 0;
  do {
    body();
    ++calls;
  } while (seconds_since(begin) < kWindow);
  return seconds_since(begin) / calls;
}

}  // namespace

double together_s(Communicator& comm, const std::function<void()>& body) {
  body();  // the first call allocates memory
  comm.barrier();
  const double seconds = mean_s(body);
  comm.barrier();
  return seconds;
}

double alone_s(Communicator& comm, const std::function<void()>& body) {
  body();
  double seconds = 0;
  for (int r = 0; r < comm.size(); ++r) {
    comm.barrier();
    if (r == comm.rank()) seconds = mean_s(body);
  }
  comm.barrier();
  return seconds;
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
  comm.barrier();
  return result;
}

double between_barriers_s(Communicator& comm, const std::function<void()>& body) {
  std::vector<double> times;
  for (int i = 0; i < kExchanges; ++i) {
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
