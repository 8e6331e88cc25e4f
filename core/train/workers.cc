// The training loop of ranks that are workers of a parameter server. They pull and push asynchronously, in the order of
// simulated time, of real time (between processes), or of a recorded schedule. They meet when the slowest worker has
// completed a step that must be recorded, validated or saved.
//
// A meeting does not affect the results: a worker that is ahead meets the others while it waits for its next event,
// perhaps with a gradient that is computed but not pushed, and then continues. So neither the logging interval nor an
// interruption changes the computation.
#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "lmx/model_extensions.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace lmx::train {
namespace {

constexpr const char *kWorker = "worker", *kSchedule = "schedule";

std::vector<double> window_numbers(const Window& w, const std::vector<std::string>& params,
                                   const std::vector<std::string>& terms) {
  std::vector<double> all{w.nats};
  for (const int64_t count : {w.tokens, w.skipped, w.updates, w.positions, w.padded, w.overflows})
    all.push_back(static_cast<double>(count));
  for (const std::string& name : params) {
    for (const auto* counts : {&w.rows, &w.overflowed}) {
      const auto found = counts->find(name);
      all.push_back(found == counts->end() ? 0.0 : static_cast<double>(found->second));
    }
  }
  for (const std::string& name : terms) all.push_back(w.terms.contains(name) ? w.terms.at(name) : 0.0);
  return all;
}

void add_window(Window& w, std::span<const double> numbers, const std::vector<std::string>& params,
                const std::vector<std::string>& terms) {
  w.nats += numbers[0];
  size_t at = 1;
  for (int64_t* count : {&w.tokens, &w.skipped, &w.updates, &w.positions, &w.padded, &w.overflows})
    *count += static_cast<int64_t>(numbers[at++]);
  for (const std::string& name : params) {
    for (auto* counts : {&w.rows, &w.overflowed})
      if (const auto n = static_cast<int64_t>(numbers[at++])) (*counts)[name] += n;
  }
  for (const std::string& name : terms) w.terms[name] += numbers[at++];
}

}  // namespace

void Trainer::run_workers() {
  WorkerBoard& board = s_.shared->workers;
  const int64_t last = s_.shared->total_steps;
  if (s_.sequences == 0) at_.worker.step = last;  // fewer sequences than ranks: this rank only keeps its shard
  board.done[static_cast<size_t>(s_.ctx.rank)] = at_.worker.step;
  meeting_ = meeting_after(at_.step);
  if (s_.link) start_link();
  s_.comm.barrier();
  while (at_.worker.step < last && !ending()) work();
  while (at_.step < last && !ending()) {
    if (s_.link) my_turn(server::Event::none);  // returns when a meeting is due
    meet();
  }
}

// Collective: gathers the positions of all workers.
void Trainer::start_link() {
  const double own[] = {static_cast<double>(at_.worker.step), at_.worker.pulled ? 1.0 : 0.0};
  const std::vector<double> all = s_.comm.gather_numbers(own, "control");
  std::vector<server::Stand> workers;
  for (size_t i = 0; i < all.size(); i += 2) workers.push_back({static_cast<int64_t>(all[i]), all[i + 1] != 0});
  s_.link->start(workers, s_.clock->replayed(), s_.shared->total_steps);
}

// Runs one step, or the rest of an interrupted one.
void Trainer::work() {
  Worker& w = at_.worker;
  watch_.start();
  const std::vector<Batch> share = draw(w.step);
  const StepPlan plan = begin_step(share, w.step);
  if (!w.pulled) {
    w.clock = s_.clock->pull(w.step, w.clock);
    if (!take_turn(server::Event::pull, w.clock)) return;
    for (ServerStrategy* server : s_.sync->servers()) server->pull(s_.ctx);
    note_event(false);
    w.pulled = true;
    w.clock = s_.clock->push(w.step, w.clock);
  }
  s_.comm.announce(w.clock);  // workers with earlier events run in the meantime
  const StepLoss own = forward_backward(share, plan);
  for (const std::string& name : s_.params.names()) s_.params.at(name).grad().coalesce(s_.ctx);
  for (ServerStrategy* server : s_.sync->servers()) server->select(s_.ctx);
  const ClipResult clipped = measure_gradients(s_.ctx, s_.params, s_.shared->clip, unscale());
  if (!take_turn(server::Event::push, w.clock)) return;
  push(own, clipped);
  pause();
  count_traffic();
  show_progress();
}

// Waits until this worker's event, at simulated time `time`, is the next one. Takes part in meetings that are due
// before it. Returns false if the run ends here.
bool Trainer::take_turn(server::Event event, double time) {
  s_.comm.announce(time);
  while (!my_turn(event)) {
    pause();
    meet();
    watch_.start();
    if (ending()) return false;
  }
  return true;
}

// Returns false if a meeting is due.
bool Trainer::my_turn(server::Event event) {
  if (s_.link) return s_.link->ask(event, meeting_, SignalGuard::received() || !failure_.empty());
  s_.comm.wait_turn();
  if (SignalGuard::received()) s_.shared->workers.stop = true;
  return !meeting_due();
}

void Trainer::push(const StepLoss& loss, const ClipResult& clipped) {
  const Span span(s_.ctx.tracer, "push");
  Worker& w = at_.worker;
  const double lr = learning_rate(w.step);
  Outcome outcome = judge(loss, clipped);
  at_.window.lr = lr;
  if (outcome.made()) {
    for (const std::string& name : s_.params.names())
      for (const RowSparse& piece : s_.params.at(name).grad().pieces)
        outcome.rows[name] += static_cast<int64_t>(piece.indices.size());
    for (ServerStrategy* server : s_.sync->servers()) server->push(s_.ctx, lr, clipped);
  } else if (s_.link) {
    s_.link->leave_out();
  }
  try {
    account(loss, outcome, w.step);
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

void Trainer::note_event(bool push) {
  if (s_.link || s_.sync->servers().front()->config().schedule.empty()) return;  // the link records its own events
  s_.shared->workers.events.push_back(2 * s_.ctx.rank + (push ? 1 : 0));
}

void Trainer::count_served() {
  for (ServerStrategy* server : s_.sync->servers()) server->count_served(s_.ctx);
  if (s_.link) s_.link->count(s_.comm);
}

bool Trainer::meeting_due() const {
  const WorkerBoard& board = s_.shared->workers;
  return board.stop || *std::min_element(board.done.begin(), board.done.end()) >= meeting_;
}

bool Trainer::whole_due(int64_t step) const {
  const int64_t every = s_.recipe.checkpoint.every;
  return eval_due(step) || step == s_.shared->total_steps || step == until_ || (every > 0 && step % every == 0);
}

int64_t Trainer::meeting_after(int64_t step) const {
  do {
    ++step;
  } while (!log_due(step) && !whole_due(step));
  return step;
}

// Collective.
void Trainer::meet() {
  gather_windows();
  const bool early = at_.step < meeting_;  // because of a signal
  count_served();
  if (s_.link && s_.leads()) {
    const std::vector<int32_t> order = s_.link->take_order();
    std::vector<int32_t>& events = s_.shared->workers.events;
    if (!s_.sync->servers().front()->config().schedule.empty()) events.insert(events.end(), order.begin(), order.end());
  }
  if (early || signal_ || whole_due(at_.step))
    for (ServerStrategy* server : s_.sync->servers()) server->publish(s_.ctx);
  count_traffic();
  if (early) return;
  if (log_due(at_.step)) {
    const Window last = at_.window;
    log_step();
    at_.window.lr = last.lr;  // the next step may not exist: this one may have been the worker's last
    at_.window.grad_norm = last.grad_norm;
  }
  if (eval_due(at_.step)) validate();
  if (checkpoint_due()) save();
  meeting_ = meeting_after(at_.step);
  s_.comm.barrier();  // no rank may push while another still reads its shard
}

// Sets at_.step to the number of steps that all workers have completed. If that step is logged, sets at_.window to the
// sum over ranks.
void Trainer::gather_windows() {
  for (const std::string& text : s_.comm.gather_texts(failure_, "control"))
    if (!text.empty()) throw Diverged(text);
  const std::vector<std::string>& params = s_.params.names();
  std::vector<double> own{static_cast<double>(at_.worker.step), at_.lr_scale,
                          static_cast<double>(SignalGuard::received())};
  const Lap lap = own_lap();
  own.insert(own.end(), {lap.steps, lap.tokens, lap.seconds});
  const size_t fixed = own.size();
  for (const double number : window_numbers(at_.window, params, term_names_)) own.push_back(number);
  const std::vector<double> all = s_.comm.gather_numbers(own, "control");
  Window sum;
  sum.grad_norm = at_.window.grad_norm;
  sum.lr = at_.window.lr;
  at_.step = at_.worker.step;
  group_lap_ = {};
  for (size_t i = 0; i < all.size(); i += own.size()) {
    at_.step = std::min(at_.step, static_cast<int64_t>(all[i]));
    at_.lr_scale = std::min(at_.lr_scale, all[i + 1]);  // lower_lr: a reduction by one worker applies to all
    signal_ = std::max(signal_, static_cast<int>(all[i + 2]));
    group_lap_.steps += all[i + 3] / s_.comm.size();
    group_lap_.tokens += all[i + 4];
    group_lap_.seconds = std::max(group_lap_.seconds, all[i + 5]);
    add_window(sum, std::span(all).subspan(i + fixed, own.size() - fixed), params, term_names_);
  }
  if (at_.step == meeting_ && log_due(at_.step)) at_.window = sum;
}

// The state of this worker that a checkpoint stores; for worker 0 it includes the order of events so far.
StateDict Trainer::worker_state() const {
  const Worker& w = at_.worker;
  const ScaleState& scale = at_.loss_scale;
  std::vector<double> numbers{static_cast<double>(w.step),
                              static_cast<double>(at_.updates),
                              w.pulled ? 1.0 : 0.0,
                              w.clock,
                              static_cast<double>(at_.skipped_in_a_row),
                              at_.window.grad_norm,
                              at_.window.lr,
                              scale.scale,
                              static_cast<double>(scale.good),
                              static_cast<double>(scale.last_overflow),
                              static_cast<double>(scale.overflows)};
  for (const double number : window_numbers(at_.window, s_.params.names(), term_names_)) numbers.push_back(number);
  StateDict state;
  state[kWorker] = Tensor::from<double>(s_.ctx.host, {static_cast<int64_t>(numbers.size())}, numbers);
  const std::vector<int32_t>& events = s_.shared->workers.events;
  if (s_.leads() && !events.empty())
    state[kSchedule] = Tensor::from<int32_t>(s_.ctx.host, {static_cast<int64_t>(events.size())}, events);
  return state;
}

void Trainer::write_recorded() const {
  const std::string& path = s_.sync->servers().front()->config().schedule;
  if (!path.empty()) write_schedule(path, s_.shared->workers.events, s_.comm.size());
}

void unpack_worker(Session& s, const StateDict& own, Position& at) {
  const std::vector<std::string>& params = s.params.names();
  const std::vector<std::string> terms = loss_terms(*s.network.model);
  constexpr size_t kFixed = 11, kSums = 7, kByParameter = 2;
  const auto found = own.find(kWorker);
  if (found == own.end() || found->second.dtype() != DType::f64 ||
      found->second.numel() != static_cast<int64_t>(kFixed + kSums + kByParameter * params.size() + terms.size()))
    throw UserError(str("[resume] the checkpoint does not say where worker ", s.ctx.rank, " stood"));
  const std::span<const double> n = std::as_const(found->second).values<double>();
  at.worker = {static_cast<int64_t>(n[0]), n[2] != 0, n[3]};
  at.updates = static_cast<int64_t>(n[1]);
  at.skipped_in_a_row = static_cast<int64_t>(n[4]);
  at.window = {};
  at.window.grad_norm = n[5];
  at.window.lr = n[6];
  at.loss_scale = {n[7], static_cast<int64_t>(n[8]), static_cast<int64_t>(n[9]), static_cast<int64_t>(n[10]), {}};
  add_window(at.window, n.subspan(kFixed), params, terms);
  const auto events = own.find(kSchedule);
  if (events == own.end()) return;
  const auto order = std::as_const(events->second).values<int32_t>();
  s.shared->workers.events.assign(order.begin(), order.end());
}

}  // namespace lmx::train
