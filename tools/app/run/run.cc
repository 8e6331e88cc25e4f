// lmx run: recipe -> session -> folder -> loop -> result. Errors in the input are reported before the folder exists.
#include "app/run/run.h"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <new>

#include "app/corpora/corpus_place.h"
#include "app/datasets/open.h"
#include "app/inference/average.h"
#include "app/memory/memory_check.h"
#include "app/run/agreement.h"
#include "app/run/crash.h"
#include "app/run/init.h"
#include "app/run/rank_trace.h"
#include "app/run/resume.h"
#include "app/runs/run_directory.h"
#include "app/runs/supervision.h"
#include "app/text/text_codec.h"
#include "app/translation/translate.h"
#include "backend/cuda.h"
#include "backend/cudnn.h"
#include "base/files.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/matmul.h"
#include "lmx/plugin.h"
#include "plugin/description.h"
#include "recipe/checked_recipe.h"
#include "recipe/comm_config.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics_reader.h"
#include "tensor/caching_allocator.h"
#include "train/evaluate.h"
#include "train/loop/trainer.h"
#include "train/signals.h"

namespace lmx {
namespace {

using namespace train;

// Writes the log to log.txt during its lifetime.
struct LogFile {
  explicit LogFile(const std::string& path) { set_log_file(path); }
  ~LogFile() { set_log_file(""); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
};

std::vector<RecipeChange> changes_of(const Resumed& resumed) {
  std::vector<RecipeChange> changes;
  for (const Difference& d : resumed.changes) changes.push_back({d.key, d.there, d.here, resumed.at.step});
  return changes;
}

Provenance provenance_of(const Session& s, const InitReport& init, const RunOptions& options) {
  Provenance p;
  p.command_line = options.command_line;
  p.data_hash = s.data.hash;
  p.data_directory = s.data.directory;
  p.data_note = s.data.source_note;
  p.valid_true_perplexity = s.data.true_perplexity;
  for (const PluginInfo& plugin : Registry::instance().list())
    if (plugin.descriptor) p.plugins.push_back(plugin);
  p.device = name_of(s.ctx.device);
  if (s.ctx.device.kind == Device::Kind::cuda) p.cuda = cuda_device_info(s.ctx.device.index);
  p.cudnn = cudnn_version_of_run(s.ctx.device, s.recipe.precision);
  p.isa = cpu_isa();
  p.precision = s.recipe.precision;
  p.threads = s.comm.threads();
  p.lr_factor = s.shared->lr_factor;
  p.parameters = s.params.count();
  p.init = init;
  return p;
}

// Returns whether steps have sequences that are shorter than the longest possible one.
bool varies(const Session& s) {
  return s.batcher.step_size(0).tokens > 0;
}

// Examples: "batch 6 sequences = 30 words"; "batch 128 sub-batches, 16 a rank = 402,112 words in the first step".
std::string batch_text(const Session& s) {
  const int64_t items = s.recipe.batch.global;
  if (!s.sub_batches())
    return str("batch ", items, " sequences = ", count_text(s.size_of_step(0).tokens), " ", s.data.unit,
               varies(s) ? "s in the first step" : "s");
  const auto ranks = static_cast<int64_t>(s.comm.size());
  return str("batch ", items, items == 1 ? " sub-batch" : " sub-batches",
             ranks > 1 ? str(", ", (items + ranks - 1) / ranks, " a rank") : "", " = ",
             count_text(s.size_of_step(0).tokens), " ", s.data.unit, "s in the first step");
}

// Example: "cuda:0 (NVIDIA H100 80GB HBM3, compute capability 9.0)".
std::string device_text(Device device) {
  const std::string details = device.kind == Device::Kind::cpu ? cpu_isa() : describe(cuda_device_info(device.index));
  return str(name_of(device), " (", details, ")");
}

void announce(const Session& s, const InitReport& init, const CommGroup& group, const std::string& directory) {
  log_info(str("run ", directory));
  log_info(str("device ", device_text(s.ctx.device), ", ", group.describe(), ", ", s.comm.threads(),
               s.comm.threads() == 1 ? " thread" : " threads", group.size() == 1 ? ", " : " each, ",
               s.recipe.precision));
  if (s.ctx.device.kind == Device::Kind::cpu && s.recipe.precision == "bf16" && multiplies_in_f32(DType::bf16))
    log_warn(
        "this CPU multiplies bf16 no faster than fp32: matrix products round their inputs to bf16 and run in fp32, so "
        "precision=fp32 would be a little faster");
  for (const std::string& line : warnings_of(s.recipe, s.network, *s.sync, s.comm.size(), s.batcher.plan()))
    log_warn(line);
  log_info(str(count_text(s.params.count()), " parameters, vocabulary ", count_text(s.data.vocabulary.size())));
  log_info(str(batch_text(s), ", ", count_text(s.batcher.steps_per_epoch()), " steps an epoch, ",
               count_text(s.shared->total_steps), " steps"));
  for (const std::string& line : describe(init)) log_info(line);
  for (const std::string& line : s.batcher.describe()) log_info(line);
  if (s.recipe.lr_rule.name != "fixed")
    log_info(str("lr_rule ", s.recipe.lr_rule.name, ": factor ", s.shared->lr_factor));
  for (const std::string& line : s.sync->describe(s.comm.size())) log_info(line);
  if (!s.data.report.empty()) log_debug(s.data.report);
}

std::string memory_text(const std::string& what, const MemoryStats& stats) {
  std::string text = str(what, " ", bytes_text(stats.total_peak), ":");
  for (int c = 0; c < kMemClasses; ++c)
    text += str(c ? ", " : " ", name_of(static_cast<MemClass>(c)), " ", bytes_text(stats.peak[static_cast<size_t>(c)]));
  return text;
}

void trace(Session& s) {
  s.ctx.tracer = &s.tracer;
  if (s.ctx.device.kind == Device::Kind::cuda) s.tracer.measure_device(cuda_device(s.ctx.device.index).clock());
}

// The counts contain the work of the whole process: all virtual ranks, validation and checkpoints.
std::string work_text(const DeviceCounts& counts) {
  return str("the device did ", count_text(counts.all_launches()), " launches of kernels and graphs, ",
             count_text(counts.uploads.times), " uploads (", bytes_text(counts.uploads.bytes), ") and ",
             count_text(counts.downloads.times), " downloads (", bytes_text(counts.downloads.bytes),
             "); the host waited for it ", count_text(counts.waits), " times");
}

// Collective. Reports the memory of rank 0 and, if there are several ranks, the maximum over ranks and the bytes of a
// step.
void report_totals(Session& s, const TrafficCounter& traffic) {
  const MemoryStats memory = s.memory();
  const double own[] = {static_cast<double>(memory.total_peak), static_cast<double>(sum_of(traffic.recorded()).sent)};
  double most = 0, sent = 0;
  {
    const std::vector<double> all = s.comm.gather_numbers(own, "control");
    for (size_t i = 0; i < all.size(); i += 2) {
      most = std::max(most, all[i]);
      sent += all[i + 1];
    }
  }
  const std::vector<std::string> tables = s.comm.gather_texts(traffic.to_json(), "control");
  if (!s.leads()) return;
  log_info(memory_text("peak memory", memory));
  if (s.ctx.device.kind == Device::Kind::cuda) {
    log_info(memory_text("peak memory of the host for tensors", s.ctx.host->stats()));
    const CudaDevice& device = cuda_device(s.ctx.device.index);
    if (const int64_t graphs = device.graph_memory().peak; graphs > 0)
      log_info(str("peak memory of CUDA graphs on the device ", bytes_text(graphs), ", of all ranks of this process"));
    log_debug(work_text(device.counts()));
  }
  for (const std::string& line : s.sync->summary()) log_info(line);
  if (s.comm.size() == 1) return;
  log_info(str("most of any rank ", bytes_text(static_cast<int64_t>(most)), "; up to the last record all ranks sent ",
               bytes_text(static_cast<int64_t>(sent)), ", a rank and step (mean of ranks, most of any):"));
  for (const std::string& line : traffic_lines(tables)) log_info("  " + line);
}

RunResult result_of(const Session& s, const Trainer& trainer, const std::string& directory, int code) {
  const Position& at = trainer.position();
  RunResult r;
  r.stopped = trainer.stopped();
  r.reached_target = trainer.reached_target();
  r.directory = directory;
  r.steps = at.step;
  r.paused = trainer.paused();
  r.valid_ppl = trainer.valid_ppl();
  r.valid_nll = trainer.valid_nll();
  r.unit = s.data.unit;
  r.best_ppl = at.best_ppl;
  r.best_step = at.best_step;
  r.true_ppl = s.data.true_perplexity;
  r.train_seconds = at.seconds;
  r.exit_code = code;
  r.translates = s.network.model->translates();
  r.leads = s.leads();
  return r;
}

// Returns the cause of the end, for programs that start runs.
std::string cause_of(const std::exception& e) {
  if (dynamic_cast<const Diverged*>(&e)) return "diverged";
  const bool memory = dynamic_cast<const std::bad_alloc*>(&e) || dynamic_cast<const OutOfMemory*>(&e);
  return memory ? "out_of_memory" : "";
}

// Rank 0 writes the status. Other processes also write it, because rank 0 may be lost or may wait for a lost rank. A
// rank without access to rank 0's disk finds no file. Never throws: the first error is the one to report.
void note_failure(const Session& s, const std::string& directory, int64_t step, const std::string& reason,
                  const std::string& cause = "") {
  if (!s.leads() && s.comm.shares_memory()) return;
  try {
    if (says_running(directory)) write_status(directory, "failed", step, reason, cause);
  } catch (const std::exception&) {  // a full disk
  }
}

// Runs the loop and keeps status.json up to date, also after an error.
RunResult train_in(Session& s, const std::string& directory, const Resumed& resumed, int64_t until) {
  const Position& start = resumed.at;
  Trainer trainer(s, directory, start, until);
  for (const RecipeChange& change : changes_of(resumed)) trainer.record(to_json_line(change));
  if (s.leads()) write_status(directory, "running", start.step, "");
  std::optional<CrashStatus> crash;
  if (s.leads()) crash.emplace(directory + "/status.json", host_name(), trainer.reached());
  std::optional<TerminationNote> words;
  if (!s.comm.shares_memory())
    words.emplace([&](const std::string& reason) { note_failure(s, directory, trainer.reached(), reason); });
  try {
    s.comm.barrier();  // a rank that crashes in its first step finds a status to complete
    const int code = trainer.run();
    crash.reset();
    if (s.leads()) {
      progress_line("");
      const char* state = code != 0 ? "interrupted" : trainer.paused() ? "paused" : "done";
      write_status(directory, state, trainer.position().step, trainer.stopped());
    }
    report_totals(s, trainer.traffic());
    if (s.leads() && trainer.position().loss_scale.overflows > 0) log_info(census_text(trainer.position().loss_scale));
    return result_of(s, trainer, directory, code);
  } catch (const std::exception& e) {
    if (s.leads()) {
      progress_line("");
      log_debug(str("failed: ", e.what()));
    }
    crash.reset();
    note_failure(s, directory, trainer.position().step, e.what(), cause_of(e));
    throw;
  }
}

struct RunPlan {
  const Recipe& recipe;
  const Node& full;
  const std::string& name;
  const RunOptions& options;
  const CommGroup& group;
  InitReport& init;  // of the process; written while its first session is made
};

// Returns rank 0's path on all ranks. The text is padded with zeros, so that the bytes of a run, which its first record
// counts, do not depend on the length of its folder's name.
std::string first_ranks_path(Communicator& comm, std::string path) {
  path.resize(std::max<size_t>(path.size(), PATH_MAX), '\0');
  return comm.gather_texts(path, "control")[0].c_str();
}

// Rank 0 finds or creates the folder and sends its path to the other ranks.
std::string agree_on_directory(const RunPlan& plan, Communicator& comm, bool& resuming) {
  std::string own;
  std::string directory = comm.rank() == 0 ? directory_to_resume(plan.options.resume, plan.recipe) : "";
  if (comm.rank() == 0) {
    resuming = !directory.empty() && !holds_nothing(directory);
    if (resuming) static_cast<void>(read_run_config(directory));
    own = (resuming ? "+" : "-") + directory;
  }
  const std::string said = first_ranks_path(comm, own);
  resuming = said[0] == '+';
  if (!resuming && !plan.options.changed_keys.empty())
    throw UserError("[run] --change is for a run that is resumed, and there is none to resume yet");
  return said.substr(1);
}

// Processes that train together were started separately, perhaps from different files. Compares everything that affects
// the results.
void check_agreement(const RunPlan& plan, Communicator& comm) {
  if (comm.size() == 1 || comm.shares_memory()) {
    require_one_process(detect_launch(), comm.size() == 1 ? "self" : "virtual");
    return;
  }
  std::vector<Agreed> own{{"build of lmx", sha256_of_file(core_library())},
                          {"recipe", to_yaml(plan.full)},
                          {"--until", str(plan.options.until_step)}};
  for (const PluginInfo& plugin : Registry::instance().list())
    if (plugin.descriptor) own.push_back({str("plugin ", plugin.kind, "/", plugin.name), plugin.hash});
  check_equal_everywhere(comm, own);
}

// Each host has read its own files, so compares their hashes.
void check_same_data(const Session& s, const InitReport& init) {
  if (s.comm.size() == 1 || s.comm.shares_memory()) return;
  check_equal_everywhere(
      s.comm, {{"text (hash of its data)", s.data.hash}, {"weights to start from (hash of init.from)", init.sha256}});
}

void check_outputs(const Session& s, const RunOptions& options) {
  if (!s.leads()) return;
  if (!options.trace_file.empty()) require_writable("[run] --trace", options.trace_file);
  if (!s.asynchronous()) return;
  const std::string& schedule = s.sync->servers().front()->config().schedule;
  if (!schedule.empty()) require_writable("[sync] schedule", schedule);
}

void check_final_bleu(const Session& s) {
  const std::string& split = s.recipe.train.final_bleu;
  if (split == "none") return;
  if (!s.network.model->translates())
    throw UserError(
        str("[run] train.final_bleu is ", split, ", but this recipe's model does not translate; set it to none"));
  if ((split == "test" ? s.data.test_pairs : s.data.valid_pairs).size() == 0)
    throw UserError(
        str("[run] train.final_bleu is ", split, ", but the ", split, " split of this data holds no pairs"));
}

// Evaluates `train.final_bleu` after the run is complete, so that an error or interrupt here loses no training.
TranslationQuality translate_at_end(const Recipe& recipe, const RunResult& run) {
  // A run that ended early because of `stop.when` may have fewer checkpoints.
  const std::vector<std::string> last = last_checkpoints(run.directory, recipe.train.final_average);
  std::string checkpoint = "last";
  if (last.size() > 1) {
    checkpoint = run.directory + "/" + kMeanFile;
    average_checkpoints({last, "", 0, 0}, checkpoint);
  }
  TranslationQuality q = *evaluate_run(run.directory, {recipe.train.final_bleu, checkpoint, true, {}}).translation;
  q.averaged = static_cast<int64_t>(last.size());
  write_translation(run.directory, {run.steps,
                                    q.split,
                                    {{"BLEU", q.bleu},
                                     {"multi_bleu", q.multi_bleu},
                                     {"multi_bleu_split", q.multi_bleu_split},
                                     {"averaged", static_cast<double>(q.averaged)}}});
  return q;
}

// Returns the group of ranks. Throws EndProcess when the ranks have ended, if `comm` has started them as other
// processes.
std::unique_ptr<CommGroup> make_group(const Recipe& recipe, const RunOptions& options, bool launched) {
  const auto begin = std::filesystem::file_time_type::clock::now();
  try {
    return make_comm_group(recipe.comm, "comm", comm_env(recipe, options.command_line));
  } catch (const EndProcess& e) {
    const bool named = !options.resume.empty() && options.resume != "auto";
    if (!launched && e.code != 0)
      note_lost_run(named ? options.resume : newest_run(recipe.run.dir, recipe.name), begin,
                    e.said ? "the ranks were ended before they could save" : e.what());
    throw;
  }
}

// If a corpus is missing, adds the advice in the recipe's `provenance.smaller`: what can be trained without it.
template <class Look>
auto with_advice(const Recipe& r, Look&& look) {
  try {
    return look();
  } catch (const data::CorpusMissing& e) {
    const Node* smaller = r.provenance.find("smaller");
    if (!smaller || smaller->text.empty()) throw;
    throw UserError(str(e.what(), "\n", smaller->text));
  }
}

Dataset open_data(const Recipe& r) {
  return with_advice(r, [&] { return open_dataset(r.data); });
}

// UserError: files of the data are missing.
void require_data(const Recipe& r) {
  with_advice(r, [&] { require_files(r.data); });
}

// A resumed run takes all parameters from its own checkpoint.
InitConfig start_of(const Recipe& recipe, const std::string& resumed_from) {
  InitConfig init = recipe.init;
  if (!resumed_from.empty() && !list_checkpoints(resumed_from).empty()) init.from.clear();
  return init;
}

RunResult run_rank(const RunPlan& plan, Communicator& comm) {
  check_agreement(plan, comm);
  require_memory(plan.recipe, comm);
  bool resuming = false;
  std::string directory = agree_on_directory(plan, comm, resuming);
  const std::string resumed_from = resuming ? directory : "";
  Session session(plan.recipe, comm,
                  {.resumed = resumed_from,
                   .open = [&] { return open_data(plan.recipe); },
                   .init =
                       [&](const auto& specs, const Vocabulary& vocabulary, ParameterStore& params) {
                         plan.init = take_parameters(start_of(plan.recipe, resumed_from), specs, &vocabulary, &params);
                       }});
  check_same_data(session, plan.init);
  check_final_bleu(session);
  check_outputs(session, plan.options);
  if (!plan.options.trace_file.empty()) trace(session);
  std::optional<RunLock> lock;
  std::optional<LogFile> log;
  if (session.leads()) {
    if (directory.empty()) directory = create_run_directory(plan.recipe.run.dir, plan.name);
    report_run(directory);
    lock.emplace(directory);
    log.emplace(directory + "/log.txt");
    remove_unfinished_checkpoints(directory);
  }
  directory = first_ranks_path(comm, session.leads() ? directory : "");
  Resumed resumed;
  if (resuming) resumed = resume_session(session, directory, plan.full, plan.options.changed_keys);
  if (session.leads()) {
    write_file_atomically(directory + "/config.yaml", to_yaml(plan.full));
    save_vocabulary(directory, session.data.vocabulary);
    if (session.data.codecs.source) save_text_codecs(session.data.codecs, directory);
    if (!session.shared->costs->empty())
      write_file_atomically(directory + "/" + kCostsFile, session.shared->costs->to_json());
    Provenance provenance = provenance_of(session, plan.init, plan.options);
    provenance.changes = changes_of(resumed);
    provenance.restart = restart_of_this_start();
    const std::vector<std::string> rebuilt = changed_plugins(directory, provenance.plugins);
    write_provenance(directory, provenance);
    announce(session, plan.init, plan.group, directory);
    for (const std::string& plugin : rebuilt) log_warn(plugin);
    for (const RecipeChange& c : provenance.changes)
      log_info(str("change: ", c.key, " was ", c.before, " and is ", c.now, " from step ", c.step, " on"));
  }
  if (session.ctx.tracer) {
    comm.barrier();  // all ranks start to measure time here
    session.tracer.clear();
  }
  const RunResult result = train_in(session, directory, resumed, plan.options.until_step);
  if (session.ctx.tracer) {
    const std::vector<std::string> rows = comm.gather_texts(rank_rows(session.tracer, comm.rank()), "control");
    if (session.leads()) write_rank_trace(plan.options.trace_file, rows);
  }
  return result;
}

}  // namespace

RunResult run_recipe(const Node& composed, const std::string& name, const RunOptions& options) {
  const CheckedRecipe checked = check_recipe(composed, name);
  for (const std::string& key : options.changed_keys) check_changeable(key, composed);
  const Recipe& recipe = checked.given;
  // Checks the data before processes are started. Ranks that a launcher has started check it themselves, and one of
  // them reports.
  const bool launched = detect_launch().launcher != Launcher::none;
  if (!launched) require_data(recipe);
  const auto group = make_group(recipe, options, launched);
  RunResult result;
  InitReport init;
  {
    const SignalGuard guard;
    group->run([&](Communicator& comm) {
      RunResult own = run_rank({recipe, checked.full, name, options, *group, init}, comm);
      if (comm.rank() == 0 || !comm.shares_memory()) result = std::move(own);
    });
  }
  if (result.leads && result.exit_code == 0 && !result.paused && recipe.train.final_bleu != "none")
    result.translation = translate_at_end(recipe, result);
  return result;
}

}  // namespace lmx
