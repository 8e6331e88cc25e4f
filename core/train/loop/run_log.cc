#include "train/loop/run_log.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text.h"
#include "lmx/log.h"

namespace lmx {
namespace {

// " padding 0.021 step_spread 0.12 loss_scale 256": values that log.txt has in addition to the terminal's line.
std::string notes(const Record& record) {
  std::string text;
  for (const auto& [name, value] : record.values)
    if (name == "padding" || name == "step_spread" || name == "loss_scale" || name == "overflows")
      text += str(" ", name, " ", number_text(value));
  return text;
}

void append(Record& record, const std::vector<std::pair<std::string, double>>& values) {
  record.values.insert(record.values.end(), values.begin(), values.end());
}

// The fraction of padding that sub-batches would contain if all their sentences were padded to the same length.
void add_padding(Record& record, const Window& w) {
  if (w.padded == 0) return;
  record.values.emplace_back("padding", 1 - static_cast<double>(w.positions) / static_cast<double>(w.padded));
}

// The record's line, padded with blanks to a length that does not depend on measured times: equal runs send the same
// number of bytes.
std::string padded_line(const Record& record) {
  constexpr size_t kNumber = 28, kTimeBins = 40 * 48;  // the longest number, with its quotes; sub_batch_s/*
  std::string line = to_json_line(record);
  size_t length = kNumber + kTimeBins + record.split.size();
  for (const auto& [name, value] : record.values)
    if (!name.starts_with("sub_batch_s/")) length += name.size() + kNumber;
  line.resize(std::max(line.size(), length), ' ');
  return line;
}

std::string without_padding(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace

LossText RunLog::loss_text() const {
  return {s_.data.unit, s_.network.loss->plan().samples > 0};
}

RunLog::RunLog(RunState& run) : run_(run), s_(run.s), reached_(run.at.step) {
  if (s_.leads()) open_metrics();
  if (s_.leads() && s_.recipe.run.tensorboard) events_.emplace(run_.directory, run_.at.step);
  pace_.total_steps = run_.last_step();
  s_.comm.clear_ledger();  // bytes that were sent to build the session belong to no step
}

// If a run is killed, at most the last line is incomplete, and it belongs to a step after the checkpoint. Any other
// damaged line causes a warning.
void RunLog::open_metrics() {
  const std::string path = run_.directory + "/metrics.jsonl";
  metrics_.emplace(path, run_.at.step, run_.at.evaluated == run_.at.step);
  const KeptLines& kept = metrics_->kept();
  if (!kept.damaged.empty())
    log_warn(
        str("[metrics] ", path, ":", kept.damaged.front(), ": ",
            kept.damaged.size() == 1 ? "this line is" : str("this and ", kept.damaged.size() - 1, " more lines are"),
            " damaged and left out"));
  if (run_.at.records > kept.train)
    log_warn(str("[metrics] ", path, " lacks ", run_.at.records - kept.train, " of ", run_.at.records,
                 " records of the training up to step ", run_.at.step));
  run_.at.records = kept.train;
}

void RunLog::count_traffic() {
  if (s_.replicas && s_.replicas->exchanging()) return;  // the ledger belongs to the thread that exchanges
  s_.comm.measure_exchanges();  // the host has waited for the devices, since it has read the step's loss
  traffic_.add(s_.comm.ledger());
  s_.comm.clear_ledger();
}

void RunLog::count_step(int64_t step, const StepLoss& own, int64_t tokens, int ranks) {
  count_traffic();
  timeline_ = own.timeline;
  for (const SubBatchTime& t : timeline_) ++durations_[duration_bin(t.end - t.begin)];
  ++laps_;
  tokens_ += tokens;
  reached_ = pace_.step = step;
  if (!s_.leads()) return;
  if (pace_.seconds_per_step == 0) {  // before the first record
    Lap first = lap();
    first.tokens *= ranks;
    set_pace(first);
  }
  progress_line(progress_text(run_.at.window, pace_, loss_text()));
}

void RunLog::count_spread(const StepLoss& all) {
  ++spread_steps_;
  if (all.seconds > 0) spread_ += (all.slowest - all.seconds) / all.seconds;
}

Lap RunLog::lap() const {
  return {static_cast<double>(laps_), static_cast<double>(tokens_), watch_.elapsed()};
}

void RunLog::set_pace(const Lap& lap) {
  pace_.seconds_per_step = lap.seconds / std::max(lap.steps, 1.0);
  pace_.tokens_per_second = lap.seconds > 0 ? lap.tokens / lap.seconds : 0;
}

double RunLog::tokens_until(int64_t step) {
  Position& at = run_.at;
  for (; at.counted_steps < step; ++at.counted_steps) at.counted_tokens += run_.step_tokens(at.counted_steps);
  return static_cast<double>(at.counted_tokens);
}

void RunLog::write(const Record& record) {
  metrics_->write(record);
  if (events_) events_->write(record);
}

void RunLog::write_line(const std::string& line) {
  if (metrics_) metrics_->write_line(line);
}

void RunLog::sync() {
  if (metrics_) metrics_->sync();
}

void RunLog::fold_window() {
  CommTimes times = s_.sync->take_times();
  if (s_.replicas) times += s_.replicas->take_times();
  run_.at.open.add({laps_ - folded_laps_, traffic_.window(), s_.sync->take_health(), times});
  folded_laps_ = laps_;
  traffic_.next_window();
}

void RunLog::add_scale(Record& record) const {
  if (!run_.scaling.active()) return;
  const Window& w = run_.at.window;
  record.values.emplace_back("loss_scale", run_.at.loss_scale.scale);
  record.values.emplace_back("overflows", static_cast<double>(w.overflows));
  for (const auto& [name, count] : w.overflowed)
    record.values.emplace_back("overflow/" + name, static_cast<double>(count));
}

// This rank's record: bytes, memory and quantisation errors.
Record RunLog::own_record() {
  Record record = rank_record(run_.at.step, s_.ctx.rank, run_.at.open.traffic, s_.memory(), s_.comm.nodes().count());
  record.values.emplace_back("steps", static_cast<double>(run_.at.open.steps));
  traffic_.record(run_.at.open.traffic, run_.at.open.steps);
  size_t number = 0;
  for (const UnitTime& unit : s_.sync->timeline()) {
    const std::string name = str("unit/", number++, "/", unit.after_update ? "values of " : "", unit.params[0], "/");
    record.values.emplace_back(name + "bytes", static_cast<double>(std::max(unit.bytes.sent, unit.bytes.received)));
    record.values.emplace_back(name + "ready_s", unit.ready);
    record.values.emplace_back(name + "begin_s", unit.begin);
    record.values.emplace_back(name + "end_s", unit.end);
  }
  for (size_t i = 0; i < timeline_.size(); ++i) {
    const std::string name = str("sub_batch/", i, "/");
    record.values.emplace_back(name + "target_tokens", static_cast<double>(timeline_[i].tokens));
    record.values.emplace_back(name + "begin_s", timeline_[i].begin);
    record.values.emplace_back(name + "end_s", timeline_[i].end);
  }
  for (const auto& [bin, count] : durations_)
    record.values.emplace_back(str("sub_batch_s/", duration_of_bin(bin)), static_cast<double>(count));
  append(record, health_values(run_.at.open.health));
  return record;
}

// The record of all ranks. `ranks`: the lines of the ranks' own records.
Record RunLog::step_record(const std::vector<std::string>& ranks) {
  const TrafficSum sent = sum_of_steps(run_.at.open.traffic);
  const CommTimes& times = run_.at.open.times;
  // A worker's communication time is that of pulls and pushes, including waiting for its turn.
  const double served = seconds_at_servers(run_.at.open.traffic);
  const Window& w = run_.at.window;
  const double nll = w.tokens ? w.nats / static_cast<double>(w.tokens) : NAN;
  Record record{run_.at.step,
                "train",
                {{"epoch", static_cast<double>(run_.at.step) / static_cast<double>(s_.batcher.steps_per_epoch())},
                 {"nll_nat", nll},
                 {"nll_bit", nll / std::numbers::ln2},
                 {"ppl", std::exp(nll)},
                 {"lr", w.lr},
                 {"grad_norm", w.grad_norm},
                 {"skipped", static_cast<double>(w.skipped)},
                 {"tokens", tokens_until(run_.at.step)},
                 {"comm_sent_bytes", static_cast<double>(sent.sent)},
                 {"comm_received_bytes", static_cast<double>(sent.received)}}};
  if (s_.comm.nodes().count() > 1) {
    record.values.emplace_back("comm_sent_between_nodes_bytes", static_cast<double>(sent.sent_between_nodes));
    record.values.emplace_back("comm_received_between_nodes_bytes", static_cast<double>(sent.received_between_nodes));
  }
  for (const RuleRate& rate : s_.shared->rates) record.values.emplace_back("lr/" + rate.rule, w.lr * rate.factor);
  for (const auto& [name, sum] : w.terms)
    record.values.emplace_back("loss/" + name, w.tokens ? sum / static_cast<double>(w.tokens) : NAN);
  for (const auto& [name, rows] : w.rows)
    record.values.emplace_back("rows/" + name, static_cast<double>(rows) / static_cast<double>(w.updates));
  add_padding(record, w);
  add_scale(record);
  append(record, s_.sync->take_values());
  if (s_.leads()) append(record, health_values(health_of(ranks)));
  // Values that depend on measured time come last.
  record.values.insert(record.values.end(), {{"step_s", pace_.seconds_per_step},
                                             {s_.data.unit + "s_per_s", pace_.tokens_per_second},
                                             {"comm_s", times.busy + served},
                                             {"comm_exposed_s", times.exposed + served}});
  if (s_.sub_batches() && spread_steps_ > 0)
    record.values.emplace_back("step_spread", spread_ / static_cast<double>(spread_steps_));
  return record;
}

void RunLog::write_step(const Lap& lap) {
  watch_.lap();
  if (lap.steps > 0) set_pace(lap);
  pace_.step = run_.at.step;
  fold_window();
  const std::vector<std::string> ranks = s_.comm.gather_texts(padded_line(own_record()), "control");
  const Record record = step_record(ranks);
  if (s_.leads()) {
    metrics_->write(record);
    for (const std::string& line : ranks) metrics_->write_line(without_padding(line));
    if (events_) events_->write(record);
    const std::string line = progress_text(run_.at.window, pace_, loss_text());
    log_debug(line + notes(record));
    progress_line(line);
  }
  // The next step may make no update, and for a rank that makes its steps alone may not exist.
  run_.at.window = {.grad_norm = run_.at.window.grad_norm, .lr = run_.at.window.lr};
  run_.at.open = {};
  ++run_.at.records;
  laps_ = folded_laps_ = tokens_ = spread_steps_ = 0;
  spread_ = 0;
  durations_.clear();
}

}  // namespace lmx
