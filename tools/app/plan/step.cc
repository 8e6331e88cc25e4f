#include "app/plan/step.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <queue>

#include "app/plan/work.h"
#include "lmx/error.h"
#include "sync/server/worker_clock.h"

namespace lmx::app::plan {
namespace {

// The standard normal distribution.
double below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// The mean of the largest of n draws from it: the integral of (1 - P(x)^n) over x > 0, minus that of P(x)^n over x < 0.
double mean_of_largest(int n) {
  constexpr double kStep = 0.005, kEnd = 9;
  double sum = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep)
    sum += kStep * ((1 - std::pow(below(x), n)) - std::pow(below(-x), n));
  return sum;
}

}  // namespace

double Spread::slowest(int ranks, double passes) const {
  if (ranks < 2 || relative <= 0) return 1;
  return 1 + relative / std::sqrt(passes) * mean_of_largest(ranks);
}

StepTime step_time(const Work& work, const std::vector<UnitWork>& units, int ranks, const Spread& spread,
                   bool overlap) {
  const double factor = spread.slowest(ranks, work.passes), passes = work.passes;
  const double mean = passes * (work.forward_s + work.backward_s);
  double ended = mean * factor;
  const double backward = ended - work.backward_s;  // begin of the last backward on the slowest rank
  StepTime t;
  double free = 0, stall = 0, gathered = 0, gather_delay = 0;  // of the last pass
  for (const UnitWork& unit : units) {
    const double shift = t.delay_s + stall;
    const double until = (unit.needed_s ? backward + *unit.needed_s : ended) + shift;  // what it may be beside
    const double ready = overlap ? backward + std::min(unit.ready_s, work.backward_s) + shift : until;
    const double alone = unit.transfer_s + unit.local_s, begin = std::max(free, ready);
    const double shared = alone + unit.beside * unit.local_s;  // beside a computation that needs the same core
    double part = 0;                                           // of the exchange that is beside backward
    if (overlap && shared > 0) part = std::clamp((until - begin) / shared, 0.0, 1.0);
    const double seconds = part * shared + (1 - part) * alone;
    free = begin + seconds;
    t.comm_s += seconds;
    t.delay_s += part * unit.delay_s;
    if (!unit.needed_s) continue;
    gathered += seconds;
    gather_delay += part * unit.delay_s;
    stall += std::max(0.0, free - until);
  }
  t.exposed_s = std::max(0.0, free - (ended + t.delay_s + stall)) + passes * stall;
  t.comm_s += (passes - 1) * gathered;
  t.delay_s += (passes - 1) * gather_delay;
  ended += t.delay_s;
  t.wait_s = mean * (factor - 1);
  t.compute_s = ended + work.update_s;
  return t;
}

namespace {

constexpr int64_t kSteps = 20'000, kMostSteps = 2'000, kLeastSteps = 4;
constexpr int64_t kWarmUp = 4;  // the first quarter of the steps does not count: queues are filling
// Messages before the data of a pull and of a push: a question for the turn and its answer; the request.
constexpr double kPullLatencies = 4, kPushLatencies = 2;

double mean_of(const std::vector<std::vector<double>>& lines) {
  double sum = 0, n = 0;
  for (const std::vector<double>& line : lines) {
    sum = std::accumulate(line.begin(), line.end(), sum);
    n += static_cast<double>(line.size());
  }
  return sum / n;
}

ServerMessage message_of(double bytes, double shard_s, int ranks, const LinksConfig& links) {
  if (ranks == 1) return {0, 0, shard_s};
  const double across = bytes * crossing_part(ranks, std::min<int64_t>(links.ranks_per_node, ranks));
  // The links that ranks share are queues of the simulation, so this is the time of one message alone.
  return {links.inside_s(links.shared && !links.staged ? bytes - across : bytes, 1), links.network.seconds(across),
          shard_s};
}

// A queue for the messages of some workers.
class Link {
 public:
  // Returns when a message that arrives at `now` is through.
  double pass(double now, double seconds) { return free_ = std::max(free_, now) + seconds; }

 private:
  double free_ = 0;
};

class Simulation {
 public:
  Simulation(const WorkerStep& step, const WorkerTimes& times, const LinksConfig& links)
      : step_(step),
        times_(times),
        per_link_(links.shared ? static_cast<size_t>(links.ranks_per_node) : 1),
        per_node_(static_cast<size_t>(links.ranks_per_node)),
        staged_(links.staged),
        workers_(times.relative.size()),
        links_(workers_.size() / per_link_ + 1),
        nodes_(workers_.size() / per_node_ + 1) {}

  WorkersTime run() {
    if (times_.order.empty()) {
      for (size_t w = 0; w < workers_.size(); ++w) next_.push({0, w});
      while (!next_.empty()) {
        const auto [time, w] = next_.top();
        next_.pop();
        event(w, time);
      }
    } else {
      for (const int32_t e : times_.order) {
        Worker& worker = workers_[static_cast<size_t>(e / 2)];
        if (worker.steps == steps_of(worker)) break;
        turn_ = std::max(turn_, worker.ready);
        event(static_cast<size_t>(e / 2), turn_);
      }
    }
    return result();
  }

 private:
  struct Worker {
    double ready = 0;                    // when its next event is due
    double begun = 0, ended = 0;         // of the steps whose time counts
    double computed = 0, computing = 0;  // seconds of these steps; of the present step
    int64_t steps = 0, counted = 0, seen = 0;
    bool pulled = false;
  };
  using Next = std::pair<double, size_t>;

  const std::vector<double>& relative(const Worker& w) const {
    return times_.relative[static_cast<size_t>(&w - workers_.data())];
  }
  int64_t steps_of(const Worker& w) const { return static_cast<int64_t>(relative(w).size()); }

  void event(size_t w, double now) {
    Worker& worker = workers_[w];
    ++events_;
    if (worker.pulled)
      push(worker, w, now);
    else
      pull(worker, w, now);
    if (times_.order.empty() && worker.steps < steps_of(worker)) next_.push({worker.ready, w});
  }

  // When a message that is sent at `now` has passed the links. It uses them at the same time, unless it is staged.
  double through(size_t w, const ServerMessage& message, double now) {
    const double inside = links_[w / per_link_].pass(now, message.node_s);
    const double across = nodes_[w / per_node_].pass(staged_ ? inside : now, message.network_s);
    return std::max(inside, across);
  }

  void pull(Worker& worker, size_t w, double now) {
    if (worker.steps == steps_of(worker) / kWarmUp) worker.begun = worker.ended = now;
    worker.seen = updates_;
    worker.pulled = true;
    const double replied = shard_.pass(now + (kPullLatencies - 1) * step_.latency_s, step_.pull.shard_s);
    const double arrived = through(w, step_.pull, replied) + step_.latency_s;
    worker.computing = step_.compute_s * relative(worker)[static_cast<size_t>(worker.steps)];
    worker.ready = arrived + step_.local_s + worker.computing;
  }

  void push(Worker& worker, size_t w, double now) {
    staleness_ += static_cast<double>(updates_ - worker.seen);
    most_stale_ = std::max(most_stale_, updates_ - worker.seen);
    ++updates_;
    worker.pulled = false;
    const double asked = now + kPushLatencies * step_.latency_s;
    shard_.pass(through(w, step_.push, asked) + step_.latency_s, step_.push.shard_s);
    worker.ready = asked;
    if (worker.steps++ >= steps_of(worker) / kWarmUp && !done_) {
      ++worker.counted;
      worker.computed += worker.computing;
      worker.ended = worker.ready;
    }
    // From here on, fewer workers use the links. A replay ends as its run did.
    done_ = done_ || (times_.order.empty() && worker.steps == steps_of(worker));
  }

  WorkersTime result() const {
    WorkersTime t;
    double computed = 0, expected = 0, steps = 0;
    for (const Worker& w : workers_) {
      if (w.counted == 0 || w.ended <= w.begun) continue;
      const auto n = static_cast<double>(w.counted);
      t.updates_s += n / (w.ended - w.begun);
      computed += w.computed;
      expected += n * step_.compute_s * mean_of({relative(w)});
      steps += n;
    }
    const double measured_s = static_cast<double>(workers_.size()) / t.updates_s;
    t.exposed_s = std::max(0.0, measured_s - computed / steps);
    t.step_s = t.exposed_s + expected / steps;  // without the chance that the counted steps are shorter than all
    t.updates_s = static_cast<double>(workers_.size()) / t.step_s;
    t.staleness = staleness_ / static_cast<double>(updates_);
    t.most_stale = most_stale_;
    t.events = events_;
    return t;
  }

  const WorkerStep& step_;
  const WorkerTimes& times_;
  size_t per_link_, per_node_;
  bool staged_;
  std::vector<Worker> workers_;
  std::vector<Link> links_, nodes_;
  Link shard_;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next_;
  double turn_ = 0, staleness_ = 0;
  int64_t updates_ = 0, most_stale_ = 0, events_ = 0;
  bool done_ = false;
};

}  // namespace

WorkerStep WorkerStep::of(const WorkerBytes& bytes, int ranks, const DeviceConfig& device, const LinksConfig& links,
                          double update_s) {
  // `others` leaves out the shard that a rank has itself. A server that is no rank sends and receives all of it.
  const double g = ranks, whole = links.central_server && ranks > 1 ? g / (g - 1) : 1,
               shards = links.central_server ? 1 : g;
  const ServerBytes& others = bytes.others;
  const double replied = whole * static_cast<double>(others.replied),
               pushed = whole * static_cast<double>(others.pushed);
  // A worker's part of the traffic in memory, or the shards': what is sent is read or written, and so are the
  // gradients.
  const double half =
      ranks == 1 ? 0 : static_cast<double>(others.requested + others.replied + others.pushed + bytes.pushed_values);
  WorkerStep step;
  step.local_s = device.memory_s(half + 2 * static_cast<double>(bytes.own_replied));
  step.pull = message_of(replied, device.memory_s(replied) / shards, ranks, links);
  const double decoded = std::max(0.0, half - replied);
  step.push = message_of(pushed, (device.memory_s(decoded) + update_s) / shards, ranks, links);
  const bool one_node = ranks <= links.ranks_per_node;
  if (ranks > 1) step.latency_s = (one_node ? links.node : links.network).latency_s();
  return step;
}

WorkerTimes WorkerTimes::of(const ServerConfig& config, int ranks, int64_t steps, int64_t seed) {
  const auto files = std::make_shared<const ClockFiles>(config, ranks);
  const RandomKey key = RandomKey(static_cast<uint64_t>(seed)).fold("delay");  // as in a run
  WorkerTimes times;
  if (!config.replay.empty()) {
    times.order = files->events;
    times.relative.resize(static_cast<size_t>(ranks));
    for (const int32_t event : times.order)
      if (event % 2 == 1) times.relative[static_cast<size_t>(event / 2)].push_back(1);
    for (int r = 0; r < ranks; ++r)
      if (times.relative[static_cast<size_t>(r)].empty())
        throw UserError(str("[plan] the schedule ", config.replay, " has no complete step of worker ", r));
    return times;
  }
  times.relative.assign(static_cast<size_t>(ranks), std::vector<double>(static_cast<size_t>(steps), 1.0));
  for (int r = 0; r < ranks; ++r) {
    const WorkerClock clock(config, files, key, r, ranks);
    for (int64_t s = 0; s < steps; ++s)
      times.relative[static_cast<size_t>(r)][static_cast<size_t>(s)] = clock.push(s, 0);
  }
  const double mean = mean_of(times.relative);
  for (std::vector<double>& line : times.relative)
    for (double& value : line) value = mean > 0 ? value / mean : 1;
  return times;
}

int64_t simulated_steps(int ranks) {
  return std::clamp(kSteps / ranks, kLeastSteps, kMostSteps);
}

WorkersTime simulate_workers(const WorkerStep& step, const WorkerTimes& times, const LinksConfig& links) {
  return Simulation(step, times, links).run();
}

}  // namespace lmx::app::plan
