#include "train/loop/meetings.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "train/loop/update.h"
#include "train/loop/worker_state.h"
#include "train/signals.h"

namespace lmx {

Meetings::Meetings(RunState& run, RunLog& log, std::function<void()> validate_and_save)
    : run_(run), s_(run.s), log_(log), validate_and_save_(std::move(validate_and_save)), next_(after(run.at.step)) {}

int64_t Meetings::after(int64_t step) const {
  do {
    ++step;
  } while (!run_.log_due(step) && !run_.whole_due(step));
  return step;
}

void Meetings::hold(const Lap& lap) {
  if (run_.log_due(run_.at.step)) log_.write_step(lap);
  validate_and_save_();
  next_ = after(run_.at.step);
}

void end_failed(Communicator& comm, const std::string& failure) {
  for (const std::string& text : comm.gather_texts(failure, "control"))
    if (!text.empty()) throw Diverged(text);
}

Lap Meetings::gather() {
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
  for (size_t i = 0; i < all.size(); i += own.size())
    run_.at.step = std::min(run_.at.step, static_cast<int64_t>(all[i]));
  const bool due = run_.at.step == next_;  // or earlier, because of a signal
  // lower_lr: a reduction by one rank applies to all, but a pause and a signal must not change what a run computes.
  const bool shared = due && (run_.log_due(next_) || run_.recipe_reads(next_));
  Lap group;
  for (size_t i = 0; i < all.size(); i += own.size()) {
    if (shared) run_.at.lr_scale = std::min(run_.at.lr_scale, all[i + 1]);
    run_.signal = std::max(run_.signal, static_cast<int>(all[i + 2]));
    group.steps += all[i + 3] / s_.comm.size();
    group.tokens += all[i + 4];
    group.seconds = std::max(group.seconds, all[i + 5]);
    add_window(sum, std::span(all).subspan(i + fixed, own.size() - fixed), params, run_.terms);
  }
  if (due && run_.log_due(next_)) run_.at.window = sum;
  return group;
}

}  // namespace lmx
