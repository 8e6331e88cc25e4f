// lmx run
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numbers>

#include "app/compose/compose.h"
#include "app/inference/saved_run.h"
#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/restart/restarts.h"
#include "app/run/dry_run.h"
#include "app/run/run.h"
#include "app/run/shipped.h"
#include "app/translation/translate.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output/terminal_output.h"
#include "data/dataset.h"
#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

struct RunFlags {
  PluginDirectories directories;
  std::string recipe, resume, trace;
  ComposeOptions compose;
  std::vector<std::string> changes;
  int64_t ranks = 0;  // 0: the recipe's number of ranks
  int64_t until = 0;  // 0: run to the end
  int64_t restarts = 0;
  bool dry_run = false, fewer_ranks = false;
};

// Returns " --plugin-dir DIR" for each folder, because the next command needs it again.
std::string repeated(const std::string& option, const std::vector<std::string>& folders) {
  std::string text;
  for (const std::string& folder : folders) text += " " + option + " " + shell_quoted(folder);
  return text;
}

// Prints useful next commands, as lines that can be copied.
void print_next(const RunResult& r, const RunFlags& o, const NextLines& stated) {
  const std::string lmx = "  " + command_name(), run = shell_quoted(r.directory);
  const std::string plugins = repeated("--plugin-dir", o.directories.directories);
  // Without keep_best, the best checkpoint may be deleted already.
  const std::vector<CheckpointInfo> kept = list_checkpoints(r.directory);
  const bool best = std::any_of(kept.begin(), kept.end(), [&](const auto& c) { return c.step == r.best_step; });
  std::cout << "next:\n" << lmx << " eval " << run << (best ? " --checkpoint best" : "") << plugins << "\n";
  if (r.translates)
    std::cout << "  echo " << shell_quoted(r.sentence) << " |" << lmx.substr(1) << " translate " << run << plugins
              << "\n";
  else if (!r.generate.empty())
    std::cout << lmx << " generate " << run << " " << r.generate << plugins << "\n";
  const std::string recipe = shell_quoted(recipe_name(o.recipe)),
                    folders = repeated("--config-dir", o.compose.search_path);
  if (r.exit_code != 0 || r.paused) {
    std::cout << lmx << " run " << recipe;
    for (const std::string& word : o.compose.overrides)
      std::cout << " " << shell_quoted(word);  // the overrides of this run, for the same recipe
    if (o.ranks) std::cout << " --ranks " << o.ranks;
    std::cout << folders << plugins << " --resume " << run << "\n";
    return;
  }
  const auto is = [](const std::string& line, const char* verb) { return line.starts_with(command_name() + verb); };
  bool reports = !r.translates && !is_character(r.unit);
  for (const std::string& line : stated.lines({command_name(), recipe + folders + plugins, run})) {
    if (r.generate.empty() && is(line, " generate ")) continue;
    std::cout << "  " << line << "\n";
    reports = reports || is(line, " report ");
  }
  if (!reports) std::cout << lmx << " report " << run << "\n";
}

void print_result(const RunResult& r, const RunFlags& o, const NextLines& stated) {
  std::cout << "run " << r.directory << "\n";
  print_next(r, o, stated);
  if (r.best_step >= 0 && r.best_step != r.steps && r.best_ppl > 0)
    std::cout << "best valid ppl " << format("%.2f", r.best_ppl) << " (step " << r.best_step << ")\n";
  if (r.paused) std::cout << "paused after step " << r.steps << "\n";
  if (!r.stopped.empty()) std::cout << "stopped at " << r.stopped << "\n";
  if (r.reached_target) std::cout << "time_to_target_s " << format("%.2f", r.train_seconds) << "\n";
  if (r.valid_ppl > 0) {
    const double nll = r.valid_nll;
    std::cout << "valid nll_nat " << nll << "\nvalid nll_bit " << nll / std::numbers::ln2 << "\n";
    std::cout << "valid ppl " << format("%.2f", r.valid_ppl);
    if (r.true_ppl) std::cout << " (best possible: " << format("%.2f", *r.true_ppl) << ")";
    std::cout << "\n";
    if (r.valid_bpb > 0) std::cout << "valid bpb " << r.valid_bpb << "\n";
    if (is_character(r.unit)) std::cout << "valid bpc " << nll / std::numbers::ln2 << "\n";
  }
  if (r.translation) {
    const std::string& split = r.translation->split;
    if (r.translation->averaged > 1)
      std::cout << "translated by the mean of the last " << r.translation->averaged << " checkpoints, " << r.directory
                << "/" << kMeanFile << "\n";
    std::cout << split << " " << r.translation->bleu_line << "\n"
              << split << " multi-bleu " << r.translation->multi_bleu_line << "\n"
              << split << " multi-bleu-split " << r.translation->multi_bleu_split_line << "\n";
    std::cout << split << " BLEU " << format("%.2f", r.translation->bleu) << "\n";
  }
}

std::vector<std::string> command_line(const RunFlags& o) {
  std::vector<std::string> words{"lmx", "run", o.recipe};
  words.insert(words.end(), o.compose.overrides.begin(), o.compose.overrides.end());
  if (!o.resume.empty()) words.insert(words.end(), {"--resume", o.resume});
  for (const std::string& change : o.changes) words.insert(words.end(), {"--change", change});
  if (o.ranks) words.insert(words.end(), {"--ranks", std::to_string(o.ranks)});
  if (o.until) words.insert(words.end(), {"--until", std::to_string(o.until)});
  for (const std::string& folder : o.compose.search_path) words.insert(words.end(), {"--config-dir", folder});
  for (const std::string& folder : o.directories.directories) words.insert(words.end(), {"--plugin-dir", folder});
  return words;
}

// Returns the keys of `--change KEY=VALUE`. The values become overrides of the recipe.
std::vector<std::string> apply_changes(RunFlags& o) {
  std::vector<std::string> keys;
  if (!o.changes.empty() && o.resume.empty())
    throw UserError("[run] --change is for a run that is resumed; name it with --resume DIR");
  for (const std::string& change : o.changes) {
    const size_t equals = change.find('='), begin = std::min(change.find_first_not_of("+"), change.size());
    if (equals == std::string::npos || equals <= begin)
      throw UserError(str("[run] --change takes KEY=VALUE, such as optimizer.lr=0.001, got '", change, "'"));
    keys.push_back(change.substr(begin, equals - begin));
    o.compose.overrides.push_back(change);
  }
  return keys;
}

// Returns the number of ranks that lmx starts itself. UserError: there is only one, or the recipe does not set it.
int64_t ranks_to_lose(const RunFlags& o) {
  if (o.restarts == 0) throw UserError("[run] --fewer-ranks says how a run is started again; name also --restarts N");
  o.directories.load();
  ComposeOptions compose = o.compose;
  compose.overrides.insert(compose.overrides.end(), o.changes.begin(), o.changes.end());
  const Node tree = compose_on_ranks(o.recipe, with_plugins(compose), o.ranks);
  const Node* comm = tree.find("comm");
  const int64_t ranks = comm ? comm_ranks(*comm, "comm") : 1;
  if (ranks > 1) return ranks;
  throw UserError(str("[run] --fewer-ranks needs a run of several ranks that lmx starts, but this one has ",
                      ranks == 1 ? "one rank" : "no comm.ranks", "; add --ranks N, or comm=gloo comm.ranks=N"));
}

int supervise(const RunFlags& o) {
  const auto words = [&](const std::string& resume, int64_t ranks) {
    RunFlags start = o;
    start.resume = resume;
    if (ranks && o.ranks) start.ranks = ranks;
    if (ranks && !o.ranks) start.compose.overrides.push_back(str("++comm.ranks=", ranks));
    std::vector<std::string> all = command_line(start);
    all.erase(all.begin());  // "lmx"
    if (!o.trace.empty()) all.insert(all.end(), {"--trace", o.trace});
    return all;
  };
  return run_with_restarts({o.restarts, o.resume, o.fewer_ranks ? ranks_to_lose(o) : 0, words});
}

void run(RunFlags o) {
  if (o.fewer_ranks && o.restarts == 0) ranks_to_lose(o);
  if (o.restarts && !o.dry_run) throw ExitCode{supervise(o)};
  const std::vector<std::string> words = command_line(o), changed = apply_changes(o);
  o.directories.load();
  Node tree = compose_on_ranks(o.recipe, with_plugins(o.compose), o.ranks);
  const NextLines stated(tree, o.recipe);
  const std::string name = std::filesystem::path(o.recipe).stem().string();
  if (o.dry_run) {
    DatasetChecks checks;
    const DryRun dry = app::dry_run(tree, name, checks);
    std::cout << fit(dry.text);
    if (!dry.ready()) throw ExitCode{2};
    return;
  }
  const RunResult result = run_recipe(
      tree, name, {o.resume, words, o.trace, o.until, changed, environment_values(o.recipe, with_plugins(o.compose))});
  if (result.leads) print_result(result, o, stated);
  if (result.exit_code != 0) {
    std::cout.flush();
    throw ExitCode{result.exit_code};
  }
}

}  // namespace

void add_run(Command app) {
  const Command command = app.add_subcommand("run", "train a recipe");
  set_examples(
      command,
      {{"lmx run recipes/quickstart.yaml", "a small model in under a minute; no download"},
       {"lmx run recipes/quickstart.yaml model.cells=64 train.steps=200", "with changed values"},
       {"lmx run recipes/word_lm_gutenberg.yaml --dry-run", "parameters, memory, data; trains nothing"},
       {"lmx run recipes/quickstart.yaml --ranks 8", "the same run as 8 ranks would compute it, in one process"},
       {"lmx run recipes/quickstart.yaml --until 100",
        "pause after 100 steps; --resume continues as if there had been no pause"},
       {"lmx run recipes/quickstart.yaml --resume auto", "continue its newest run, or start one"},
       {"lmx run recipes/quickstart.yaml --resume RUN --change optimizer.lr=0.001",
        "continue with a lower learning rate"},
       {"lmx run recipes/quickstart.yaml --restarts 3", "start it again if it fails, from its last checkpoint"},
       {"lmx run recipes/quickstart.yaml init.from=RUN", "a new run that starts from the weights of another"}});
  const auto o = std::make_shared<RunFlags>();
  command.add_option("RECIPE", o->recipe, "a recipe, a YAML file").recipe().required();
  command.add_option("OVERRIDES", o->compose.overrides, "key=value, +key=value, ++key=value, ~key, group=option");
  command.add_option("--config-dir DIR", o->compose.search_path, "another folder of config groups (repeatable)")
      .repeatable();
  command.add_option("--resume DIR|auto", o->resume, "a run's folder, or auto: the newest run of this recipe");
  command
      .add_option("--change KEY=VALUE", o->changes,
                  "with --resume: continue with another value on purpose, such as optimizer.lr=0.001; the run records "
                  "it (repeatable)")
      .repeatable();
  command
      .add_option(
          "--until STEP", o->until,
          "pause after this step: validate, save and end; the steps and the schedule of the recipe do not change")
      .positive();
  command.add_flag("--dry-run,-n", o->dry_run,
                   "check the recipe; print parameters, memory and whether the data is available; train nothing; the "
                   "exit code is 2 if data or memory is missing");
  command.add_option("--ranks N", o->ranks, "N virtual ranks in this process: comm=virtual comm.ranks=N").positive();
  command
      .add_option("--restarts N", o->restarts,
                  "start the run again after a failure, at most N times, from its last checkpoint")
      .positive();
  command.add_flag("--fewer-ranks", o->fewer_ranks, "with --restarts: each restart uses one rank less");
  command.add_option("--trace FILE", o->trace, "write a Chrome trace of the run's phases").writes();
  o->directories.add_to(command);
  command.callback([o] { run(*o); });
}

}  // namespace lmx::app::cli
