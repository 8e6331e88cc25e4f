#include "app/cells/progress.h"

#include <algorithm>
#include <cmath>

#include "app/jobs/pool.h"
#include "app/records/recipe_values.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx_cli::experiments {
namespace {

constexpr double kTypesWork = 20'000;  // work of counting words, which takes seconds

}  // namespace

Progress::Progress(std::vector<const Cell*> cells, std::string folder)
    : cells_(std::move(cells)), folder_(std::move(folder)), start_(Clock::now()), shown_(start_) {
  for (const Cell* cell : cells_) {
    Work& work = work_[cell];
    const lmx::Node tree = lmx::parse_yaml(cell->yaml, cell->id);
    if (cell->types) continue;
    work.batch = number_at(tree, "batch.global", 1);
    work.steps = number_at(tree, "train.steps", 0);
    work.epochs = work.steps > 0 ? 0 : number_at(tree, "train.epochs", 0);
    work.text = number_at(tree, "data.train_fraction", 1);
    work.at_start = part_of(*cell);
  }
}

void Progress::started(const Cell& cell) {
  work_.at(&cell).running = true;
}

void Progress::ended(const Cell& cell, double seconds, const std::string& failure) {
  say(cell, seconds, failure.empty() ? "done in" : "failed after", failure);
}

void Progress::diverged(const Cell& cell, double seconds, const std::string& why) {
  say(cell, seconds, "diverged after", why);
}

void Progress::say(const Cell& cell, double seconds, const char* how, const std::string& why) {
  work_.at(&cell).running = false;
  work_.at(&cell).over = true;
  ++ended_;
  const std::string left = ended_ < cells_.size() ? eta() : "";
  lmx::log_info(lmx::str("cell ", ended_, "/", cells_.size(), " ", cell.id, ": ", how, " ", jobs::time_text(seconds),
                         why.empty() ? "" : ": " + why, left.empty() ? "" : "; " + left));
}

double Progress::step_of(const Cell& cell) const {
  return jobs::last_number(folder_ + cell.id, "step");
}

double Progress::part_of(const Cell& cell) const {
  const Work& work = work_.at(&cell);
  if (work.steps > 0) return std::min(1.0, step_of(cell) / work.steps);
  if (work.epochs > 0) return std::min(1.0, jobs::last_number(folder_ + cell.id, "epoch") / work.epochs);
  return 0;
}

double Progress::epoch_size() const {
  for (const auto& [cell, work] : work_) {
    if (epoch_size_ > 0) break;
    const double epoch = work.epochs > 0 ? jobs::last_number(folder_ + cell->id, "epoch") : 0;
    if (epoch > 0) epoch_size_ = step_of(*cell) * work.batch / epoch / work.text;
  }
  return epoch_size_;
}

double Progress::done_part() const {
  double before = 0, now = 0, all = 0;
  for (const auto& [cell, work] : work_) {
    if (work.epochs > 0 && epoch_size() == 0) return NAN;
    const double trained = work.steps > 0 ? work.batch * work.steps : work.epochs * epoch_size() * work.text;
    const double total = cell->types ? kTypesWork : trained;
    before += total * work.at_start;
    now += total * (work.over ? 1 : work.running ? part_of(*cell) : work.at_start);
    all += total;
  }
  return all > before ? (now - before) / (all - before) : 1;
}

std::string Progress::eta() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count(), part = done_part();
  if (!(part >= 0.002) || seconds < 1) return "";
  return "ETA " + jobs::time_text(seconds * (1 - part) / part);
}

void Progress::show() {
  if (Clock::now() - shown_ < std::chrono::milliseconds(500)) return;
  shown_ = Clock::now();
  std::string text = lmx::str("cell ", std::min(ended_ + 1, cells_.size()), "/", cells_.size());
  for (const Cell* cell : cells_) {
    const Work& work = work_.at(cell);
    if (!work.running) continue;
    text += " " + cell->id;
    if (work.steps > 0)
      text += lmx::str(": step ", static_cast<int64_t>(step_of(*cell)), "/", static_cast<int64_t>(work.steps));
  }
  const std::string left = eta();
  lmx::progress_line(text + (left.empty() ? "" : ", " + left));
}

void Progress::done() const {
  lmx::progress_line("");
}

}  // namespace lmx_cli::experiments
