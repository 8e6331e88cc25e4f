#include "sync/server/worker_clock.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx {
namespace {

constexpr const char* kTitle = "lmx schedule 1: ";

std::ifstream open(const std::string& path, const char* what) {
  std::ifstream file(path);
  if (!file) throw UserError(str("[sync] cannot read ", path, ", ", what));
  return file;
}

std::string place(const std::string& path, size_t line) {
  return str("[sync] ", path, ':', line, ": ");
}

std::vector<std::vector<double>> read_durations(const std::string& path, int ranks) {
  std::ifstream file = open(path, "the durations of delay.file");
  std::vector<std::vector<double>> lines;
  size_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    std::istringstream words(text);
    std::vector<double> row;
    for (std::string word; words >> word;) {
      const std::optional<double> value = parse_double(word);
      if (!value || !(*value >= 0) || !std::isfinite(*value))
        throw UserError(str(place(path, number), "'", word, "' is no duration: seconds are expected, 0 or more"));
      row.push_back(*value);
    }
    if (row.empty()) continue;
    if (row.size() != 1 && row.size() != static_cast<size_t>(ranks))
      throw UserError(
          str(place(path, number), row.size(), " columns; expected 1, or one for each of ", plural(ranks, "worker")));
    if (!lines.empty() && row.size() != lines[0].size())
      throw UserError(str(place(path, number), row.size(), " columns, where lines before have ", lines[0].size()));
    lines.push_back(std::move(row));
  }
  if (lines.empty()) throw UserError(str("[sync] ", path, ", the durations of delay.file, is empty"));
  for (size_t column = 0; ranks > 1 && column < lines[0].size(); ++column)
    if (std::all_of(lines.begin(), lines.end(), [&](const auto& row) { return row[column] == 0; }))
      throw UserError(str("[sync] ", path, ", the durations of delay.file: ",
                          lines[0].size() > 1 ? str("worker ", column, "'s are all 0") : std::string("all are 0"),
                          "; such a worker would do all its steps before the others do one"));
  return lines;
}

std::vector<int32_t> read_schedule(const std::string& path, int ranks) {
  std::ifstream file = open(path, "the schedule to replay");
  std::string text;
  std::getline(file, text);
  std::istringstream title(text.starts_with(kTitle) ? text.substr(std::string(kTitle).size()) : "");
  int workers = 0;
  if (!(title >> workers))
    throw UserError(
        str(place(path, 1), "no schedule of pulls and pushes: it would begin with '", kTitle, "N workers'"));
  if (workers != ranks)
    throw UserError(str(place(path, 1), "a schedule of ", workers, " workers; this run has ", ranks,
                        ". Replay it with ", plural(workers, "rank")));
  std::vector<int32_t> events;
  std::vector<bool> pulled(static_cast<size_t>(ranks));
  for (size_t number = 2; std::getline(file, text); ++number) {
    std::istringstream words(text);
    std::string kind, rest;
    int worker = -1;
    const bool read = static_cast<bool>(words >> kind >> worker) && !(words >> rest);
    const bool push = kind == "push";
    if (!read || worker < 0 || worker >= ranks || (!push && kind != "pull") ||
        pulled[static_cast<size_t>(worker)] != push)
      throw UserError(str(place(path, number), "'", text,
                          "' is no event: expected 'pull W' and 'push W' in turns, W in [0, ", ranks, ")"));
    pulled[static_cast<size_t>(worker)] = !push;
    events.push_back(2 * worker + (push ? 1 : 0));
  }
  return events;
}

}  // namespace

ClockFiles::ClockFiles(const ServerConfig& config, int ranks) {
  if (!config.delay.file.empty()) durations = read_durations(config.delay.file, ranks);
  if (!config.replay.empty()) events = read_schedule(config.replay, ranks);
}

void write_schedule(const std::string& path, const std::vector<int32_t>& events, int ranks) {
  std::string text = str(kTitle, plural(ranks, "worker"), "\n");
  for (const int32_t event : events) text += str(event % 2 ? "push " : "pull ", event / 2, '\n');
  write_file(path, text);
}

WorkerClock::WorkerClock(const ServerConfig& config, std::shared_ptr<const ClockFiles> files, RandomKey key, int rank,
                         int ranks)
    : delay_(config.delay),
      replay_(config.replay),
      files_(std::move(files)),
      key_(key.fold(static_cast<uint64_t>(rank))),
      rank_(rank),
      ranks_(ranks),
      speed_(1 + delay_.spread * (2 * key_.fold("speed").uniform(0) - 1)) {
  if (replay_.empty() && delay_.kind != "trace" && delay_.mean == 0 && ranks > 1)
    throw UserError(str("[sync] delay.mean is 0: of ", ranks,
                        " workers the first would do all its steps before the others do one; give a mean above 0"));
  for (size_t i = 0; i < files_->events.size(); ++i)
    if (files_->events[i] / 2 == rank) turns_.push_back(static_cast<double>(i));
}

double WorkerClock::duration(int64_t step) const {
  if (delay_.kind == "trace") {
    const auto& lines = files_->durations;
    const auto n = static_cast<int64_t>(lines.size());
    if (lines[0].size() > 1) return speed_ * lines[static_cast<size_t>(step % n)][static_cast<size_t>(rank_)];
    return speed_ * lines[static_cast<size_t>((chunk_begin(n, rank_, ranks_) + step) % n)][0];
  }
  if (delay_.kind == "fixed") return speed_ * delay_.mean;
  return speed_ * delay_.mean * -std::log1p(-key_.uniform(static_cast<uint64_t>(step)));
}

double WorkerClock::pull(int64_t step, double now) const {
  return replay_.empty() ? now : turns_[static_cast<size_t>(2 * step)];
}

double WorkerClock::push(int64_t step, double now) const {
  return replay_.empty() ? now + duration(step) : turns_[static_cast<size_t>(2 * step + 1)];
}

void WorkerClock::require(int64_t steps) const {
  const auto there = static_cast<int64_t>(turns_.size() / 2);
  if (!replay_.empty() && there < steps)
    throw UserError(str("[sync] the schedule ", replay_, " ends after ", there, " steps of worker ", rank_,
                        "; this run takes ", steps, ". Set train.steps to at most that"));
}

}  // namespace lmx
