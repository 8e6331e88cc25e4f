#include "train/loop/checkpointer.h"

#include <algorithm>

#include "runfiles/checkpoint.h"

namespace lmx::train {

Checkpointer::Checkpointer(RunState& run, RunLog& log) : run_(run), s_(run.s), log_(log) {
  if (run_.at.step > 0) saved_ = run_.at.step;
}

bool Checkpointer::due() const {
  const bool evaluated = run_.at.evaluated == run_.at.step;
  const CheckpointConfig& c = s_.recipe.checkpoint;
  if (c.every > 0 ? run_.at.step % c.every == 0 : evaluated) return true;
  return (c.keep_best && evaluated && run_.at.best_step == run_.at.step) || run_.at.step == run_.last_step();
}

void Checkpointer::save(StateDict own) {
  const Span span(s_.ctx.tracer, "checkpoint");
  log_.count_traffic();
  log_.fold_window();
  static_cast<void>(log_.tokens_until(run_.at.step));  // a resumed run may have another batch size after this step
  TrainState state = pack_state(s_, run_.at);
  {
    const std::vector<std::string> windows = s_.comm.gather_texts(run_.at.open.to_json(), "checkpoint");
    if (s_.leads()) state.numbers.merge(window_texts(windows));
  }
  log_.sync();
  own.merge(s_.sync->state());
  const double mine[] = {own.empty() ? 0.0 : 1.0};
  const std::vector<double> any = s_.comm.gather_numbers(mine, "checkpoint");
  const bool by_rank = std::find(any.begin(), any.end(), 1.0) != any.end();
  if (s_.leads()) begin_checkpoint(run_.directory, run_.at.step);
  s_.comm.barrier();
  if (by_rank) add_to_checkpoint(run_.directory, run_.at.step, s_.ctx.rank, own);
  s_.comm.barrier();
  if (s_.leads()) {
    finish_checkpoint(run_.directory, run_.at.step, state, by_rank ? s_.comm.size() : 0);
    std::vector<int64_t> protect;
    if (s_.recipe.checkpoint.keep_best && run_.at.best_step >= 0) protect.push_back(run_.at.best_step);
    prune_checkpoints(run_.directory, static_cast<int>(s_.recipe.checkpoint.keep_last), protect);
  }
  s_.comm.barrier();  // no rank may continue before the checkpoint exists: it could fail and rely on it
  saved_ = run_.at.step;
  log_.count_traffic();
}

}  // namespace lmx::train
