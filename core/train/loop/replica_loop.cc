#include "train/loop/replica_loop.h"

#include <utility>
#include <vector>

#include "backend/counting/device.h"

namespace lmx {

ReplicaLoop::ReplicaLoop(RunState& run, RunLog& log, StepRunner& steps, Updater& updater,
                         std::function<void()> validate_and_save)
    : run_(run),
      s_(run.s),
      log_(log),
      steps_(steps),
      updater_(updater),
      meetings_(run, log, std::move(validate_and_save)) {}

void ReplicaLoop::run() {
  const Worker& own = run_.at.worker;
  while (own.step < run_.last_step() && !run_.ending()) {
    make_step();
    if (own.step < meetings_.next()) continue;
    log_.start_clock();  // a rank waits here while others that share its core make their steps
    s_.replicas->finish_exchanges();
    end_failed(s_.comm, failure_);
    log_.stop_clock();
    const Lap lap = meetings_.gather();
    if (run_.whole_due(run_.at.step)) s_.replicas->publish(s_.ctx);
    log_.count_traffic();
    meetings_.hold(lap);
  }
  s_.replicas->finish_exchanges();
  s_.replicas->publish(s_.ctx);
}

// A rank that has failed makes no further updates; all ranks end when they exchange or meet.
void ReplicaLoop::make_step() {
  log_.start_clock();
  Worker& own = run_.at.worker;
  StepLoss loss;
  if (failure_.empty()) failure_ = update_replica(s_, steps_, updater_, own.step, loss);
  ++own.step;
  s_.replicas->after_step(s_.ctx, own.step, run_.last_step(), [&] { end_failed(s_.comm, failure_); });
  log_.stop_clock();
  log_.count_step(own.step, loss, run_.own_tokens(own.step - 1), s_.comm.size());
}

std::string update_replica(Session& s, StepRunner& steps, Updater& updater, int64_t step, StepLoss& loss) {
  const std::vector<Batch> share = steps.draw(step);
  const StepPlan plan = steps.begin(share, step);
  auto [own, measure] = worker_gradients(s, steps, share, plan);
  loss = std::move(own);
  return updater.finish_alone(loss, measure.result(), step, [&, &of = measure](std::optional<double> lr) {
    StepRecord* const record = step_record(s.ctx);
    if (record) record->begin_update();
    if (lr) s.replicas->update(s.ctx, of, *lr, updater.next_update());
    if (record) record->end_update();
  });
}

}  // namespace lmx
