// Checkpoints of a run.
#pragma once

#include "train/loop/run_log.h"

namespace lmx {

class Checkpointer {
 public:
  Checkpointer(RunState& run, RunLog& log);
  bool due() const;
  bool saved() const { return saved_ == run_.at.step; }  // a checkpoint of the current step exists
  // Collective. `own`: state of this rank beside that of its strategies. If any rank has state that differs between
  // ranks, each rank writes a separate file.
  void save(StateDict own);

 private:
  RunState& run_;
  Session& s_;
  RunLog& log_;
  int64_t saved_ = -1;
};

}  // namespace lmx
