#include "train/loop/worker_loop.h"

#include <algorithm>

#include "lmx/error.h"
#include "train/signals.h"

namespace lmx {

WorkerLoop::WorkerLoop(RunState& run, RunLog& log, StepRunner& steps, Updater& updater,
                       std::function<void()> validate_and_save)
    : run_(run),
      s_(run.s),
      log_(log),
      steps_(steps),
      updater_(updater),
      meetings_(run, log, std::move(validate_and_save)),
      config_(s_.sync->servers().front()->config()) {}

void WorkerLoop::run() {
  WorkerBoard& board = s_.shared->workers;
  const int64_t last = run_.last_step();
  if (s_.sequences == 0) run_.at.worker.step = last;  // fewer sequences than ranks: this rank only keeps its shard
  board.done[static_cast<size_t>(s_.ctx.rank)] = run_.at.worker.step;
  if (s_.link) start_link();
  s_.comm.barrier();
  while (run_.at.worker.step < last && !run_.ending()) work();
  while (run_.at.step < last && !run_.ending()) {
    if (s_.link) my_turn(server::Event::none);  // returns when a meeting is due
    meet();
  }
}

// Collective: gathers the positions of all workers.
void WorkerLoop::start_link() {
  const double own[] = {static_cast<double>(run_.at.worker.step), run_.at.worker.pulled ? 1.0 : 0.0};
  const std::vector<double> all = s_.comm.gather_numbers(own, "control");
  std::vector<server::Stand> workers;
  for (size_t i = 0; i < all.size(); i += 2) workers.push_back({static_cast<int64_t>(all[i]), all[i + 1] != 0});
  s_.link->start(workers, s_.clock->replayed(), run_.last_step());
}

// Runs one step, or the rest of an interrupted one.
void WorkerLoop::work() {
  Worker& w = run_.at.worker;
  log_.start_clock();
  const std::vector<Batch> share = steps_.draw(w.step);
  const StepPlan plan = steps_.begin(share, w.step);
  if (!w.pulled) {
    w.clock = s_.clock->pull(w.step, w.clock);
    if (!take_turn(server::Event::pull, w.clock)) return;
    for (ServerStrategy* server : s_.sync->servers()) server->pull(s_.ctx);
    note_event(false);
    w.pulled = true;
    w.clock = s_.clock->push(w.step, w.clock);
  }
  announce(w.clock);  // workers with earlier events run in the meantime
  const auto [own, measure] = worker_gradients(s_, steps_, share, plan);
  const ClipResult clipped = measure.result();
  if (!take_turn(server::Event::push, w.clock)) return;
  push(own, clipped);
  log_.stop_clock();
  log_.count_step(w.step, own, run_.own_tokens(w.step - 1), s_.comm.size());
}

void WorkerLoop::announce(double time) {
  if (TurnClock* turns = s_.comm.turns()) turns->announce(time);
}

// Waits until this worker's event, at simulated time `time`, is the next one. Takes part in meetings that are due
// before it. Returns false if the run ends here.
bool WorkerLoop::take_turn(server::Event event, double time) {
  announce(time);
  while (!my_turn(event)) {
    log_.stop_clock();
    meet();
    log_.start_clock();
    if (run_.ending()) return false;
  }
  return true;
}

// Returns false if a meeting is due.
bool WorkerLoop::my_turn(server::Event event) {
  if (s_.link) return s_.link->ask(event, meetings_.next(), SignalGuard::received() || !failure_.empty());
  if (TurnClock* turns = s_.comm.turns()) turns->wait();
  if (SignalGuard::received()) s_.shared->workers.stop = true;
  return !meeting_due();
}

void WorkerLoop::push(const StepLoss& loss, const ClipResult& clipped) {
  const Span span(s_.ctx.tracer, "push");
  Worker& w = run_.at.worker;
  failure_ = updater_.finish_alone(loss, clipped, w.step, [&](std::optional<double> lr) {
    if (lr)
      for (ServerStrategy* server : s_.sync->servers()) server->push(s_.ctx, *lr, clipped);
    else if (s_.link)
      s_.link->leave_out();
  });
  if (!failure_.empty()) s_.shared->workers.stop = true;
  note_event(true);
  count_served();
  w.pulled = false;
  s_.shared->workers.done[static_cast<size_t>(s_.ctx.rank)] = ++w.step;
}

void WorkerLoop::note_event(bool push) {
  if (s_.link || config_.schedule.empty()) return;  // the link records its own events
  s_.shared->workers.events.push_back(2 * s_.ctx.rank + (push ? 1 : 0));
}

void WorkerLoop::count_served() {
  for (ServerStrategy* server : s_.sync->servers()) server->count_served(s_.ctx);
  if (s_.link) s_.link->count(s_.comm);
}

bool WorkerLoop::meeting_due() const {
  const WorkerBoard& board = s_.shared->workers;
  return board.stop || *std::min_element(board.done.begin(), board.done.end()) >= meetings_.next();
}

// Collective.
void WorkerLoop::meet() {
  end_failed(s_.comm, failure_);
  const Lap lap = meetings_.gather();
  const bool early = run_.at.step < meetings_.next();  // because of a signal
  count_served();
  if (s_.link && s_.leads()) {
    const std::vector<int32_t> order = s_.link->take_order();
    std::vector<int32_t>& events = s_.shared->workers.events;
    if (!config_.schedule.empty()) events.insert(events.end(), order.begin(), order.end());
  }
  if (early || run_.signal || run_.whole_due(run_.at.step))
    for (ServerStrategy* server : s_.sync->servers()) server->publish(s_.ctx);
  log_.count_traffic();
  if (early) return;
  meetings_.hold(lap);
  s_.comm.barrier();  // no rank may push while another still reads its shard
}

void WorkerLoop::write_recorded() const {
  if (!config_.schedule.empty()) write_schedule(config_.schedule, s_.shared->workers.events, s_.comm.size());
}

}  // namespace lmx
