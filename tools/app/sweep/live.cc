#include "app/sweep/runner.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "app/jobs/pool.h"
#include "app/print/terminal.h"
#include "app/sweep/table.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::str;

constexpr size_t kLastEnded = 5;

size_t count_ended(const Journal& journal) {
  const auto& states = journal.states();
  return static_cast<size_t>(std::count_if(states.begin(), states.end(), [](const State& s) { return s.ended(); }));
}

winsize terminal() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20 || size.ws_row < 5) return {24, 80, 0, 0};
  return size;
}

// Returns the beginning of a point's name if the name is so long that its row would not fit.
std::string short_name(const std::string& id, size_t width) {
  constexpr size_t kOthers = 46;  // columns of the row beside the name
  const size_t most = std::max<size_t>(12, width - std::min(width, kOthers));
  return id.size() <= most ? id : id.substr(0, most - 3) + "...";
}

}  // namespace

Live::Live(const Plan& plan, const Folder& folder, const Journal& journal)
    : plan_(plan),
      folder_(folder),
      journal_(journal),
      ended_before_(count_ended(journal)),
      start_(Clock::now()),
      shown_(start_) {
  if (ended_before_ > 0) lmx::log_info(str(ended_before_, " of ", plan.points.size(), " points have ended before"));
}

void Live::started(size_t point) {
  running_[point] = Clock::now();
}

void Live::ended(size_t point) {
  running_.erase(point);
  last_.push_back(point);
  if (lmx::progress_enabled()) return;
  const State& s = journal_.state(point);
  std::string text = str("point ", count_ended(journal_), "/", plan_.points.size(), " ", plan_.points[point].id, ": ",
                         name_of(s.outcome));
  if (s.outcome == Outcome::paused || s.outcome == Outcome::stopped) text += str(" at step ", s.step);
  if (s.value) text += str(", ", plan_.request.metric.text(), " ", number_text(*s.value));
  text += ", " + jobs::time_text(s.seconds);
  if (!s.reason.empty()) text += ": " + s.reason;
  const std::string left = eta();
  lmx::log_info(text + (left.empty() ? "" : "; " + left));
}

void Live::again(size_t point) {
  lmx::log_debug(str("point ", plan_.points[point].id, " continues"));
}

void Live::interrupted(size_t point) {
  running_.erase(point);
}

// Estimates the remaining time from the average time per point so far.
std::string Live::eta() const {
  const size_t all = plan_.points.size(), ended = count_ended(journal_), now = ended - std::min(ended, ended_before_);
  if (now == 0 || ended >= all || plan_.request.halving.eta > 0) return "";
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return "ETA " + jobs::time_text(seconds / static_cast<double>(now) * static_cast<double>(all - ended));
}

std::string Live::summary() const {
  std::map<std::string, size_t> counts;
  for (const State& s : journal_.states())
    if (s.outcome != Outcome::none) ++counts[name_of(s.outcome)];
  std::string text = str(count_ended(journal_), " of ", plan_.points.size(), " points have ended");
  for (const auto& [name, count] : counts) text += str(", ", count, " ", name);
  const std::string left = eta();
  return str(text, "; ", running_.size(), " running", left.empty() ? "" : ", " + left);
}

std::vector<std::string> Live::lines() const {
  std::vector<std::vector<std::string>> rows{{"POINT", "STATE", "STEP", plan_.request.metric.text(), "TIME"}};
  const winsize size = terminal();
  const size_t width = size.ws_col - 1u;
  const size_t ended = std::min(last_.size(), kLastEnded);
  for (size_t i = last_.size() - ended; i < last_.size(); ++i) {
    const State& s = journal_.state(last_[i]);
    rows.push_back({short_name(plan_.points[last_[i]].id, width), name_of(s.outcome), std::to_string(s.step),
                    s.value ? number_text(*s.value) : "-", jobs::time_text(s.seconds)});
  }
  for (const auto& [point, since] : running_) {
    const Point& p = plan_.points[point];
    const auto value = read_metric(plan_.request.metric, folder_.run(p), folder_.log(p));
    rows.push_back({short_name(p.id, width), "running",
                    str(jobs::last_number(folder_.run(p), "step"), p.steps ? str("/", p.steps) : ""),
                    value ? number_text(*value) : "-",
                    jobs::time_text(std::chrono::duration<double>(Clock::now() - since).count())});
  }
  std::vector<std::string> all;
  std::istringstream text(lmx::folded(summary(), width) + "\n" + table(rows, width));
  for (std::string line; std::getline(text, line) && all.size() + 2 < size.ws_row;) all.push_back(line);
  return all;
}

void Live::erase() {
  if (drawn_ > 0) std::fprintf(stderr, "\033[%zuF\033[J", drawn_);
  drawn_ = 0;
}

void Live::show() {
  if (Clock::now() - shown_ < std::chrono::milliseconds(500)) return;
  shown_ = Clock::now();
  if (!lmx::progress_enabled()) return lmx::progress_line(summary());
  const std::vector<std::string> all = lines();
  erase();
  for (const std::string& line : all) std::fprintf(stderr, "%s\n", lmx::without_controls(line).c_str());
  std::fflush(stderr);
  drawn_ = all.size();
}

void Live::done() {
  erase();
}

}  // namespace lmx_cli::sweeps
