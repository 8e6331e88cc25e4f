// Validation during a run, and the rule that ends a run early.
#pragma once

#include "recipe/stop_rule.h"
#include "train/evaluate.h"
#include "train/loop/run_log.h"

namespace lmx {

// Collective. Scores the validation split, or `tokens` of it if that is more than 0, with the EMA parameters if
// `train.ema` is set.
SplitScore score_validation(Session& s, int64_t tokens);

class Validator {
 public:
  Validator(RunState& run, RunLog& log) : run_(run), s_(run.s), log_(log), rule_(s_.recipe.stop.when) {}
  // Collective: score_validation(). Returns false if a signal has interrupted it; the run then resumes with this
  // validation.
  bool validate();
  // The same at a pause. The result affects neither the schedule nor `best`, which see only validations that are due,
  // and its record is removed when the run resumes.
  bool validate_at_pause();
  void check_target();                          // sets RunState::stopped if stop.when or stop.patience ends the run
  bool reached_target() const { return met_; }  // the run ends because `stop.when` was met
  double nll() const { return paused_.tokens > 0 ? paused_.nll() : run_.at.valid_nll; }
  double bpb() const { return paused_.tokens > 0 ? paused_.bpb().value_or(0) : run_.at.valid_bpb; }  // 0: unknown
  double ppl() const { return paused_.tokens > 0 ? paused_.ppl() : run_.at.valid_ppl; }  // the last known value

 private:
  void report(const SplitScore& score);

  RunState& run_;
  Session& s_;
  RunLog& log_;
  StopRule rule_;
  bool met_ = false;
  SplitScore paused_;  // result of the validation at a pause
};

}  // namespace lmx
