// lmx run: recipe -> session -> folder -> loop -> result. Errors in the input are reported before the folder exists.
#include "app/run/run.h"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <new>
#include <span>

#include "app/corpora/corpora.h"
#include "app/datasets/open.h"
#include "app/huggingface/import.h"
#include "app/inference/generate.h"
#include "app/inference/saved_run.h"
#include "app/memory/batch_fit.h"
#include "app/memory/memory_check.h"
#include "app/run/agreement.h"
#include "app/run/outputs.h"
#include "app/runs/run_directory.h"
#include "app/runs/supervision.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "app/translation/translate.h"
#include "backend/cuda.h"
#include "backend/cudnn.h"
#include "base/early_log.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/matmul.h"
#include "lmx/plugin.h"
#include "plugin/library.h"
#include "recipe/comm_config.h"
#include "recipe/recipe.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics.h"
#include "tensor/caching_allocator.h"
#include "train/evaluate.h"
#include "train/loop/trainer.h"
#include "train/loop/worker_state.h"
#include "train/signals.h"

namespace lmx::app {
namespace {

// Writes the log to log.txt during its lifetime, after the lines that an EarlyLog has kept.
struct LogFile {
  explicit LogFile(const std::string& path) { set_log_file(path); }
  ~LogFile() { set_log_file(""); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
};

std::vector<RecipeChange> changes_of(const Resumed& resumed) {
  std::vector<RecipeChange> changes;
  for (const KeyDifference& d : resumed.changes) changes.push_back({d.key, d.there, d.here, resumed.at.step});
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
  p.products = s.recipe.products;
  p.threads = s.comm.threads();
  p.lr_factor = s.shared->lr_factor;
  p.parameters = s.params.count();
  p.init = init;
  return p;
}

void trace(Session& s) {
  s.ctx.tracer = &s.tracer;
  if (s.ctx.device.kind == Device::Kind::cuda) s.tracer.measure_device(cuda_device(s.ctx.device).clock());
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
  r.valid_bpb = trainer.valid_bpb();
  r.unit = s.data.unit;
  r.best_ppl = at.best_ppl;
  r.best_step = at.best_step;
  r.true_ppl = s.data.true_perplexity;
  r.train_seconds = at.seconds;
  r.exit_code = code;
  r.generate = options_for_text(s.recipe, s.data.vocabulary);
  r.translates = s.network.model->translates();
  if (s.data.codecs.source && s.data.valid_pairs.size() > 0)
    r.sentence = s.data.codecs.source->decode(s.data.valid_pairs.source(0));
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

// The memory of a run, as far as it is known before the first step.
struct FirstSteps {
  std::optional<MemoryCheck> memory;  // the estimate; none if it was not possible
  std::optional<FittedBatch> fit;     // what batch.fit has chosen at this start

  // Collective. The probe of batch.fit has computed the largest batch already. Hosts may have different memory, so all
  // ranks compute it if one of them wants to.
  void preflight(Session& s, int64_t from) const {
    if (fit) return;
    const double own = choose_preflight(s.recipe, memory, s.shared->total_steps, from > 0).on;
    const std::vector<double> all = s.comm.gather_numbers(std::span(&own, 1), "control");
    if (std::any_of(all.begin(), all.end(), [](double on) { return on > 0; })) app::preflight(s, from, memory);
  }
};

// Runs the loop and keeps status.json up to date, also after an error.
RunResult train_in(Session& s, const std::string& directory, const Resumed& resumed, int64_t until,
                   const FirstSteps& first) {
  const Position& start = resumed.at;
  Trainer trainer(s, directory, start, until);
  for (const RecipeChange& change : changes_of(resumed)) trainer.record(to_json_line(change));
  if (s.leads()) write_status(directory, "running", start.step, "");
  if (s.leads()) std::filesystem::remove(directory + "/memory.json");  // of an earlier start
  std::optional<CrashStatus> crash;
  if (s.leads()) crash.emplace(directory + "/status.json", host_name(), trainer.reached());
  std::optional<TerminationNote> words;
  if (!s.comm.shares_memory())
    words.emplace([&](const std::string& reason) { note_failure(s, directory, trainer.reached(), reason); });
  try {
    s.comm.barrier();  // a rank that crashes in its first step finds a status to complete
    first.preflight(s, start.step);
    s.comm.clear_ledger();  // these bytes belong to no step
    const int code = trainer.run();
    crash.reset();
    if (s.leads()) {
      progress_line("");
      const char* state = code != 0 ? "interrupted" : trainer.paused() ? "paused" : "done";
      write_status(directory, state, trainer.position().step, trainer.stopped());
    }
    report_totals(s, trainer.traffic(), directory, trainer.position().step);
    const ScaleState scale = scale_of_ranks(s, trainer.position().loss_scale);
    if (s.leads() && scale.overflows > 0) log_info(census_text(scale));
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
  InitReport& init;              // of the process; written while its first session is made
  std::optional<Dataset>& data;  // of the process, if it was opened before the session
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

void erase_below(Node& tree, const std::string& key) {
  tree.erase(key);
  for (auto& [name, value] : tree.entries) erase_below(value, key);
}

// The files that the run writes under names of the user.
void check_outputs(const RunPlan& plan, const Session& s) {
  if (!s.leads()) return;
  const std::string schedule = s.asynchronous() ? s.sync->servers().front()->config().schedule : "";
  const std::string& trace = plan.options.trace_file;
  const auto check = [&](const std::string& what, const std::string& path, const Node& inputs) {
    if (path.empty()) return;
    const std::string problem = output_problem(path), &folder = plan.recipe.run.dir;
    const std::filesystem::path target = target_of_output(path);
    if (!problem.empty()) throw UserError(what + ": " + problem);
    require_no_loss(what, path, inputs);
    if (!folder.empty() && target.parent_path() == target_of_output(folder) &&
        is_name_of_run(target.filename().string()))
      throw UserError(str(what, ": cannot write ", path, ": it belongs to the run ", folder));
  };
  check("[run] --trace", trace, plan.full);
  Node inputs = plan.full;
  if (Node* sync = inputs.find("sync")) erase_below(*sync, "schedule");
  check("[sync] schedule", schedule, inputs);
  if (const std::string& folder = plan.recipe.run.dir; !folder.empty() && plan.options.resume.empty())
    require_no_loss("run.dir", folder, Node::map());
  if (!trace.empty() && is_same_output(trace, schedule))
    throw UserError(str("[run] --trace: ", trace, " is also written by schedule; name two files"));
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
  } catch (const CorpusMissing& e) {
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

// Where a run is, or will be.
struct RunPlace {
  std::string directory;  // "": a new one
  bool resuming = false;
  std::string resumed_from() const { return resuming ? directory : ""; }
};

// A resumed run takes all parameters from its own checkpoint.
InitConfig start_of(const Recipe& recipe, const std::string& resumed_from) {
  InitConfig init = recipe.init;
  if (!resumed_from.empty() && !list_checkpoints(resumed_from).empty()) init.from.clear();
  return init;
}

// Makes the session, and makes all checks that need no step. Collective.
std::unique_ptr<Session> make_session(const RunPlan& plan, const Recipe& recipe, Communicator& comm,
                                      const RunPlace& place) {
  auto session = std::make_unique<Session>(
      recipe, comm,
      SessionStart{.resumed = place.resumed_from(),
                   .open = [&] { return plan.data ? *plan.data : open_data(recipe); },
                   .init =
                       [&](const auto& specs, const Vocabulary& vocabulary, ParameterStore& params) {
                         plan.init =
                             take_parameters(start_of(recipe, place.resumed_from()), specs, &vocabulary, &params);
                       }});
  check_same_data(*session, plan.init);
  check_final_bleu(*session);
  check_outputs(plan, *session);
  if (session->leads() && place.directory.empty()) require_place(plan.recipe.run.dir, plan.name);
  return session;
}

// Opens the data of the process, for the tokens of its training split.
int64_t training_tokens(const RunPlan& plan, Communicator& comm) {
  return comm.once<int64_t>([&] {
    plan.data = open_data(plan.recipe);
    return plan.data->train.size();
  });
}

RunResult run_session(const RunPlan& plan, Session& session, const RunPlace& place, const FirstSteps& first) {
  Communicator& comm = session.comm;
  std::string directory = place.directory;
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
  if (place.resuming) resumed = resume_session(session, directory, plan.full, plan.options);
  if (session.leads()) {
    write_file(directory + "/config.yaml", to_yaml(plan.full));
    save_vocabulary(directory, session.data.vocabulary);
    if (session.data.codecs.target) save_text_codecs(session.data.codecs, directory);
    if (const auto* text = dynamic_cast<const SubwordTokenizer*>(session.data.codecs.target.get());
        text && !plan.init.path.empty())
      carry_files(plan.init.path, *text, directory);
    if (!session.shared->costs->empty()) write_file(directory + "/" + kCostsFile, session.shared->costs->to_json());
    Provenance provenance = provenance_of(session, plan.init, plan.options);
    provenance.changes = changes_of(resumed);
    provenance.restart = restart_of_this_start();
    provenance.fit = first.fit;
    const std::vector<std::string> rebuilt = changed_plugins(directory, provenance.plugins);
    write_provenance(directory, provenance);
    announce(session, plan.init, plan.group, directory);
    if (first.fit) log_info(first.fit->text);
    if (!plan.options.environment.empty())
      log_info(str("the files of this run contain the values of environment variables: ",
                   config::join(plan.options.environment)));
    for (const std::string& plugin : rebuilt) log_warn(plugin);
    for (const RecipeChange& c : provenance.changes)
      log_info(str("change: ", c.key, " was ", c.before, " and is ", c.now, " from step ", c.step, " on"));
  }
  if (session.ctx.tracer) {
    comm.barrier();  // all ranks start to measure time here
    session.tracer.clear();
  }
  const RunResult result = train_in(session, directory, resumed, plan.options.until_step, first);
  if (session.ctx.tracer) {
    const std::vector<std::string> rows = comm.gather_texts(rank_rows(session.tracer, comm.rank()), "control");
    if (session.leads()) write_rank_trace(plan.options.trace_file, rows);
  }
  return result;
}

// `batch.fit`: a new run chooses its batch, a resumed run takes that of its config.yaml.
RunResult run_fitted(const RunPlan& plan, Communicator& comm, const RunPlace& place) {
  Recipe recipe = plan.recipe;
  FirstSteps first;
  std::unique_ptr<Session> session;
  const MakeSession make = [&](const Recipe& r) { return make_session(plan, r, comm, place); };
  if (place.resuming) {
    recipe.batch = batch_of_run(recipe.batch, place.directory, plan.options.changed_keys, comm);
    first.memory = require_memory(recipe, comm);
    session = make(recipe);
  } else {
    const int64_t tokens = recipe.batch.global == 0 ? training_tokens(plan, comm) : 0;
    FittedSession fitted = fit_session(recipe, comm, tokens, make);
    session = std::move(fitted.session);
    first.fit = std::move(fitted.fit);
    recipe.batch = first.fit->batch;
  }
  const Node full = with_batch(plan.full, recipe.batch);
  return run_session({recipe, full, plan.name, plan.options, plan.group, plan.init, plan.data}, *session, place, first);
}

RunResult run_rank(const RunPlan& plan, Communicator& comm) {
  std::optional<EarlyLog> early;
  if (comm.rank() == 0) early.emplace();
  check_agreement(plan, comm);
  RunPlace place;
  place.directory = agree_on_directory(plan, comm, place.resuming);
  if (plan.recipe.batch.fit == "memory") return run_fitted(plan, comm, place);
  FirstSteps first;
  first.memory = require_memory(plan.recipe, comm);
  const std::unique_ptr<Session> session = make_session(plan, plan.recipe, comm, place);
  return run_session(plan, *session, place, first);
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
  std::optional<Dataset> data;
  {
    const SignalGuard guard;
    group->run([&](Communicator& comm) {
      RunResult own = run_rank({recipe, checked.full, name, options, *group, init, data}, comm);
      if (comm.rank() == 0 || !comm.shares_memory()) result = std::move(own);
    });
  }
  if (result.leads && result.exit_code == 0 && !result.paused && recipe.train.final_bleu != "none")
    result.translation = translate_at_end(recipe, result);
  return result;
}

}  // namespace lmx::app
