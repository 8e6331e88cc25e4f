#include "app/cells/runner.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <numbers>
#include <optional>

#include "app/cells/launcher.h"
#include "app/cells/progress.h"
#include "app/inference/average.h"
#include "app/inference/evaluate_run.h"
#include "app/jobs/pool.h"
#include "app/probe/probe_texts.h"
#include "app/records/line_file.h"
#include "app/records/run_status.h"
#include "app/translation/translate.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "recipe/recipe.h"
#include "runfiles/checkpoint.h"

namespace lmx_cli::experiments {
namespace {

namespace fs = std::filesystem;
using lmx::str;
using lmx::UserError;

}  // namespace

struct Runner::Impl {
  const Experiment& experiment;
  const std::vector<Cell>& cells;
  RunnerOptions options;
  jobs::DirectoryLock lock;
  Finished finished;
  Ending ending;

  Impl(const Experiment& e, const std::vector<Cell>& all, RunnerOptions o)
      : experiment(e), cells(all), options(std::move(o)), lock(options.out), finished(cells, options.out) {}

  std::string folder(const Cell& cell) const { return finished.folder(cell); }
  std::string recipe(const Cell& cell) const { return finished.recipe(cell); }
  std::string log(const Cell& cell) const { return finished.log(cell); }
  std::vector<std::string> command(const Cell& cell) const;
  bool start(const Cell& cell, CellLauncher& launcher);
  void reap(const jobs::Ended& ended, Progress& progress);
  int64_t evaluate(const Cell& cell, const std::string& parameters, const std::string& prefix, RunRecord& record) const;
  RunRecord probe_corpus(const Cell& cell, const std::string& corpus) const;
  void finish(const Cell& cell, double seconds);
  void settle(const Cell& cell, const Journal::Entry& entry);
};

std::vector<std::string> Runner::Impl::command(const Cell& cell) const {
  if (!cell.types) return jobs::run_command(recipe(cell), folder(cell), options.plugin_directories);
  const TypesCell& t = experiment.types;
  return {jobs::own_program(),
          "data",
          "stats",
          recipe(cell),
          "--sequence-length",
          std::to_string(t.sequence_length),
          "--max-tokens",
          std::to_string(t.max_tokens),
          "--draws",
          std::to_string(t.draws),
          "--plot",
          folder(cell) + "/types.svg",
          "--records",
          folder(cell) + "/metrics.jsonl"};
}

// Writes the recipe atomically: a recipe cut off by a kill would look like that of another experiment. Returns false if
// there is no room for the cell.
bool Runner::Impl::start(const Cell& cell, CellLauncher& launcher) {
  std::error_code error;
  if (cell.types) fs::create_directories(folder(cell), error);
  lmx::write_file(recipe(cell), cell.yaml);
  return launcher.start({cell, command(cell), log(cell)});
}

// Evaluates `parameters` (last, or a file) on a split and stores each result under `prefix` + key. Returns the step of
// the parameters.
int64_t Runner::Impl::evaluate(const Cell& cell, const std::string& parameters, const std::string& prefix,
                               RunRecord& record) const {
  lmx::EvalOptions evaluation;
  evaluation.split = record.split;
  evaluation.checkpoint = parameters;
  evaluation.shards = experiment.shards;
  const lmx::EvalResult r = lmx::evaluate_run(folder(cell), evaluation);
  record.values[prefix + "ppl"] = r.ppl;
  record.values[prefix + "nll_nat"] = r.nll_nat;
  record.values[prefix + "nll_bit"] = r.nll_nat / std::numbers::ln2;
  record.values[prefix + "tokens"] = static_cast<double>(r.tokens);
  if (r.compression_ratio) record.values[prefix + "compression_ratio"] = *r.compression_ratio;
  if (r.words) record.values[prefix + "word_ppl"] = r.words->ppl;
  if (r.sharded) record.values[prefix + "shards/bpc"] = r.sharded->nll_nat / std::numbers::ln2;
  if (!r.translation) return r.step;
  record.values[prefix + "bleu"] = r.translation->bleu;
  record.values[prefix + "multi_bleu"] = r.translation->multi_bleu;
  record.values[prefix + "multi_bleu_split"] = r.translation->multi_bleu_split;
  return r.step;
}

// Returns accuracies in percent, of the run's features and of bytes alone.
RunRecord Runner::Impl::probe_corpus(const Cell& cell, const std::string& corpus) const {
  const ProbeTexts texts = texts_of_corpus(corpus, {}, 1);
  const ProbeFeatures f = features_of_texts(folder(cell), texts, {});
  RunRecord record{0, "probe", {}};
  const auto add = [&](const lmx::ProbeResult& r, const std::string& prefix) {
    for (const lmx::ProbeFit& fit : r.fits) record.values[prefix + fit.penalty] = 100 * fit.test;
  };
  const lmx::ProbeResult r = lmx::probe(f.train, f.valid, f.test, {});
  add(r, corpus + "/");
  record.values[corpus + "/strongest_unit"] = r.strongest.weight == 0 ? NAN : 100 * r.strongest.test;
  add(probe_bytes(texts, {}), corpus + "/bytes_");
  return record;
}

// Records a cell in the journal, and deletes its checkpoints, which are no longer needed.
void Runner::Impl::settle(const Cell& cell, const Journal::Entry& entry) {
  finished.add(cell, entry);
  if (options.keep_checkpoints || cell.types) return;
  std::error_code error;
  fs::remove_all(folder(cell) + "/checkpoints", error);
  fs::remove(folder(cell) + "/" + lmx::kMeanFile, error);
}

// Evaluates a cell that has ended; this needs the last checkpoints of its run.
void Runner::Impl::finish(const Cell& cell, double seconds) {
  Journal::Entry entry{seconds, {}};
  std::string mean;
  if (!cell.types && experiment.mean_of_last > 0) {
    mean = folder(cell) + "/" + lmx::kMeanFile;
    lmx::average_checkpoints({lmx::last_checkpoints(folder(cell), experiment.mean_of_last), "", 0, 0}, mean);
  }
  for (size_t i = 0; !cell.types && i < experiment.evaluate.size(); ++i) {
    RunRecord record{0, experiment.evaluate[i], {}};
    record.step = evaluate(cell, "last", "", record);
    if (!mean.empty()) evaluate(cell, mean, "mean/", record);
    entry.evaluations.push_back(std::move(record));
  }
  if (!cell.types)
    for (const std::string& corpus : experiment.probe) entry.evaluations.push_back(probe_corpus(cell, corpus));
  settle(cell, entry);
}

void Runner::Impl::reap(const jobs::Ended& ended, Progress& progress) {
  const Cell& cell = *std::find_if(cells.begin(), cells.end(), [&](const Cell& c) { return c.id == ended.id; });
  const jobs::RunStatus status = cell.types ? jobs::RunStatus{} : jobs::read_status(folder(cell));
  if (ended.code == 0) {
    finish(cell, ended.seconds);
  } else if (ending.signal) {
    return;
  } else if (ended.code == 1 && status.diverged()) {  // divergence is a result, as in the papers' tables
    settle(cell, {ended.seconds, {}, status.reason.empty() ? "diverged" : status.reason});
    progress.diverged(cell, ended.seconds, status.reason);
    return;
  } else {
    const bool killed = ended.code > 128;
    ending.failed[cell.id] = str(killed ? "ended by signal " : "exit code ", killed ? ended.code - 128 : ended.code,
                                 ": ", jobs::last_error(log(cell)));
  }
  progress.ended(cell, ended.seconds, ended.code == 0 ? "" : ending.failed[cell.id]);
}

Runner::Runner(const Experiment& experiment, const std::vector<Cell>& cells, RunnerOptions options)
    : impl_(std::make_unique<Impl>(experiment, cells, std::move(options))) {
  std::error_code error;
  fs::create_directories(impl_->options.out + "/cells", error);
}
Runner::~Runner() = default;

const Finished& Runner::finished() const {
  return impl_->finished;
}

Ending Runner::run(const std::vector<std::string>& wanted) {
  std::deque<const Cell*> waiting;
  for (const Cell& cell : impl_->cells) {
    const bool asked = std::find(wanted.begin(), wanted.end(), cell.id) != wanted.end();
    const Cell& source = impl_->finished.source(cell);
    if (!asked || !cell.runs || impl_->finished.done(cell)) continue;
    if (std::find(waiting.begin(), waiting.end(), &source) == waiting.end()) waiting.push_back(&source);
  }
  const RunnerOptions& o = impl_->options;
  const std::unique_ptr<CellLauncher> launcher =
      o.slurm ? slurm_cells({o.out + "/slurm", o.jobs, o.scheduler}) : local_cells(o.jobs, waiting.size());
  Progress progress({waiting.begin(), waiting.end()}, o.out + "/cells/");
  const auto interrupted = [&] { return (impl_->ending.signal = launcher->signal()) != 0; };
  while (!waiting.empty() || launcher->running() > 0) {
    while (!waiting.empty() && !interrupted() && impl_->start(*waiting.front(), *launcher)) {
      progress.started(*waiting.front());
      waiting.pop_front();
    }
    if (launcher->running() == 0 || (interrupted() && launcher->outlives())) break;
    const std::optional<jobs::Ended> ended = launcher->poll();
    if (interrupted() && launcher->outlives()) break;
    if (ended) {
      impl_->reap(*ended, progress);
      launcher->recorded(ended->id);
    } else {
      jobs::Pool::wait();
    }
    progress.show();
  }
  progress.done();
  static_cast<void>(launcher->poll());  // collects a signal that came last
  static_cast<void>(interrupted());
  return impl_->ending;
}

}  // namespace lmx_cli::experiments
