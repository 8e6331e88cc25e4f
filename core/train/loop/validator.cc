#include "train/loop/validator.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "base/text.h"
#include "data/dataset.h"
#include "lmx/log.h"
#include "train/signals.h"

namespace lmx {

SplitScore score_validation(Session& s, int64_t tokens) {
  const TrainConfig& t = s.recipe.train;
  const auto swap = [&](bool on) {
    s.comm.once<int>([&] {
      if (s.shared->ema) s.shared->ema->swap(s.ctx, s.params);
      s.shared->optimizer->evaluate(s.ctx, s.params, on);
      return 0;
    });
  };
  swap(true);
  ParameterStore params = s.shared->params.replica();  // the server's values if workers have their own copies
  const SplitPlan plan{"valid",
                       t.eval_batch,
                       s.batcher.sequence_length(),
                       tokens,
                       t.eval_carry,
                       t.eval_shards,
                       [] { return SignalGuard::received() != 0; },
                       s.data.token_bytes,
                       s.shared->separator,
                       &s.shared->metrics};
  const SplitScore score = s.sub_batches()
                               ? score_pairs(s.ctx, s.network, params, s.data.valid_pairs, plan)
                               : score_text(s.ctx, s.network, params, s.data.valid, s.data.valid_strings, plan);
  swap(false);
  return score;
}

bool Validator::validate() {
  const Span span(s_.ctx.tracer, "validate");
  const SplitScore score = score_validation(s_, s_.recipe.train.eval_tokens);
  if (!score.complete) return false;
  run_.at.evaluated = run_.at.step;
  run_.at.valid_ppl = score.ppl();
  run_.at.valid_nll = score.nll();
  run_.at.valid_bpb = score.bpb().value_or(0);
  ++run_.at.no_better;
  if (run_.at.best_step < 0 || std::isnan(run_.at.best_ppl) || score.ppl() < run_.at.best_ppl) {
    run_.at.best_ppl = score.ppl();
    run_.at.best_step = run_.at.step;
    run_.at.no_better = 0;
  }
  s_.schedule->validated(score.ppl());
  report(score);
  check_target();
  return true;
}

bool Validator::validate_at_pause() {
  if (run_.at.evaluated == run_.at.step) return true;
  const Span span(s_.ctx.tracer, "validate");
  const SplitScore score = score_validation(s_, s_.recipe.train.eval_tokens);
  if (!score.complete) return false;
  paused_ = score;
  report(score);
  return true;
}

void Validator::report(const SplitScore& score) {
  if (!s_.leads()) return;
  Record record{run_.at.step,
                "valid",
                {{"nll_nat", score.nll()},
                 {"nll_bit", score.nll() / std::numbers::ln2},
                 {"ppl", score.ppl()},
                 {"tokens", static_cast<double>(score.tokens)},
                 {"epoch", static_cast<double>(run_.at.step) / static_cast<double>(s_.batcher.steps_per_epoch())},
                 {"train_s", run_.at.seconds}}};
  const bool characters = is_character(s_.data.unit);
  if (characters) record.values.insert(record.values.begin() + 2, {"bpc", score.nll() / std::numbers::ln2});
  const std::optional<double> bpb = score.bpb();
  if (bpb) record.values.insert(record.values.begin() + 2, {"bpb", *bpb});
  const auto further = s_.shared->metrics.values(score.sums, score.tokens);
  record.values.insert(record.values.end(), further.begin(), further.end());
  log_.write(record);
  log_info(str("step ", run_.at.step, "/", run_.last_step(), " valid ppl ", score.ppl(),
               characters ? str(", bpc ", score.nll() / std::numbers::ln2) : "", bpb ? str(", bpb ", *bpb) : "", " (",
               count_text(score.tokens), " ", s_.data.unit, "s)"));
}

void Validator::check_target() {
  const int64_t patience = s_.recipe.stop.patience;
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const StopRule::Result result{run_.at.valid_nll, run_.at.valid_bpb > 0 ? run_.at.valid_bpb : kUnknown};
  met_ = rule_.met(result);
  if (met_)
    run_.stopped = rule_.describe(result);
  else if (patience > 0 && run_.at.no_better >= patience)
    run_.stopped = str(run_.at.no_better, run_.at.no_better == 1 ? " validation" : " validations in a row",
                       " above valid.ppl ", run_.at.best_ppl, " of step ", run_.at.best_step);
  else
    return;
  if (s_.leads())
    log_info(str(met_ ? "stop.when: " : "stop.patience: ", run_.stopped, " after step ", run_.at.step, ", ",
                 duration_text(run_.at.seconds), " of training (validation and saving not counted)"));
}

}  // namespace lmx
