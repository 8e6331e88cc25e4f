#include "train/loop/worker_loop.h"

#include <algorithm>

#include "lmx/error.h"
#include "train/loop/worker_state.h"
#include "train/signals.h"

namespace lmx::train {

WorkerLoop::WorkerLoop(RunState& run, RunLog& log, StepRunner& steps, Updater& updater,
                       std::function<void()> validate_and_save)
    : run_(run),
      s_(run.s),
      log_(log),
      steps_(steps),
      updater_(updater),
      validate_and_save_(std::move(validate_and_save)),
      config_(s_.sync->servers().front()->config()) {}

void WorkerLoop::run() {
  WorkerBoard& board = s_.shared->workers;
  const int64_t last = run_.last_step();
  if (s_.sequences == 0) run_.at.worker.step = last;  // fewer sequences than ranks: this rank only keeps its shard
  board.done[static_cast<size_t>(s_.ctx.rank)] = run_.at.worker.step;
  meeting_ = meeting_after(run_.at.step);
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
  const auto [own, clipped] = worker_gradients(s_, steps_, share, plan);
  if (!take_turn(server::Event::push, w.clock)) return;
  push(own, clipped);
  log_.stop_clock();
  const int64_t tokens = run_.step_tokens(w.step - 1) * s_.sequences / s_.recipe.batch.global;
  log_.count_step(w.step, own, tokens, s_.comm.size());
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
  if (s_.link) return s_.link->ask(event, meeting_, SignalGuard::received() || !failure_.empty());
  if (TurnClock* turns = s_.comm.turns()) turns->wait();
  if (SignalGuard::received()) s_.shared->workers.stop = true;
  return !meeting_due();
}

void WorkerLoop::push(const StepLoss& loss, const ClipResult& clipped) {
  const Span span(s_.ctx.tracer, "push");
  Worker& w = run_.at.worker;
  const double lr = updater_.learning_rate(w.step);
  Outcome outcome = updater_.judge(loss, clipped);
  run_.at.window.lr = lr;
  if (outcome.made()) {
    for (const std::string& name : s_.params.names())
      for (const RowSparse& piece : s_.params.at(name).grad().pieces)
        outcome.rows[name] += static_cast<int64_t>(piece.indices.size());
    for (ServerStrategy* server : s_.sync->servers()) server->push(s_.ctx, lr, clipped);
    updater_.advance();
  } else if (s_.link) {
    s_.link->leave_out();
  }
  try {
    updater_.account(loss, outcome, w.step);
  } catch (const RunError& e) {  // all workers must end with this error
    failure_ = e.what();
    s_.shared->workers.stop = true;
  }
  note_event(true);
  s_.params.clear_gradients();
  s_.sync->after_step(s_.ctx);
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
  return board.stop || *std::min_element(board.done.begin(), board.done.end()) >= meeting_;
}

int64_t WorkerLoop::meeting_after(int64_t step) const {
  do {
    ++step;
  } while (!run_.log_due(step) && !run_.whole_due(step));
  return step;
}

// Collective.
void WorkerLoop::meet() {
  const Lap lap = gather_windows();
  const bool early = run_.at.step < meeting_;  // because of a signal
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
  if (run_.log_due(run_.at.step)) {
    const Window last = run_.at.window;
    log_.write_step(lap);
    run_.at.window.lr = last.lr;  // the next step may not exist: this one may have been the worker's last
    run_.at.window.grad_norm = last.grad_norm;
  }
  validate_and_save_();
  meeting_ = meeting_after(run_.at.step);
  s_.comm.barrier();  // no rank may push while another still reads its shard
}

// Sets at.step to the number of steps that all workers have completed. If that step is logged, sets at.window to the
// sum over ranks. Returns the lap of all workers.
Lap WorkerLoop::gather_windows() {
  for (const std::string& text : s_.comm.gather_texts(failure_, "control"))
    if (!text.empty()) throw Diverged(text);
  const std::vector<std::string>& params = s_.params.names();
  std::vector<double> own{static_cast<double>(run_.at.worker.step), run_.at.lr_scale,
                          static_cast<double>(SignalGuard::received())};
  const Lap lap = log_.lap();
  own.insert(own.end(), {lap.steps, lap.tokens, lap.seconds});
  const size_t fixed = own.size();
  for (const double number : window_numbers(run_.at.window, params, run_.terms)) own.push_back(number);
  const std::vector<double> all = s_.comm.gather_numbers(own, "control");
  Window sum;
  sum.grad_norm = run_.at.window.grad_norm;
  sum.lr = run_.at.window.lr;
  run_.at.step = run_.at.worker.step;
  Lap group;
  for (size_t i = 0; i < all.size(); i += own.size()) {
    run_.at.step = std::min(run_.at.step, static_cast<int64_t>(all[i]));
    run_.at.lr_scale = std::min(run_.at.lr_scale, all[i + 1]);  // lower_lr: a reduction by one worker applies to all
    run_.signal = std::max(run_.signal, static_cast<int>(all[i + 2]));
    group.steps += all[i + 3] / s_.comm.size();
    group.tokens += all[i + 4];
    group.seconds = std::max(group.seconds, all[i + 5]);
    add_window(sum, std::span(all).subspan(i + fixed, own.size() - fixed), params, run_.terms);
  }
  if (run_.at.step == meeting_ && run_.log_due(run_.at.step)) run_.at.window = sum;
  return group;
}

void WorkerLoop::write_recorded() const {
  if (!config_.schedule.empty()) write_schedule(config_.schedule, s_.shared->workers.events, s_.comm.size());
}

}  // namespace lmx::train
