#include "app/experiment/runner.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "app/inference/evaluate_run.h"
#include "app/inference/saved_run.h"
#include "app/jobs/slurm.h"
#include "app/print/words.h"
#include "app/probe/transfer.h"
#include "app/records/records.h"
#include "app/run/run.h"
#include "app/runs/run_directory.h"
#include "app/sweep/journal.h"
#include "app/translation/translate.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::experiment {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDying = "/.checkpoints";  // of a finished cell, until they are deleted

class CellRunner final : public jobs::Runner {
 public:
  CellRunner(const Experiment& experiment, const std::vector<const Cell*>& cells, Finished& finished,
             const RunnerOptions& options, jobs::Launcher& launcher, jobs::Progress& progress)
      : Runner(launcher, progress), experiment_(experiment), finished_(finished), options_(options) {
    for (const Cell* cell : cells) {
      cells_[cell->id] = cell;
      const std::string run = finished.folder(*cell), log = finished.log(*cell);
      waiting_.push_back({cell->id, command(*cell), run, log, cell->demand, 0, [this, cell] { write_recipe(*cell); }});
    }
  }

  Ending run() {
    drive();
    ending_.signal = jobs::SignalNote::received();
    return ending_;
  }

 private:
  // Written atomically: a recipe that a kill has cut off would look like that of another experiment.
  void write_recipe(const Cell& cell) const {
    std::error_code error;
    if (cell.types) fs::create_directories(finished_.folder(cell), error);
    write_file(finished_.recipe(cell), cell.yaml);
  }

  std::vector<std::string> command(const Cell& cell) const {
    const std::string recipe = finished_.recipe(cell), folder = finished_.folder(cell);
    if (!cell.types) return jobs::run_command(recipe, folder, options_.plugin_directories);
    const TypesCell& t = experiment_.types;
    std::vector<std::string> words{own_program(), "data", "stats", recipe};
    words.insert(words.end(), {"--sequence-length", std::to_string(t.sequence_length)});
    words.insert(words.end(), {"--max-tokens", std::to_string(t.max_tokens), "--draws", std::to_string(t.draws)});
    words.insert(words.end(), {"--plot", folder + "/types.svg", "--records", folder + "/metrics.jsonl"});
    return words;
  }

  // Evaluates `parameters` (last, or a file) on a split and stores each result under `prefix` + key. Returns the step
  // of the parameters.
  int64_t evaluate(const Cell& cell, const std::string& parameters, const std::string& prefix,
                   RunRecord& record) const {
    EvalOptions evaluation;
    evaluation.split = record.split;
    evaluation.checkpoint = parameters;
    evaluation.shards = experiment_.shards;
    const EvalResult r = evaluate_run(finished_.folder(cell), evaluation);
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
  RunRecord probe_corpus(const Cell& cell, const std::string& corpus) const {
    const ProbeTexts texts = texts_of_corpus(corpus, {}, 1);
    const ProbeFeatures f = features_of_texts(finished_.folder(cell), texts, {});
    RunRecord record{0, "probe", {}};
    const auto add = [&](const ProbeResult& r, const std::string& prefix) {
      for (const ProbeFit& fit : r.fits) record.values[prefix + fit.penalty] = 100 * fit.test;
    };
    const ProbeResult r = probe(f.train, f.valid, f.test, {});
    add(r, corpus + "/");
    record.values[corpus + "/strongest_unit"] = r.strongest.weight == 0 ? NAN : 100 * r.strongest.test;
    add(probe_bytes(texts, {}), corpus + "/bytes_");
    return record;
  }

  // Records a cell in the journal, and deletes its checkpoints, which are no longer needed. They get another name
  // first, so that nothing reads the rest of them if this process is killed meanwhile.
  void settle(const Cell& cell, const Journal::Entry& entry) {
    finished_.add(cell, entry);
    if (options_.keep_checkpoints || cell.types) return;
    const std::string folder = finished_.folder(cell);
    std::error_code error;
    fs::remove(folder + "/" + kMeanFile, error);
    fs::rename(folder + "/checkpoints", folder + kDying, error);
    fs::remove_all(folder + kDying, error);
  }

  // Evaluates a cell that has ended; this needs the last checkpoints of its run.
  void finish(const Cell& cell, double seconds) {
    Journal::Entry entry{seconds, {}};
    std::string mean;
    if (!cell.types && experiment_.mean_of_last > 0) {
      mean = finished_.folder(cell) + "/" + kMeanFile;
      average_checkpoints({last_checkpoints(finished_.folder(cell), experiment_.mean_of_last), "", 0, 0}, mean);
    }
    for (size_t i = 0; !cell.types && i < experiment_.evaluate.size(); ++i) {
      RunRecord record{0, experiment_.evaluate[i], {}};
      record.step = evaluate(cell, "last", "", record);
      if (!mean.empty()) evaluate(cell, mean, "mean/", record);
      entry.evaluations.push_back(std::move(record));
    }
    if (!cell.types)
      for (const std::string& corpus : experiment_.probe) entry.evaluations.push_back(probe_corpus(cell, corpus));
    settle(cell, entry);
  }

  // Why the results of a cell cannot be compared with those of the others; "": they can. Another folder, LMX_DATA_DIR
  // or changed files give cells of one recipe different texts.
  std::string other_data(const Cell& cell) const {
    const std::string own = to_yaml(*cell.composed.find("data")), hash = recorded_data_hash(finished_.folder(cell));
    for (const Cell& other : finished_.cells()) {
      const bool alike =
          &other != &cell && other.runs && !other.types && other.same_as.empty() && finished_.done(other);
      if (!alike || to_yaml(*other.composed.find("data")) != own) continue;
      const std::string folder = finished_.folder(other), there = recorded_data_hash(folder);
      if (there != hash && !there.empty())
        return str("its data differs from that of cell ", other.id, ", although both recipes have the same `data`; ",
                   "remove the folder of the wrong one of ", finished_.folder(cell), " and ", folder,
                   " (and the line of a finished cell in journal.jsonl), and run it with the right files");
    }
    return "";
  }

  void ended(const jobs::Ended& job) override {
    if (interrupted() && job.code != 0) return progress_.interrupted(job.id);
    const Cell& cell = *cells_.at(job.id);
    const std::string folder = finished_.folder(cell);
    const sweep::Judgement how = sweep::judge(job, folder, finished_.log(cell));
    const std::string outcome = sweep::name_of(how.outcome);
    const std::string wrong = job.code == 0 && !cell.types ? other_data(cell) : "";
    if (!wrong.empty())
      ending_.failed[cell.id] = wrong;
    else if (job.code == 0)
      finish(cell, job.seconds);
    else if (how.outcome == sweep::Outcome::diverged)  // a result, as in the papers' tables
      settle(cell, {job.seconds, {}, how.reason});
    else
      ending_.failed[cell.id] = str(outcome, ": ", how.reason);
    const auto step = static_cast<int64_t>(jobs::last_number(folder, "step"));
    progress_.ended(job.id, {outcome, step, "", job.seconds, how.reason, true});
  }

  const Experiment& experiment_;
  Finished& finished_;
  const RunnerOptions options_;
  std::map<std::string, const Cell*> cells_;
  Ending ending_;
};

// Cells as jobs of Slurm. This program only submits and watches them; they continue when it ends.
//
//   slurm/ID.sh           the batch script, in the form of docs/cluster.md
//   slurm/ID.out          the output of the script; that of the cell is in cells/ID.log
//   slurm/ID.HASH.exit    the exit code of the cell, as soon as it has one; removed when the result has been recorded,
//                         and when the job starts again
//
// The name of a job follows from the folder, the cell and its recipe, so that a job is found again after this program
// was killed, and a job of another recipe has another name.

namespace slurm = jobs::slurm;

// The exit codes of a run that has written a checkpoint because of SIGINT, or of SIGTERM, SIGUSR1 and others. srun also
// returns 143 if one rank has failed and it has ended the others, so the output of this start must name the checkpoint.
constexpr const char* kStopped = "$code == 130 || $code == 143";
constexpr const char* kCheckpoint = ": stopped after step ";

// Submits a job for each cell. A job that is already in the queue, or that has ended since an earlier process submitted
// it, is not submitted again. The options of sbatch become lines of the script.
class SlurmCells final : public jobs::SlurmLauncher {
 public:
  SlurmCells(const jobs::SlurmOptions& options, const std::vector<Cell>& cells)
      : SlurmLauncher(options), cells_(cells) {
    std::error_code error;
    fs::create_directories(options.folder, error);
    folder_ = fs::weakly_canonical(options.folder).string();
    if (folder_.find_first_of(" \t\"'\\%") != std::string::npos)
      throw UserError(str("[slurm] --out ", folder_, ": Slurm's scripts name this folder, so it may hold no space, ",
                          "quote, backslash or %"));
  }

  size_t start(const std::deque<jobs::Job>& waiting) override {
    const size_t before = running().size(), most = options_.jobs > 0 ? static_cast<size_t>(options_.jobs) : SIZE_MAX;
    size_t started = 0;
    for (; started < waiting.size() && before + started < most && jobs::SignalNote::count() == 0; ++started)
      start(waiting[started]);
    return started;
  }

 private:
  // Finds the job in the queue, or its exit code, or submits it.
  void start(const jobs::Job& job) {
    const Cell& cell = *std::find_if(cells_.begin(), cells_.end(), [&](const Cell& c) { return c.id == job.id; });
    const std::string name = job_name(cell);
    std::string number = slurm::settled_job_named(name).id;
    if (!number.empty()) {
      say(LogLevel::info, str("cell ", job.id, " is job ", number, " already"));
    } else if (read_text(exit_file(cell)).empty()) {
      jobs::prepare(job);
      const std::string file = str(folder_, "/", job.id, ".sh");
      write_file(file, script(cell, job, name));
      number = slurm::submit({file});
      say(LogLevel::info, str("cell ", job.id, ": submitted as job ", number));
    }
    watch(job.id, number, exit_file(cell));
  }

  static std::string hash_of(const std::string& text) {
    std::ostringstream hash;
    hash << std::hex << std::hash<std::string>()(text);
    return hash.str();
  }
  std::string exit_file(const Cell& cell) const { return str(folder_, "/", cell.id, ".", hash_of(cell.yaml), ".exit"); }
  std::string job_name(const Cell& cell) const { return str("lmx-", hash_of(folder_ + cell.yaml), "-", cell.id); }

  std::string directives(const Cell& cell, const std::string& name) const {
    std::vector<std::string> options{"--job-name=" + name, str("--ntasks=", cell.demand.processes)};
    if (cell.demand.threads > 0) options.push_back(str("--cpus-per-task=", cell.demand.threads));
    options.insert(options.end(), {str("--output=", folder_, "/", cell.id, ".out"), "--open-mode=append", "--requeue",
                                   "--signal=USR1@120"});
    options.insert(options.end(), options_.scheduler.begin(), options_.scheduler.end());
    std::string text;
    for (const std::string& option : options) text += "#SBATCH " + option + "\n";
    return text;
  }

  // A run that ends with a checkpoint, because its time is over, is queued again; if Slurm refuses that, its exit code
  // is recorded.
  std::string script(const Cell& cell, const jobs::Job& job, const std::string& name) const {
    const Node full = parse_yaml(cell.yaml, cell.id);
    const bool mpi = text_at(full, "comm.name") == "mpi";
    std::string command =
        str("srun ", mpi ? "--mpi=${SLURM_MPI_TYPE:-pmix} " : "", "--kill-on-bad-exit=1 -n ", job.demand.processes);
    if (job.demand.threads > 0) command += str(" -c ", job.demand.threads);  // srun does not take it over
    for (const std::string& word : job.words) command += " " + shell_quoted(word);
    const std::string done = shell_quoted(exit_file(cell)), log = shell_quoted(job.log);
    return str(
        "#!/bin/bash\n", directives(cell, name), "rm -f ", done, "\ncd ", shell_quoted(fs::current_path().string()),
        "\n", "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n", "export LMX_JOB_SECRET=$(openssl rand -hex 16)\n",
        "before=$(stat -c %s ", log, " 2>/dev/null || echo 0)\n\n", command, " >> ", log, " 2>&1\n", "code=$?\n",
        "if [[ ", kStopped, " ]] && tail -c \"+$((before + 1))\" ", log, " | grep -q '", kCheckpoint,
        "' && scontrol requeue \"$SLURM_JOB_ID\"; then exit; fi\n", "echo \"$code\" > ", done, ".tmp && mv ", done,
        ".tmp ", done, "\nexit \"$code\"\n");
  }

  const std::vector<Cell>& cells_;
  std::string folder_;
};

// The name of the GPU or of the processor of a run's last start; "" if its provenance.json does not say.
std::string device_of(const std::string& run) {
  const Json all = Json::parse(read_text(run + "/provenance.json"), nullptr, false);
  if (!all.is_object() || !all.contains("starts") || !all["starts"].is_array() || all["starts"].empty()) return "";
  const Json& start = all["starts"].back();
  const Json::json_pointer gpu("/compute/cuda/name"), processor("/host/cpu");
  const Json::json_pointer& name = start.contains(gpu) ? gpu : processor;
  return start.contains(name) && start[name].is_string() ? start[name].get<std::string>() : "";
}

}  // namespace

Ending run_cells(const Experiment& experiment, const std::vector<Cell>& cells, Finished& finished,
                 const std::vector<std::string>& wanted, const RunnerOptions& options) {
  std::error_code error;
  fs::create_directories(finished.out() + "/cells", error);
  std::vector<const Cell*> waiting;
  std::vector<jobs::Progress::Job> shown;
  for (const Cell& cell : cells) {
    const bool asked = std::find(wanted.begin(), wanted.end(), cell.id) != wanted.end();
    const Cell& source = finished.source(cell);
    if (finished.done(cell)) fs::remove_all(finished.folder(cell) + kDying, error);
    if (!asked || !cell.runs || finished.done(cell)) continue;
    if (std::find(waiting.begin(), waiting.end(), &source) != waiting.end()) continue;
    waiting.push_back(&source);
    shown.push_back({source.id, finished.folder(source), source.length});
  }
  const jobs::SlurmOptions slurm{"cell", finished.out() + "/slurm", options.jobs, options.scheduler};
  const std::unique_ptr<jobs::Launcher> launcher =
      options.slurm ? std::make_unique<SlurmCells>(slurm, cells) : jobs::local_launcher(options.jobs, waiting.size());
  jobs::Progress progress(std::move(shown), {"cell"});
  return CellRunner(experiment, waiting, finished, options, *launcher, progress).run();
}

Finished::Finished(const std::vector<Cell>& cells, std::string out)
    : cells_(cells), out_(std::move(out)), journal_(out_ + "/journal.jsonl") {
  check_recipes();
}

const Cell& Finished::source(const Cell& cell) const {
  if (cell.same_as.empty()) return cell;
  return *std::find_if(cells_.begin(), cells_.end(), [&](const Cell& c) { return c.id == cell.same_as; });
}

void Finished::check_recipes() const {
  std::string other;
  for (const Cell& cell : cells_) {
    std::error_code error;
    if (!cell.same_as.empty() || !cell.runs || !fs::exists(recipe(cell), error)) continue;
    const bool same = is_same_recipe(read_text(recipe(cell)), cell.yaml);
    if (!same) other += (other.empty() ? "" : ", ") + cell.id;
  }
  if (!other.empty())
    throw UserError(str("[experiment] ", out_, " holds cells that ran with another recipe: ", other,
                        "; remove their files in ", out_, "/cells and journal.jsonl's lines, or give another --out"));
}

std::vector<RunRecord> Finished::records(const Cell& cell) const {
  std::vector<RunRecord> records;
  std::error_code error;  // a run that diverges at its first step has no records
  if (fs::exists(folder(cell) + "/metrics.jsonl", error)) records = read_records(folder(cell));
  const Journal::Entry* entry = journal_.find(source(cell).id);
  if (!entry) return records;
  records.insert(records.end(), entry->evaluations.begin(), entry->evaluations.end());
  if (!cell.types) records.push_back({0, kOutcome, {{kDiverged, entry->diverged.empty() ? 0.0 : 1.0}}});
  return records;
}

std::set<std::string> Finished::devices() const {
  std::set<std::string> names;
  for (const Cell& cell : cells_)
    if (cell.runs && !cell.types && done(cell)) names.insert(device_of(folder(cell)));
  names.erase("");
  return names;
}

std::map<std::string, std::vector<RunRecord>> Finished::all_records() const {
  std::map<std::string, std::vector<RunRecord>> all;
  for (const Cell& cell : cells_)
    if (cell.runs && done(cell)) all[cell.id] = records(cell);
  return all;
}

}  // namespace lmx::app::experiment
