// The state of a sweep from the lines of its journal. The journal is untrusted input: every value is checked before
// use.
#include "app/sweep/journal.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "app/print/words.h"
#include "app/records/records.h"
#include "app/sweep/plan.h"
#include "base/clock.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app::sweep {
namespace {

// The names in files, in the order of Outcome.
constexpr std::array kNames{"", "done", "diverged", "out_of_memory", "failed", "preempted", "stopped", "paused"};

// Returns none for an unknown name.
Outcome outcome_named(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? Outcome::none : static_cast<Outcome>(found - kNames.begin());
}

size_t point_of(const Plan& plan, const std::string& id) {
  const size_t point = plan.index_of(id);
  if (point == plan.points.size()) throw UserError(str("there is no point ", id));
  return point;
}

std::optional<double> value_of(const Json& json) {
  const Json& value = json.at("value");
  return value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt;
}

void apply_end(const Plan& plan, std::vector<State>& states, const Json& json) {
  State& s = states[point_of(plan, json.at("point"))];
  const Outcome outcome = outcome_named(json.at("outcome"));
  if (outcome == Outcome::none) throw UserError(str("unknown outcome ", json.at("outcome").dump()));
  s.outcome = outcome;
  s.step = integer_at(json, "step");
  s.value = value_of(json);
  s.seconds += json.at("seconds").get<double>();
  s.reason = json.value("reason", "");
  if (s.outcome != Outcome::paused) ++s.attempts;
}

Batch read_batch(const Json& json) {
  Batch batch{integer_at(json, "batch"), json.at("name"), "", {}};
  for (const Json& task : json.at("tasks")) batch.tasks.push_back({task.at("point"), integer_at(task, "until")});
  return batch;
}

}  // namespace

int64_t integer_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_integer()) throw UserError(str("'", key, "' is no whole number"));
  return value.get<int64_t>();
}

void Standing::apply(const Plan& plan, const std::string& line, const std::string& where) {
  try {
    const Json json = Json::parse(line);
    const auto event = json.at("event").get<std::string>();
    if (event == "start") {
      State& s = states[point_of(plan, json.at("point"))];
      s.begun = true;
      s.outcome = Outcome::none;
    } else if (event == "end") {
      apply_end(plan, states, json);
    } else if (event == "value") {
      states[point_of(plan, json.at("point"))].value = value_of(json);
    } else if (event == "rung") {
      ++rungs;
      for (const Json& id : json.at("stopped")) states[point_of(plan, id)].outcome = Outcome::stopped;
    } else if (event == "submitting") {
      batches.push_back(read_batch(json));
    } else if (event == "submitted") {
      for (Batch& batch : batches)
        if (batch.number == json.at("batch")) batch.job = json.at("job");
    } else {
      throw UserError(str("unknown event ", event));
    }
  } catch (const Json::exception& e) {
    throw UserError(str("[sweep] ", where, " is damaged: ", e.what()));
  } catch (const UserError& e) {
    throw UserError(str("[sweep] ", where, " is damaged: ", e.what()));
  }
}

Standing read_standing(const Plan& plan, const std::string& directory) {
  const std::string path = directory + "/journal.jsonl";
  Standing standing{std::vector<State>(plan.points.size()), {}, 0};
  const std::string text = read_text(path);
  size_t begin = 0, number = 1;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    standing.apply(plan, text.substr(begin, end - begin), str(path, ":", number++));
  return standing;
}

const char* name_of(Outcome outcome) {
  return kNames[static_cast<size_t>(outcome)];
}

Journal::Journal(const Plan& plan, const std::string& directory) : plan_(plan), path_(directory + "/journal.jsonl") {
  static_cast<void>(read_journal(path_));  // removes an incomplete last line
  standing_ = read_standing(plan, directory);
}

void Journal::write(const Json& event) {
  Json json{{"time", local_time("%Y-%m-%dT%H:%M:%S%z")}};
  json.update(event);
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  append_line(path_, text);
  standing_.apply(plan_, text, path_);
}

void Journal::started(size_t point, int64_t until) {
  Json json{{"event", "start"}, {"point", plan_.points[point].id}, {"attempt", standing_.states[point].attempts + 1}};
  if (until > 0) json["until"] = until;
  write(json);
}

void Journal::ended(size_t point, const Judgement& how, int64_t step, std::optional<double> value, double seconds) {
  Json json{{"event", "end"},
            {"point", plan_.points[point].id},
            {"outcome", name_of(how.outcome)},
            {"step", step},
            {"value", nullptr},
            {"seconds", std::round(seconds * 1000) / 1000}};
  if (value) json["value"] = *value;
  if (!how.reason.empty()) json["reason"] = how.reason;
  write(json);
}

void Journal::measured(size_t point, std::optional<double> value) {
  Json json{{"event", "value"}, {"point", plan_.points[point].id}, {"metric", plan_.request.metric.text()}};
  json["value"] = value ? Json(*value) : Json(nullptr);
  write(json);
}

void Journal::rung(int64_t step, const std::vector<size_t>& stopped) {
  Json json{{"event", "rung"}, {"step", step}, {"stopped", Json::array()}};
  for (const size_t point : stopped) json["stopped"].push_back(plan_.points[point].id);
  write(json);
}

void Journal::submitting(const Batch& batch) {
  Json json{{"event", "submitting"}, {"batch", batch.number}, {"name", batch.name}, {"tasks", Json::array()}};
  for (const Batch::Task& task : batch.tasks) json["tasks"].push_back({{"point", task.point}, {"until", task.until}});
  write(json);
}

void Journal::submitted(int64_t batch, const std::string& job) {
  write({{"event", "submitted"}, {"batch", batch}, {"job", job}});
}

namespace {

// Returns the value of the last line like "valid ppl 97.30" that the run printed.
std::optional<double> printed(const Metric& metric, const std::string& log) {
  const std::string key = metric.text() + " ";
  std::istringstream lines(read_text(log));
  std::optional<double> value;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    char* end = nullptr;
    const double number = std::strtod(line.c_str() + key.size(), &end);
    if (end != line.c_str() + key.size()) value = number;
  }
  return value;
}

std::optional<double> recorded(const Metric& metric, const std::string& run) {
  std::error_code error;
  if (!std::filesystem::exists(run + "/metrics.jsonl", error)) return {};
  std::optional<double> value;
  for (const RunRecord& record : read_records(run))
    if (record.split == metric.split && record.values.contains(metric.key)) value = record.at(metric.key);
  return value;
}

// Returns the last "error: ..." in the log of a process that failed; otherwise where to look. A line that begins with
// it comes before those of launchers, as "srun: error: ...", which report the end of a process below its own message.
std::string last_error(const std::string& log) {
  constexpr size_t kBelow = 20;  // lines of a launcher that follow the message of its program
  const std::string mark = "error: ";
  std::vector<std::string> lines;
  std::istringstream text(read_text(log));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  size_t last = lines.size();
  while (last > 0 && lines[last - 1].find(mark) == std::string::npos) --last;
  if (last == 0) return "see " + log;
  for (size_t i = last; i > 0 && i + kBelow > last; --i)
    if (lines[i - 1].starts_with(mark)) return lines[i - 1].substr(mark.size());
  return lines[last - 1].substr(lines[last - 1].find(mark) + mark.size());
}

}  // namespace

Judgement judge(const jobs::Ended& ended, const std::string& run, const std::string& log) {
  const RunStatus status = read_status(run);
  const int code = ended.code;
  if (code == 0) return {status.state == "paused" ? Outcome::paused : Outcome::done, ""};
  if (ended.memory_killed && code == 128 + SIGKILL) return {Outcome::out_of_memory, "killed for lack of memory"};
  if (!ended.outside.empty()) return {Outcome::preempted, "ended from outside: " + ended.outside};
  if (code == 128 + SIGKILL) return {Outcome::preempted, "killed from outside"};
  if (code == 128 + SIGTERM || code == 128 + SIGINT)
    return {Outcome::preempted, code == 128 + SIGINT ? "SIGINT from outside" : "SIGTERM from outside"};
  if (code > 128) return {Outcome::failed, str("ended by signal ", code - 128, ", ", last_error(log))};
  const bool told = status.state == "failed" && !status.reason.empty();
  const std::string reason = told ? status.reason : str("exit code ", code, ": ", last_error(log));
  if (status.diverged()) return {Outcome::diverged, reason};
  const bool refused =
      reason.find("[memory]") != std::string::npos && reason.find("cannot allocate") != std::string::npos;
  if (status.cause == "out_of_memory" || refused || reason.find("out of memory") != std::string::npos)
    return {Outcome::out_of_memory, reason};
  return {Outcome::failed, reason};
}

std::optional<double> read_metric(const Metric& metric, const std::string& run, const std::string& log) {
  std::optional<double> value = recorded(metric, run);
  if (!value) value = printed(metric, log);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// The numbers of a run that a sweep can use: keys of metrics.jsonl, and lines that the run prints (docs/run-files.md).

namespace {

using Words = std::vector<std::string>;

const Words kSplits{"valid", "test", "train", "rank"};
// kTranslation: only after a run has ended (train.final_bleu).
const Words kTranslation = config::split("BLEU multi_bleu multi_bleu_split", ' ');
const Words kValid = config::split("ppl nll_nat nll_bit bpc bpb tokens epoch train_s", ' ');
const Words kTrain = config::split(
    "ppl nll_nat nll_bit tokens epoch lr grad_norm skipped comm_sent_bytes padding loss_scale overflows step_s "
    "words_per_s chars_per_s bytes_per_s subwords_per_s step_spread comm_s comm_exposed_s comm_received_bytes "
    "comm_sent_between_nodes_bytes comm_received_between_nodes_bytes",
    ' ');

bool in(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

Words record_keys(const std::string& split) {
  if (split == "train") return kTrain;
  Words keys = split == "valid" ? kValid : Words{};
  keys.insert(keys.end(), kTranslation.begin(), kTranslation.end());
  return keys;
}

void check_metric(const Metric& metric, const Halving& halving) {
  if (!in(kSplits, metric.split))
    throw UserError(str("metric ", metric.split, ".", metric.key, ": there is no split '", metric.split, "'",
                        did_you_mean(metric.split, kSplits), "; there are ", joined(kSplits)));
  const Words keys = record_keys(metric.split);
  const bool named = metric.split == "rank" || metric.key.find('/') != std::string::npos;
  if (!named && !in(keys, metric.key))
    throw UserError(str("metric ", metric.split, ".", metric.key, ": records of split ", metric.split, " have no '",
                        metric.key, "'", did_you_mean(metric.key, keys), "; they have ", joined(keys)));
  if (halving.eta > 0 && in(kTranslation, metric.key))
    throw UserError(str("metric ", metric.split, ".", metric.key,
                        " is there once a run has ended, so that halving cannot go by it; take valid.ppl"));
}

namespace {

struct Competitor {
  std::vector<size_t> paused;
  double sum = 0;
  int64_t values = 0;
  bool bad = false;  // a point of the configuration has no value
  double mean() const { return sum / static_cast<double>(values); }
};

std::map<size_t, Competitor> configurations(const Plan& plan, const std::vector<State>& states) {
  std::map<size_t, Competitor> all;
  for (size_t p = 0; p < plan.points.size(); ++p) {
    Competitor& c = all[plan.points[p].configuration];
    const State& s = states[p];
    if (s.outcome == Outcome::paused) c.paused.push_back(p);
    const bool good = s.value && (s.outcome == Outcome::paused || s.outcome == Outcome::done);
    if (!good) {
      c.bad = true;
      continue;
    }
    c.sum += *s.value;
    ++c.values;
  }
  return all;
}

}  // namespace

int64_t rung_step(const Plan& plan, const Journal& journal) {
  const Halving& h = plan.request.halving;
  if (h.eta == 0) return 0;
  // Configurations with a point that can still continue.
  std::map<size_t, bool> open;
  int64_t longest = 0;
  for (size_t p = 0; p < plan.points.size(); ++p) {
    if (journal.state(p).ended() && journal.state(p).outcome != Outcome::preempted) continue;
    open[plan.points[p].configuration] = true;
    longest = std::max(longest, plan.points[p].steps);
  }
  int64_t step = h.min;
  for (int64_t k = 0; k < journal.rungs(); ++k) step *= h.eta;
  const bool beyond = longest > 0 && step >= longest;
  return open.size() < 2 || beyond ? 0 : step;
}

std::string why_no_rung(const Plan& plan) {
  const Halving& h = plan.request.halving;
  if (h.eta == 0 || plan.points.empty()) return "";
  if (plan.points.back().configuration == 0) return "there is one configuration, and seeds do not compete";
  const auto shorter = [](const Point& a, const Point& b) { return a.steps < b.steps; };
  const int64_t longest = std::max_element(plan.points.begin(), plan.points.end(), shorter)->steps;
  if (longest == 0 || h.min < longest) return "";
  return str("all points have ended by then: min is ", h.min, ", train.steps ", longest);
}

std::vector<size_t> losers(const Plan& plan, const std::vector<State>& states) {
  std::vector<Competitor> alive;
  for (auto& [index, c] : configurations(plan, states))
    if (!c.paused.empty()) alive.push_back(c);
  std::stable_sort(alive.begin(), alive.end(), [&](const Competitor& a, const Competitor& b) {
    if (a.bad != b.bad) return b.bad;
    return !a.bad && plan.request.metric.better(a.mean(), b.mean());
  });
  const size_t keep = std::max<size_t>(1, alive.size() / static_cast<size_t>(plan.request.halving.eta));
  std::vector<size_t> points;
  for (size_t i = keep; i < alive.size(); ++i)
    points.insert(points.end(), alive[i].paused.begin(), alive[i].paused.end());
  std::sort(points.begin(), points.end());
  return points;
}

}  // namespace lmx::app::sweep
