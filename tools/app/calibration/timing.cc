#include "app/calibration/timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "app/calibration/rehearsal.h"
#include "app/datasets/open.h"
#include "app/memory/batch_fit.h"
#include "app/memory/counted.h"
#include "app/memory/memory_check.h"
#include "app/records/records.h"
#include "backend/cuda.h"
#include "base/clock.h"
#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/parallel.h"

namespace lmx::app::calibration {
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
  return median(std::move(times));
}

namespace {

constexpr double kWindow = 1.0;  // seconds of passes of one shape
constexpr int kLeast = 3, kMost = 7;
constexpr int kAhead = 8;         // passes of a GPU without a wait
constexpr double kTick = 0.5e-6;  // seconds between two times that a GPU tells apart

struct PassTime {
  double forward = 0, both = 0;
};

class Passes {
 public:
  Passes(Communicator& comm, const Recipe& recipe, const Outline& outline)
      : outline_(outline), ctx_(make_context(recipe, comm)), batch_(batch_of(outline, comm.rank())) {
    ctx_.tape = &tape_;
    add_parameters(ctx_, params_, outline.network, recipe.seed);
  }

  // Chooses the rows for the loss, as the first part of a step. Returns whether there are any.
  bool begin_step() {
    outline_.sync->begin_step(ctx_, params_, std::span(&batch_, 1), plan_);
    return !plan_.rows.empty();
  }

  // The time of the slowest rank.
  PassTime run() {
    ctx_.comm->barrier();
    const PassTime own = ctx_.device.kind == Device::Kind::cpu ? on_cpu() : on_device();
    params_.clear_gradients();
    const double numbers[] = {own.forward, own.both};
    const std::vector<double> all = ctx_.comm->gather_numbers(numbers, "calibration");
    PassTime slowest;
    for (size_t i = 0; i < all.size(); i += 2) {
      slowest.forward = std::max(slowest.forward, all[i]);
      slowest.both = std::max(slowest.both, all[i + 1]);
    }
    return slowest;
  }

 private:
  // Forward and backward of this rank. `between` is called after forward.
  void compute(const std::function<void()>& between) {
    ModelState state = outline_.network.initial_state(ctx_, batch_.sequences());
    LossTerms terms(loss_terms(*outline_.network.model));
    const Var features = forward_training(*outline_.network.model, ctx_, params_, batch_, state, terms);
    const Tensor targets = batch_.targets.reshape({batch_.tokens()});
    const LossValue loss = outline_.network.loss->forward(ctx_, params_, features, targets, plan_);
    between();
    tape_.backward(ctx_, terms.total(ctx_, loss.loss), 1 / static_cast<double>(batch_.tokens()));
  }

  PassTime on_cpu() {
    const auto begin = Clock::now();
    PassTime own;
    compute([&] { own.forward = seconds_since(begin); });
    own.both = seconds_since(begin);
    return own;
  }

  // The mean of passes that follow each other. The last one has the part of forward.
  PassTime on_device() {
    CudaDevice& device = cuda_device(ctx_.device);
    std::shared_ptr<const StreamPoint> first, middle;
    const auto begin = Clock::now();
    for (int i = 0; i < kAhead; ++i) {
      params_.clear_gradients();
      first = device.point();
      compute([&] { middle = device.point(); });
    }
    const std::shared_ptr<const StreamPoint> last = device.point();
    finish_work(ctx_);
    const double both = seconds_since(begin) / kAhead;
    return {both * middle->seconds_since(*first) / std::max(last->seconds_since(*first), kTick), both};
  }

  static Batch batch_of(const Outline& outline, int rank) {
    return random_batch(outline, outline.shares.forward_tokens, static_cast<uint64_t>(2 * rank + 1));
  }

  const Outline& outline_;
  Context ctx_;
  Tape tape_;
  ParameterStore params_;
  Batch batch_;
  StepPlan plan_;
};

bool fits(const Recipe& recipe, const Outline& outline, Device device, int ranks_here) {
  const RankMemory rank = count_rank(recipe, outline.batch, {device.kind, outline.shares.ranks, 0}).memory;
  const int64_t have = memory_of(device);
  return have == 0 || (rank.total() - rank.of(MemClass::optimizer)) * ranks_here < have / 2;
}

// The largest size of a pass that fits() on this rank; the least one, if none does.
int64_t largest_size(const Recipe& recipe, const FitSizes& sizes, Outline& outline, Device device, int ranks_here) {
  Recipe own = recipe;
  const int64_t size = sizes.largest([&](const BatchConfig& batch) {
    own.batch = batch;
    outline.shares = shares_of(own, outline.batch, outline.shares.ranks);
    return fits(own, outline, device, ranks_here);
  });
  return std::max(size, sizes.least());
}

bool is_known(const std::vector<plan::MeasuredPass>& known, const plan::MeasuredPass& pass) {
  return std::any_of(known.begin(), known.end(), [&](const plan::MeasuredPass& k) {
    return k.network == pass.network && k.rules == pass.rules && k.tokens == pass.tokens && k.length == pass.length;
  });
}

}  // namespace

int64_t memory_of(Device device) {
  return device.kind == Device::Kind::cpu ? machine_memory().bytes : cuda_device_info(device.index).memory;
}

Recipe with_measured_batch(const Context& ctx, const Recipe& recipe, int ranks_here) {
  if (recipe.batch.fit != "memory") return recipe;
  Communicator& comm = *ctx.comm;
  Outline outline = outline_of(recipe, comm.size(), comm.size());
  const int64_t tokens =
      recipe.batch.global == 0 ? check_dataset(recipe.data).train_tokens.value_or(kUnknownTokens) : 0;
  const FitSizes sizes(recipe, outline.batch, comm.size(), tokens);
  const auto own = static_cast<double>(largest_size(recipe, sizes, outline, ctx.device, ranks_here));
  const std::vector<double> all = comm.gather_numbers(std::span(&own, 1), "calibration");
  Recipe chosen = recipe;
  chosen.batch = sizes.batch(std::llround(*std::min_element(all.begin(), all.end())));
  return chosen;
}

std::optional<plan::MeasuredPass> measure_pass(const Context& ctx, const Recipe& recipe, const Outline& outline,
                                               const std::vector<plan::MeasuredPass>& known, int ranks_here) {
  plan::MeasuredPass pass{plan::pass_text(recipe), "", outline.shares.forward_tokens, outline.shares.length, 0, 0};
  plan::MeasuredPass with_rules = pass;
  with_rules.rules = plan::rules_text(recipe);
  if (is_known(known, pass) || is_known(known, with_rules) || !fits(recipe, outline, ctx.device, ranks_here)) return {};
  try {
    Passes passes(*ctx.comm, recipe, outline);
    if (passes.begin_step()) pass = with_rules;
    // The least time: another program that uses the machine only adds to it.
    PassTime least{INFINITY, INFINITY};
    double total = 0;
    for (int n = 0; n < kLeast || (total < kWindow && n < kMost); ++n) {
      const PassTime t = passes.run();
      if (t.both < least.both) least = t;
      total += t.both;
    }
    pass.forward_us = 1e6 * least.forward;
    pass.backward_us = 1e6 * (least.both - least.forward);
  } catch (const UserError&) {
    return {};
  }
  return pass;
}

}  // namespace lmx::app::calibration
