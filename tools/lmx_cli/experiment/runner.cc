#include "runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <list>
#include <sstream>
#include <thread>

#include "journal.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/train.h"
#include "process.h"
#include "progress.h"

namespace lmx_cli::experiments {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using lmx::str;
using lmx::UserError;

constexpr auto kPollEvery = std::chrono::milliseconds(50);

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Under a temporary name first: a recipe that a kill cut short would look like another experiment's.
void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path + ".tmp", std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(path + ".tmp", path, error);
  if (!file || error) throw lmx::RunError(str("[experiment] cannot write ", path));
}

// "error: ..." of a process that ended badly, as its log has it.
std::string last_error(const std::string& log) {
  const std::string text = read_text(log);
  const size_t at = text.rfind("error: ");
  if (at == std::string::npos) return "see " + log;
  return text.substr(at + 7, text.find('\n', at) - at - 7);
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct Runner::Impl {
  struct Running {
    const Cell* cell;
    Child child;
    Clock::time_point start;
  };

  const Experiment& experiment;
  const std::vector<Cell>& cells;
  RunnerOptions options;
  DirectoryLock lock;
  Journal journal;
  std::list<Running> running;
  Ending ending;
  int told = 0;  // signals that the children know of

  Impl(const Experiment& e, const std::vector<Cell>& all, RunnerOptions o)
      : experiment(e), cells(all), options(std::move(o)), lock(options.out), journal(options.out + "/journal.jsonl") {}

  std::string folder(const Cell& cell) const { return options.out + "/cells/" + source(cell).id; }
  std::string recipe(const Cell& cell) const { return folder(cell) + ".yaml"; }
  std::string log(const Cell& cell) const { return folder(cell) + ".log"; }
  const Cell& source(const Cell& cell) const;
  void check_recipes() const;
  std::vector<std::string> command(const Cell& cell) const;
  void start(const Cell& cell);
  bool reap(Progress& progress);
  void finish(const Running& ended);
  void pass_signals_on();
};

// The cell whose run this one shares.
const Cell& Runner::Impl::source(const Cell& cell) const {
  if (cell.same_as.empty()) return cell;
  return *std::find_if(cells.begin(), cells.end(), [&](const Cell& c) { return c.id == cell.same_as; });
}

void Runner::Impl::check_recipes() const {
  std::string other;
  for (const Cell& cell : cells) {
    std::error_code error;
    if (!cell.same_as.empty() || !cell.runs || !fs::exists(recipe(cell), error)) continue;
    if (read_text(recipe(cell)) != cell.yaml) other += (other.empty() ? "" : ", ") + cell.id;
  }
  if (!other.empty())
    throw UserError(str("[experiment] ", options.out, " holds cells that ran with another recipe: ", other,
                        "; remove their files in ", options.out,
                        "/cells and journal.jsonl's lines, or give another --out"));
}

std::vector<std::string> Runner::Impl::command(const Cell& cell) const {
  std::vector<std::string> words{own_program()};
  if (cell.types) {
    const TypesCell& t = experiment.types;
    words.insert(words.end(), {"data", "stats", recipe(cell), "--sequence-length", std::to_string(t.sequence_length),
                               "--max-tokens", std::to_string(t.max_tokens), "--draws", std::to_string(t.draws),
                               "--plot", folder(cell) + "/types.svg", "--records", folder(cell) + "/metrics.jsonl"});
    return words;
  }
  words.insert(words.end(), {"run", recipe(cell), "run.dir=" + folder(cell), "--resume", "auto"});
  for (const std::string& directory : options.plugin_directories)
    words.insert(words.end(), {"--plugin-dir", directory});
  return words;
}

void Runner::Impl::start(const Cell& cell) {
  std::error_code error;
  if (cell.types) fs::create_directories(folder(cell), error);
  write_text(recipe(cell), cell.yaml);
  running.push_back({&cell, Child(command(cell), log(cell)), Clock::now()});
}

// An evaluation needs the run's last checkpoint, which is of no use afterwards.
void Runner::Impl::finish(const Running& ended) {
  const Cell& cell = *ended.cell;
  Journal::Entry entry{since(ended.start), {}};
  if (!cell.types) {
    for (const std::string& split : experiment.evaluate) {
      lmx::EvalOptions evaluation;
      evaluation.split = split;
      const lmx::EvalResult r = lmx::evaluate_run(folder(cell), evaluation);
      entry.evaluations.push_back(
          {r.step, split, {{"ppl", r.ppl}, {"nll_nat", r.nll_nat}, {"tokens", static_cast<double>(r.tokens)}}});
      if (!r.translation) continue;
      entry.evaluations.back().values.emplace("bleu", r.translation->bleu);
      entry.evaluations.back().values.emplace("multi_bleu", r.translation->multi_bleu);
    }
  }
  journal.add(cell.id, entry);
  std::error_code error;
  if (!options.keep_checkpoints && !cell.types) fs::remove_all(folder(cell) + "/checkpoints", error);
}

void Runner::Impl::pass_signals_on() {
  if (SignalNote::count() == told) return;
  told = SignalNote::count();
  ending.signal = SignalNote::received();
  for (const Running& r : running) r.child.send(SIGTERM);  // the second one ends a run at once
}

// True when a cell has ended.
bool Runner::Impl::reap(Progress& progress) {
  for (auto r = running.begin(); r != running.end(); ++r) {
    const std::optional<int> code = r->child.poll();
    if (!code) continue;
    const Cell& cell = *r->cell;
    if (*code == 0) {
      finish(*r);
    } else if (!ending.signal) {
      const bool killed = *code > 128;
      ending.failed[cell.id] =
          str(killed ? "ended by signal " : "exit code ", killed ? *code - 128 : *code, ": ", last_error(log(cell)));
    }
    const bool good = *code == 0;
    const double seconds = since(r->start);
    running.erase(r);
    if (good || !ending.signal) progress.ended(cell, seconds, good ? "" : ending.failed[cell.id]);
    return true;
  }
  return false;
}

Runner::Runner(const Experiment& experiment, const std::vector<Cell>& cells, RunnerOptions options)
    : impl_(std::make_unique<Impl>(experiment, cells, std::move(options))) {
  std::error_code error;
  fs::create_directories(impl_->options.out + "/cells", error);
  impl_->check_recipes();
}
Runner::~Runner() = default;

Ending Runner::run(const std::vector<std::string>& wanted) {
  const SignalNote note;
  std::deque<const Cell*> waiting;
  for (const Cell& cell : impl_->cells) {
    const bool asked = std::find(wanted.begin(), wanted.end(), cell.id) != wanted.end();
    const Cell& source = impl_->source(cell);
    if (!asked || !cell.runs || impl_->journal.find(source.id)) continue;
    if (std::find(waiting.begin(), waiting.end(), &source) == waiting.end()) waiting.push_back(&source);
  }
  Progress progress({waiting.begin(), waiting.end()}, impl_->options.out + "/cells/");
  while (!waiting.empty() || !impl_->running.empty()) {
    while (!waiting.empty() && !impl_->ending.signal &&
           impl_->running.size() < static_cast<size_t>(impl_->options.jobs)) {
      impl_->start(*waiting.front());
      progress.started(*waiting.front());
      waiting.pop_front();
    }
    if (impl_->running.empty()) break;
    impl_->pass_signals_on();
    if (!impl_->reap(progress)) std::this_thread::sleep_for(kPollEvery);
    progress.show();
  }
  progress.done();
  impl_->pass_signals_on();
  return impl_->ending;
}

bool Runner::done(const Cell& cell) const {
  return impl_->journal.find(impl_->source(cell).id) != nullptr;
}

std::vector<RunRecord> Runner::records(const Cell& cell) const {
  std::vector<RunRecord> records = read_records(impl_->folder(cell));
  const Journal::Entry* entry = impl_->journal.find(impl_->source(cell).id);
  if (entry) records.insert(records.end(), entry->evaluations.begin(), entry->evaluations.end());
  return records;
}

}  // namespace lmx_cli::experiments
