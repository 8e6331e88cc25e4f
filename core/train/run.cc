// lmx run: recipe -> session -> folder -> loop -> result. Whatever is wrong with the input shows before the folder
// exists.
#include <filesystem>

#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/matmul.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "train/resume.h"
#include "train/run_directory.h"
#include "train/trainer.h"

namespace lmx {
namespace {

using namespace train;

// log.txt for its lifetime.
struct LogFile {
  explicit LogFile(const std::string& path) { set_log_file(path); }
  ~LogFile() { set_log_file(""); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
};

Provenance provenance_of(const Session& s, const RunOptions& options) {
  Provenance p;
  p.command_line = options.command_line;
  p.data_hash = s.data.hash;
  p.data_directory = s.data.directory;
  p.data_note = s.data.source_note;
  for (const PluginInfo& plugin : Registry::instance().list())
    if (plugin.descriptor) p.plugins.emplace_back(plugin.kind + "/" + plugin.name, plugin.hash);
  p.isa = cpu_isa();
  p.precision = s.recipe.precision;
  p.threads = num_threads();
  p.lr_factor = s.lr_factor;
  p.parameters = s.params.count();
  return p;
}

void announce(const Session& s, const std::string& directory) {
  const int64_t sequences = s.recipe.batch.global, tokens = sequences * s.batcher->sequence_length();
  log_info(str("run ", directory));
  log_info(str("device cpu (", cpu_isa(), "), ", num_threads(), num_threads() == 1 ? " thread" : " threads",
               ", 1 rank, ", s.recipe.precision));
  if (s.recipe.precision == "bf16" && !cpu_has_bf16())
    log_warn(
        "this CPU has no bf16 instructions: matrix products round their inputs to bf16 and run in fp32, slower than "
        "precision=fp32");
  log_info(str(count_text(s.params.count()), " parameters, vocabulary ", count_text(s.data.vocabulary.size())));
  log_info(str("batch ", sequences, " sequences = ", count_text(tokens), " ", s.data.unit, "s, ",
               count_text(s.batcher->steps_per_epoch()), " steps an epoch, ", count_text(s.total_steps), " steps"));
  if (s.recipe.lr_rule.name != "fixed") log_info(str("lr_rule ", s.recipe.lr_rule.name, ": factor ", s.lr_factor));
  if (!s.data.report.empty()) log_debug(s.data.report);
}

void report_memory(const Allocator& allocator) {
  const MemoryStats stats = allocator.stats();
  std::string text = str("peak memory ", bytes_text(stats.total_peak), ":");
  for (int c = 0; c < kMemClasses; ++c)
    text += str(c ? ", " : " ", name_of(static_cast<MemClass>(c)), " ", bytes_text(stats.peak[static_cast<size_t>(c)]));
  log_info(text);
}

RunResult result_of(const Session& s, const Position& at, const std::string& directory, int code) {
  RunResult r;
  r.directory = directory;
  r.steps = at.step;
  r.valid_ppl = at.valid_ppl;
  r.best_ppl = at.best_ppl;
  r.best_step = at.best_step;
  r.true_ppl = s.data.true_perplexity;
  r.exit_code = code;
  return r;
}

// The loop with its status in status.json, whatever ends it.
RunResult train_in(Session& s, const std::string& directory, const Position& start) {
  Trainer trainer(s, directory, start);
  write_status(directory, "running", start.step, "");
  try {
    const int code = trainer.run();
    progress_line("");
    write_status(directory, code == 0 ? "done" : "interrupted", trainer.position().step, "");
    report_memory(*s.ctx.allocator);
    return result_of(s, trainer.position(), directory, code);
  } catch (const std::exception& e) {
    progress_line("");
    log_debug(str("failed: ", e.what()));
    try {
      write_status(directory, "failed", trainer.position().step, e.what());
    } catch (const std::exception&) {  // a full disk: the first error is the one to tell
    }
    throw;
  }
}

}  // namespace

RunResult run_recipe(const Node& composed, const std::string& name, const RunOptions& options) {
  const Recipe recipe = read_recipe(composed, name);
  const Node full = full_recipe(composed, name);
  std::string directory = directory_to_resume(options.resume, recipe);
  const bool resuming = !directory.empty() && !holds_nothing(directory);
  if (resuming) static_cast<void>(read_run_config(directory));

  Session session(recipe);
  if (!options.trace_file.empty()) session.ctx.tracer = &session.tracer;
  if (directory.empty()) directory = create_run_directory(recipe.run.dir, name);
  const RunLock lock(directory);
  const LogFile log(directory + "/log.txt");
  const Position at = resuming ? resume_session(session, directory, full) : Position{};
  write_file_atomically(directory + "/config.yaml", to_yaml(full));
  save_vocabulary(directory, session.data.vocabulary);
  write_provenance(directory, provenance_of(session, options));
  announce(session, directory);
  const RunResult result = train_in(session, directory, at);
  if (!options.trace_file.empty()) session.tracer.write(options.trace_file);
  return result;
}

}  // namespace lmx
