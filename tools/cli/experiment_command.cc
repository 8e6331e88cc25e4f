// lmx experiment list | run | show
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "app/cells/finished.h"
#include "app/cells/planned.h"
#include "app/cells/runner.h"
#include "app/datasets/open.h"
#include "app/experiment/results.h"
#include "app/print/shell.h"
#include "app/print/terminal.h"
#include "app/records/run_records.h"
#include "app/run/dry_run.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/output/checks.h"
#include "cli/output/json_output.h"
#include "lmx/data.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "recipe/recipe.h"
#include "runfiles/checkpoint.h"

namespace lmx_cli {
namespace {

using namespace experiments;
using lmx::str;
using lmx::UserError;

struct Options {
  PluginDirectories directories;
  std::string name, scale, out;
  std::vector<std::string> overrides, only;
  int64_t jobs = 1;
  bool dry_run = false, keep_checkpoints = false, json = false;
};

void list() {
  std::vector<std::vector<std::string>> rows{{"EXPERIMENT", "SCALES", "WHAT", "PAPER"}};
  for (const auto& [id, file] : find_experiments()) {
    const Experiment e = read_experiment(file);
    std::string scales;
    for (const Scale& s : e.scales) scales += (scales.empty() ? "" : ", ") + s.id;
    rows.push_back({id, scales, e.title, e.place});
  }
  std::cout << table(rows);
}

// The scale that is named or, without a name, desk; an experiment may have only the other one.
const Scale& scale_of(const Experiment& e, const std::string& name) {
  const bool desk = std::any_of(e.scales.begin(), e.scales.end(), [](const Scale& s) { return s.id == "desk"; });
  return name.empty() && !desk ? e.scales[0] : e.scale(name.empty() ? "desk" : name);
}

// An experiment at a scale, checked, before anything runs. Objects refer to each other, so it is not copied.
struct Prepared {
  explicit Prepared(const Options& o)
      : experiment(read_experiment(experiment_file(o.name))),
        scale(scale_of(experiment, o.scale)),
        cells(make_cells(experiment, scale, o.overrides)),
        out(o.out.empty() ? str("runs/experiments/", experiment.id, "/", scale.id) : o.out) {
    check_formulas(experiment, scale, cells);
    planned = plan_cells(experiment, scale, cells);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  const Experiment experiment;
  const Scale& scale;
  const std::vector<Cell> cells;
  const std::string out;
  std::map<std::string, PlannedCell> planned;
};

// Returns the ids of the cells that --only names, each an id or a pattern with *; all cells without --only.
std::vector<std::string> wanted_cells(const std::vector<Cell>& cells, const std::vector<std::string>& only) {
  std::vector<std::string> ids, wanted;
  for (const Cell& cell : cells) ids.push_back(cell.id);
  if (only.empty()) return ids;
  for (const std::string& pattern : only) {
    const size_t before = wanted.size();
    for (const std::string& id : ids)
      if (fits(pattern, id)) wanted.push_back(id);
    if (wanted.size() > before) continue;
    std::string all;
    for (const std::string& id : ids) all += (all.empty() ? "" : ", ") + id;
    throw UserError(str("[experiment] no cell '", pattern, "'", lmx::did_you_mean(pattern, ids), "; there are ", all));
  }
  return wanted;
}

std::string at_path(const lmx::Node& tree, const char* path) {
  const lmx::Node* node = tree.at_path(path);
  return node ? node->text : "";
}

// Returns the errors in the data of these cells, each once.
std::set<std::string> data_problems(const std::vector<Cell>& cells, const std::vector<std::string>& wanted) {
  std::set<std::string> problems, checked;
  for (const Cell& cell : cells) {
    if (!cell.runs || std::find(wanted.begin(), wanted.end(), cell.id) == wanted.end()) continue;
    const lmx::Node& data = *cell.composed.find("data");
    if (!checked.insert(lmx::to_yaml(data)).second) continue;  // most cells use the same text
    for (const std::string& finding : lmx::check_dataset(data).findings) problems.insert(finding);
  }
  return problems;
}

std::string command_of(const Cell& cell) {
  std::string text = command_name() + (cell.types ? " data stats " : " run ") + shell_quoted(cell.recipe_file);
  for (const std::string& word : cell.overrides) text += " " + shell_quoted(word);
  return text;
}

// Prints one line for each cell that would run. Composes each cell and builds it as far as possible without data.
void print_plan(const Prepared& p, const std::vector<std::string>& wanted) {
  const Experiment& e = p.experiment;
  std::vector<std::vector<std::string>> rows{{"CELL", "RUNS", "RANKS", "STEPS", "SEQUENCES", "PARAMETERS"}};
  std::string commands;
  for (const Cell& cell : p.cells) {
    if (std::find(wanted.begin(), wanted.end(), cell.id) == wanted.end()) continue;
    const lmx::Node full = lmx::parse_yaml(cell.yaml, cell.id);
    const std::string runs = cell.types             ? "counts"
                             : !cell.runs           ? (p.planned.contains(cell.id) ? "planned" : "formula")
                             : cell.same_as.empty() ? "yes"
                                                    : "as " + cell.same_as;
    const std::string parameters = cell.types ? "" : lmx::dry_run(cell.composed, cell.id).parameters;
    std::string ranks = at_path(full, "comm.ranks"), steps = at_path(full, "train.steps");
    if (steps == "0") steps = at_path(full, "train.epochs") + " epochs";
    rows.push_back({cell.id, runs, cell.types ? "" : ranks, cell.types ? "" : steps,
                    cell.types ? "" : at_path(full, "batch.global"), parameters});
    if (cell.runs && cell.same_as.empty()) commands += "  " + command_of(cell) + "\n";
  }
  std::cout << e.id << ": " << e.title << "\n" << table(rows) << (commands.empty() ? "" : "commands:\n") << commands;
}

// Computes the rows and verdicts from all cells that are done, and from those that the planner computes.
Results results_of(const Prepared& p, const Finished& finished, const Ending& ending = {}) {
  return judge(p.experiment, p.scale, p.cells, measure_cells(p.experiment, p.cells, finished.all_records(), p.planned),
               ending.failed);
}

// Writes results.json, table.md and figure.svg, and prints the table to stdout.
void write_results(const Results& r, const Finished& finished) {
  const std::string& out = finished.out();
  const bool figure = !r.experiment.figure.layers.empty();
  lmx::write_file_atomically(out + "/results.json", json(r));
  lmx::write_file_atomically(out + "/table.md", markdown(r));
  if (figure) lmx::write_file_atomically(out + "/figure.svg", figure_svg(r, finished.all_records()));
  std::cout << markdown(r) << std::flush;
  lmx::log_info(str("results: ", out, "/{results.json,table.md", figure ? ",figure.svg" : "", "}"));
}

void run(const Options& o) {
  o.directories.load();
  const Prepared p(o);
  const std::vector<std::string> wanted = wanted_cells(p.cells, o.only);
  const std::set<std::string> problems = data_problems(p.cells, wanted);
  if (o.dry_run || !problems.empty()) {
    print_plan(p, wanted);
    std::string text;
    for (const std::string& problem : problems) text += "\n  " + problem;
    if (!o.dry_run)
      throw UserError(
          str("[experiment] the data is not ready:", text,
              p.planned.empty() ? "" : "\n`lmx experiment show` prints the planned cells, which need none"));
    std::cout << (problems.empty() ? "data: available" : "data: not ready" + text) << "\n";
    return;
  }
  Runner runner(p.experiment, p.cells, {p.out, o.jobs, o.keep_checkpoints, o.directories.directories});
  const Ending ending = runner.run(wanted);
  if (ending.signal) {
    lmx::log_info("interrupted; the same command continues from here");
    throw ExitCode{128 + ending.signal};
  }
  write_results(results_of(p, runner.finished(), ending), runner.finished());
  if (ending.failed.empty()) return;
  std::string text;
  for (const auto& [cell, why] : ending.failed) text += str("\n  ", cell, ": ", why);
  throw lmx::RunError(
      str("[experiment] ", ending.failed.size(), ending.failed.size() == 1 ? " cell" : " cells", " failed:", text));
}

void show(const Options& o) {
  o.directories.load();
  const Prepared p(o);
  const Results r = results_of(p, Finished(p.cells, p.out));
  std::cout << (o.json ? json(r) : markdown(r)) << std::flush;
}

void add_common(CLI::App& command, const std::shared_ptr<Options>& o) {
  command.add_option("NAME", o->name, "an experiment of `lmx experiment list`, the last part of its name, or a file")
      ->required()
      ->type_name("");
  command.add_option("OVERRIDES", o->overrides, "key=value ..., for every cell, after the cell's own overrides")
      ->type_name("");
  command.add_option("--scale", o->scale, "desk or paper (default: desk, if the experiment has it)")
      ->type_name("SCALE");
  command
      .add_option("--out", o->out,
                  "folder of cells and results (runs/experiments/NAME/SCALE); its finished cells are kept")
      ->type_name("DIR");
  o->directories.add_to(command);
}

void add_run_command(CLI::App& group) {
  const auto o = std::make_shared<Options>();
  CLI::App* command = group.add_subcommand("run", "run an experiment's cells and judge the paper's claims");
  set_examples(
      *command,
      {{"lmx experiment run patwary2018/table3_memory", "its table, with the paper's numbers and the measured ones"},
       {"lmx experiment run figure7_seeds --only 'all-*'", "some of the cells"},
       {"lmx experiment run figure7_seeds --dry-run", "checks and lists the cells; runs nothing"},
       {"lmx experiment run table3_memory --scale paper", "at the paper's size, if its corpus is available"}});
  add_common(*command, o);
  command->add_option("--only", o->only, "a cell, or a pattern with * (repeatable)")
      ->type_name("CELL")
      ->allow_extra_args(false);
  command->add_option("--jobs", o->jobs, "cells that run at the same time; they divide the cores")
      ->type_name("N")
      ->check(positive())
      ->capture_default_str();
  command->add_flag("--dry-run,-n", o->dry_run, "compose and check every cell; run nothing");
  command->add_flag("--keep-checkpoints", o->keep_checkpoints, "also keep the checkpoints of finished cells");
  command->callback([o] { run(*o); });
}

void add_show_command(CLI::App& group) {
  const auto o = std::make_shared<Options>();
  CLI::App* command = group.add_subcommand(
      "show", "print the tables and verdicts of what has run and of what is planned; runs nothing");
  set_examples(*command, {{"lmx experiment show table3_memory --scale paper", "the planned cells, without the corpus"},
                          {"lmx experiment show figure7_seeds --json", "the content of results.json"}});
  add_common(*command, o);
  add_json(*command, o->json);
  command->callback([o] { show(*o); });
}

}  // namespace

void add_experiment(CLI::App& app) {
  CLI::App* group = app.add_subcommand("experiment", "a paper's tables and figures: claims against measurements");
  set_examples(*group, {{"lmx experiment list", "all experiments"},
                        {"lmx experiment run patwary2018/table3_memory", "starts the experiment, or continues it"},
                        {"lmx experiment show patwary2018/table3_memory", "prints its tables; runs nothing"}});
  CLI::App* list_command =
      group->add_subcommand("list", "every experiment: scales, title, and the table or figure of the paper");
  set_examples(*list_command, {{"lmx experiment list", "those below experiments/"}});
  list_command->callback([] { list(); });
  add_run_command(*group);
  add_show_command(*group);
}

}  // namespace lmx_cli
