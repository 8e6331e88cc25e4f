#include "app/jobs/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "app/print/terminal.h"
#include "app/records/records.h"
#include "base/clock.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "train/progress.h"

namespace lmx::app::jobs {
namespace {

constexpr size_t kLastEnded = 5;

winsize terminal() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20 || size.ws_row < 5) return {24, 80, 0, 0};
  return size;
}

// Returns the beginning of a job's name if the name is so long that its row would not fit.
std::string short_name(const std::string& id, size_t width) {
  constexpr size_t kOthers = 46;  // columns of the row beside the name
  const size_t most = std::max<size_t>(12, width - std::min(width, kOthers));
  return id.size() <= most ? id : id.substr(0, most - 3) + "...";
}

}  // namespace

Length length_of(const Node& recipe) {
  const double steps = number_at(recipe, "train.steps");
  return {number_at(recipe, "batch.global", 1), steps, steps > 0 ? 0 : number_at(recipe, "train.epochs"),
          number_at(recipe, "data.train_fraction", 1)};
}

// Reads only the end of the file: every line contains its step, and every second one its epoch.
double last_number(const std::string& folder, const std::string& name) {
  std::ifstream file(folder + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return 0;
  const std::streamoff size = file.tellg(), tail = std::min<std::streamoff>(size, 16384);
  file.seekg(size - tail);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string key = "\"" + name + "\":";
  const size_t at = text.rfind(key);
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + key.size(), nullptr);
}

Progress::Progress(std::vector<Job> jobs, View view)
    : jobs_(std::move(jobs)), view_(std::move(view)), start_(Clock::now()) {
  if (!progress_enabled()) shown_ = start_;  // on a terminal the first table appears at once
  for (size_t i = 0; i < jobs_.size(); ++i) {
    index_[jobs_[i].id] = i;
    states_.push_back({jobs_[i].before, jobs_[i].before.ended ? 1 : part_of(i)});
  }
  if (const size_t ended = count_ended(); ended > 0)
    log_info(str(ended, " of ", jobs_.size(), " ", view_.noun, "s have ended before"));
}

void Progress::started(const std::string& id) {
  State& state = states_.at(index_.at(id));
  state.running = true;
  state.since = Clock::now();
  state.result = {};
}

void Progress::ended(const std::string& id, const Result& result) {
  decided(id, result);
  last_.push_back(index_.at(id));
  if (progress_enabled()) return;
  std::string text = str(view_.noun, " ", count_ended(), "/", jobs_.size(), " ", id, ": ", result.outcome);
  if (!result.ended) text += str(" at step ", result.step);
  if (!result.value.empty()) text += str(", ", view_.metric, " ", result.value);
  text += ", " + duration_text(result.seconds);
  if (!result.reason.empty()) text += ": " + result.reason;
  const std::string left = eta();
  log_info(text + (left.empty() ? "" : "; " + left));
}

void Progress::decided(const std::string& id, const Result& result) {
  State& state = states_.at(index_.at(id));
  state.running = false;
  state.result = result;
}

void Progress::interrupted(const std::string& id) {
  states_.at(index_.at(id)).running = false;
}

size_t Progress::count_ended() const {
  return static_cast<size_t>(
      std::count_if(states_.begin(), states_.end(), [](const State& s) { return s.result.ended; }));
}

double Progress::part_of(size_t job) const {
  const Length& length = jobs_[job].length;
  if (length.steps > 0) return std::min(1.0, last_number(jobs_[job].run, "step") / length.steps);
  if (length.epochs > 0) return std::min(1.0, last_number(jobs_[job].run, "epoch") / length.epochs);
  return 0;
}

double Progress::epoch_size() const {
  for (size_t i = 0; i < jobs_.size() && epoch_size_ == 0; ++i) {
    const bool begun = states_[i].running || states_[i].result.ended || states_[i].at_start > 0;
    const Length& length = jobs_[i].length;
    const double epoch = begun && length.epochs > 0 ? last_number(jobs_[i].run, "epoch") : 0;
    if (epoch > 0) epoch_size_ = last_number(jobs_[i].run, "step") * length.batch / epoch / length.text;
  }
  return epoch_size_;
}

double Progress::done_part() const {
  double before = 0, now = 0, all = 0;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const Length& length = jobs_[i].length;
    const State& state = states_[i];
    if (length.epochs > 0 && epoch_size() == 0) return NAN;
    const double total = length.steps > 0 ? length.batch * length.steps : length.epochs * epoch_size() * length.text;
    before += total * state.at_start;
    now += total * (state.result.ended ? 1 : state.running ? part_of(i) : state.at_start);
    all += total;
  }
  return all > before ? (now - before) / (all - before) : 1;
}

std::string Progress::eta() const {
  if (!view_.whole || count_ended() == jobs_.size()) return "";
  const double seconds = seconds_since(start_), part = done_part();
  if (!(part >= 0.002) || seconds < 1) return "";
  return "ETA " + duration_text(seconds * (1 - part) / part);
}

std::string Progress::summary() const {
  std::map<std::string, size_t> counts;
  size_t running = 0;
  for (const State& s : states_) {
    if (!s.result.outcome.empty()) ++counts[s.result.outcome];
    running += s.running;
  }
  std::string text = str(count_ended(), " of ", jobs_.size(), " ", view_.noun, "s have ended");
  for (const auto& [outcome, count] : counts) text += str(", ", count, " ", outcome);
  const std::string left = eta();
  return str(text, "; ", running, " running", left.empty() ? "" : ", " + left);
}

std::vector<std::string> Progress::lines() const {
  const winsize size = terminal();
  const size_t width = size.ws_col - 1u;
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const std::string& state, const std::string& step,
                       const std::string& value, const std::string& time) {
    rows.push_back({name, state, step});
    if (!view_.metric.empty()) rows.back().push_back(value.empty() ? "-" : value);
    rows.back().push_back(time);
  };
  std::string head = view_.noun;
  std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return std::toupper(c); });
  add(head, "STATE", "STEP", view_.metric, "TIME");
  for (size_t i = last_.size() - std::min(last_.size(), kLastEnded); i < last_.size(); ++i) {
    const Result& r = states_[last_[i]].result;
    if (states_[last_[i]].running) continue;  // it was started again
    add(short_name(jobs_[last_[i]].id, width), r.outcome, str(r.step), r.value, duration_text(r.seconds));
  }
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (!states_[i].running) continue;
    const auto step = static_cast<int64_t>(last_number(jobs_[i].run, "step"));
    const auto steps = static_cast<int64_t>(jobs_[i].length.steps);
    add(short_name(jobs_[i].id, width), "running", str(step, steps > 0 ? str("/", steps) : ""),
        view_.value ? view_.value(i) : "", duration_text(seconds_since(states_[i].since)));
  }
  std::vector<std::string> all;
  std::istringstream text(folded(summary(), width) + "\n" + table(rows, width));
  for (std::string line; std::getline(text, line) && all.size() + 2 < size.ws_row;) all.push_back(line);
  return all;
}

void Progress::show() {
  if (Clock::now() - shown_ < std::chrono::milliseconds(500)) return;
  shown_ = Clock::now();
  if (!progress_enabled()) return progress_line(summary());
  const std::vector<std::string> all = lines();
  hide();
  for (const std::string& line : all) std::fprintf(stderr, "%s\n", printable_with_colours(line).c_str());
  std::fflush(stderr);
  drawn_ = all.size();
}

void Progress::hide() {
  if (drawn_ > 0) std::fprintf(stderr, "\033[%zuF\033[J", drawn_);
  drawn_ = 0;
}

}  // namespace lmx::app::jobs
