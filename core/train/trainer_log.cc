// The output of the training loop: speed, traffic, and the records of a log step.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text.h"
#include "lmx/log.h"
#include "recipe/sync_rules.h"
#include "train/trainer.h"

namespace lmx::train {
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

}  // namespace

void Trainer::count_traffic() {
  traffic_.add(s_.comm.ledger());
  s_.comm.clear_ledger();
}

int64_t Trainer::step_tokens(int64_t step) const {
  return s_.size_of_step(step).tokens;
}

// The tokens that a step adds to this rank's speed: all tokens of a synchronous step, or the rank's part of an
// asynchronous one.
int64_t Trainer::own_tokens(int64_t step) const {
  const int64_t all = step_tokens(step);
  return s_.asynchronous() ? all * s_.sequences / s_.recipe.batch.global : all;
}

void Trainer::record(const std::string& line) {
  if (metrics_) metrics_->write_line(line);
}

double Trainer::tokens_until(int64_t step) {
  for (; at_.counted_steps < step; ++at_.counted_steps) at_.counted_tokens += step_tokens(at_.counted_steps);
  return static_cast<double>(at_.counted_tokens);
}

void Trainer::show_progress() {
  ++laps_;
  lap_tokens_ += own_tokens((s_.asynchronous() ? at_.worker.step : at_.step) - 1);
  reached_ = pace_.step = s_.asynchronous() ? at_.worker.step : at_.step;
  if (!s_.leads()) return;
  if (pace_.seconds_per_step == 0) {  // before the first record
    Lap lap = own_lap();
    if (s_.asynchronous()) lap.tokens *= s_.comm.size();
    set_pace(lap);
  }
  progress_line(progress_text(at_.window, pace_, s_.data.unit));
}

void Trainer::set_pace(const Lap& lap) {
  pace_.seconds_per_step = lap.seconds / std::max(lap.steps, 1.0);
  pace_.tokens_per_second = lap.seconds > 0 ? lap.tokens / lap.seconds : 0;
}

Trainer::Lap Trainer::own_lap() const {
  return {static_cast<double>(laps_), static_cast<double>(lap_tokens_), watch_.elapsed()};
}

// The fraction of padding that sub-batches would contain if all their sentences were padded to the same length.
void Trainer::add_sub_batches(Record& record) const {
  const Window& w = at_.window;
  if (w.padded == 0) return;
  record.values.emplace_back("padding", 1 - static_cast<double>(w.positions) / static_cast<double>(w.padded));
}

void Trainer::add_scale(Record& record) const {
  if (!scaling_.active()) return;
  const Window& w = at_.window;
  record.values.emplace_back("loss_scale", at_.loss_scale.scale);
  record.values.emplace_back("overflows", static_cast<double>(w.overflows));
  for (const auto& [name, count] : w.overflowed)
    record.values.emplace_back("overflow/" + name, static_cast<double>(count));
}

// Moves the counters of this rank since the last record to at_.open, which a checkpoint stores.
void Trainer::fold_window() {
  at_.open.add({laps_ - folded_laps_, traffic_.window(), s_.sync->take_health(), s_.sync->take_times()});
  folded_laps_ = laps_;
  traffic_.next_window();
}

// This rank's record: bytes, memory and quantisation errors.
Record Trainer::own_record() {
  Record record = rank_record(at_.step, s_.ctx.rank, at_.open.traffic, s_.memory());
  record.values.emplace_back("steps", static_cast<double>(at_.open.steps));
  traffic_.record(at_.open.traffic, at_.open.steps);
  size_t number = 0;
  for (const UnitTime& unit : s_.sync->timeline()) {
    const std::string name = str("unit/", number++, "/", unit.first, "/");
    record.values.emplace_back(name + "bytes", static_cast<double>(std::max(unit.sent, unit.received)));
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
  append(record, health_values(at_.open.health));
  return record;
}

namespace {

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

// Writes the training record, and a record for each rank.
void Trainer::log_step() {
  const Lap lap = s_.asynchronous() ? group_lap_ : own_lap();
  watch_.lap();
  if (lap.steps > 0) set_pace(lap);
  if (s_.asynchronous()) pace_.step = at_.step;
  fold_window();
  const TrafficSum sent = sum_of_steps(at_.open.traffic);
  CommTimes times = at_.open.times;
  // A worker's communication time includes waiting for its turn, for values, and for its gradients to be sent.
  if (s_.asynchronous()) times.busy = times.exposed = seconds_at_servers(at_.open.traffic);
  const std::vector<std::string> ranks = s_.comm.gather_texts(padded_line(own_record()), "control");
  const Window& w = at_.window;
  const double nll = w.tokens ? w.nats / static_cast<double>(w.tokens) : NAN;
  Record record{at_.step,
                "train",
                {{"epoch", static_cast<double>(at_.step) / static_cast<double>(s_.batcher.steps_per_epoch())},
                 {"nll_nat", nll},
                 {"nll_bit", nll / std::numbers::ln2},
                 {"ppl", std::exp(nll)},
                 {"lr", w.lr},
                 {"grad_norm", w.grad_norm},
                 {"skipped", static_cast<double>(w.skipped)},
                 {"tokens", tokens_until(at_.step)},
                 {"comm_sent_bytes", static_cast<double>(sent.sent)},
                 {"comm_received_bytes", static_cast<double>(sent.received)}}};
  for (const auto& [name, sum] : w.terms)
    record.values.emplace_back("loss/" + name, w.tokens ? sum / static_cast<double>(w.tokens) : NAN);
  for (const auto& [name, rows] : w.rows)
    record.values.emplace_back("rows/" + name, static_cast<double>(rows) / static_cast<double>(w.updates));
  add_sub_batches(record);
  add_scale(record);
  append(record, s_.sync->take_values());
  if (s_.leads()) append(record, health_values(health_of(ranks)));
  // Values that depend on measured time come last.
  record.values.insert(record.values.end(), {{"step_s", pace_.seconds_per_step},
                                             {s_.data.unit + "s_per_s", pace_.tokens_per_second},
                                             {"comm_s", times.busy},
                                             {"comm_exposed_s", times.exposed}});
  if (s_.sub_batches() && !s_.asynchronous() && laps_ > 0)
    record.values.emplace_back("step_spread", spread_ / static_cast<double>(laps_));
  if (s_.leads()) {
    metrics_->write(record);
    for (const std::string& line : ranks) metrics_->write_line(without_padding(line));
    if (events_) events_->write(record);
    const std::string line = progress_text(w, pace_, s_.data.unit);
    log_debug(line + notes(record));
    progress_line(line);
  }
  at_.window = {};
  at_.open = {};
  ++at_.records;
  laps_ = folded_laps_ = lap_tokens_ = 0;
  spread_ = 0;
  durations_.clear();
}

}  // namespace lmx::train
