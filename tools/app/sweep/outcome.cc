#include "app/sweep/journal.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/print/words.h"
#include "app/records/records.h"
#include "app/sweep/plan.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

// Returns the value of the last line like "valid ppl 97.30" that the run printed.
std::optional<double> printed(const Metric& metric, const std::string& log) {
  const std::string key = metric.text() + " ";
  std::istringstream lines(jobs::read_text(log));
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
  std::istringstream text(jobs::read_text(log));
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
  if (code > 128) return {Outcome::failed, lmx::str("ended by signal ", code - 128, ", ", last_error(log))};
  const bool told = status.state == "failed" && !status.reason.empty();
  const std::string reason = told ? status.reason : lmx::str("exit code ", code, ": ", last_error(log));
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

using lmx::str;
using lmx::UserError;
using Words = std::vector<std::string>;

const Words kSplits{"valid", "test", "train", "rank"};
const Words kTranslation{"BLEU", "multi_bleu", "multi_bleu_split"};  // only after a run has ended (train.final_bleu)
const Words kValid{"ppl", "nll_nat", "nll_bit", "bpc", "bpb", "tokens", "epoch", "train_s"};
const Words kTrain{"ppl",
                   "nll_nat",
                   "nll_bit",
                   "tokens",
                   "epoch",
                   "lr",
                   "grad_norm",
                   "skipped",
                   "comm_sent_bytes",
                   "padding",
                   "loss_scale",
                   "overflows",
                   "step_s",
                   "words_per_s",
                   "chars_per_s",
                   "bytes_per_s",
                   "subwords_per_s",
                   "step_spread",
                   "comm_s",
                   "comm_exposed_s",
                   "comm_received_bytes",
                   "comm_sent_between_nodes_bytes",
                   "comm_received_between_nodes_bytes"};

bool in(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Words keys_of(const std::string& split) {
  if (split == "train") return kTrain;
  Words keys = split == "valid" ? kValid : Words{};
  keys.insert(keys.end(), kTranslation.begin(), kTranslation.end());
  return keys;
}

}  // namespace

// The keys of parameters and groups (`rows/softmax.weight`, `comm/tables/...`) are not known before a run.
void check_metric(const Metric& metric, const Halving& halving) {
  if (!in(kSplits, metric.split))
    throw UserError(str("[sweep] metric ", metric.split, ".", metric.key, ": there is no split '", metric.split, "'",
                        lmx::did_you_mean(metric.split, kSplits), "; there are ", joined(kSplits)));
  const Words keys = keys_of(metric.split);
  const bool named = metric.split == "rank" || metric.key.find('/') != std::string::npos;
  if (!named && !in(keys, metric.key))
    throw UserError(str("[sweep] metric ", metric.split, ".", metric.key, ": records of split ", metric.split,
                        " have no '", metric.key, "'", lmx::did_you_mean(metric.key, keys), "; they have ",
                        joined(keys)));
  if (halving.eta > 0 && in(kTranslation, metric.key))
    throw UserError(str("[sweep] metric ", metric.split, ".", metric.key,
                        " is there once a run has ended, so that halving cannot go by it; take valid.ppl"));
}

}  // namespace lmx_cli::sweeps
