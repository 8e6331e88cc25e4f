// lmx experiment list | run
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "app/datasets/open.h"
#include "app/experiment/results.h"
#include "app/experiment/runner.h"
#include "app/print/shell.h"
#include "app/print/terminal.h"
#include "app/records/run_records.h"
#include "app/run/dry_run.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/output/checks.h"
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
  std::string name, scale = "desk", out;
  std::vector<std::string> overrides, only;
  int64_t jobs = 1;
  bool dry_run = false, keep_checkpoints = false;
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
void print_plan(const Experiment& e, const std::vector<Cell>& cells, const std::vector<std::string>& wanted) {
  std::vector<std::vector<std::string>> rows{{"CELL", "RUNS", "RANKS", "STEPS", "SEQUENCES", "PARAMETERS"}};
  std::string commands;
  for (const Cell& cell : cells) {
    if (std::find(wanted.begin(), wanted.end(), cell.id) == wanted.end()) continue;
    const lmx::Node full = lmx::parse_yaml(cell.yaml, cell.id);
    const std::string runs = cell.types             ? "counts"
                             : !cell.runs           ? "formula"
                             : cell.same_as.empty() ? "yes"
                                                    : "as " + cell.same_as;
    const std::string parameters = cell.types ? "" : lmx::dry_run(cell.composed, cell.id).parameters;
    std::string ranks = at_path(full, "comm.ranks"), steps = at_path(full, "train.steps");
    if (steps == "0") steps = at_path(full, "train.epochs") + " epochs";
    rows.push_back({cell.id, runs, cell.types ? "" : ranks, cell.types ? "" : steps,
                    cell.types ? "" : at_path(full, "batch.global"), parameters});
    if (cell.runs && cell.same_as.empty()) commands += "  " + command_of(cell) + "\n";
  }
  std::cout << e.id << ": " << e.title << "\n" << table(rows) << "commands:\n" << commands;
}

// Writes results.json, table.md and figure.svg for the finished cells, and prints the table to stdout.
void write_results(const Experiment& e, const Scale& scale, const std::vector<Cell>& cells, const Runner& runner,
                   const std::string& out, const Ending& ending) {
  std::map<std::string, std::vector<RunRecord>> records;
  for (const Cell& cell : cells)
    if (cell.runs && runner.done(cell)) records[cell.id] = runner.records(cell);
  const Results judged = judge(e, scale, cells, measure_cells(e, cells, records), ending.failed);
  lmx::write_file_atomically(out + "/results.json", json(judged));
  lmx::write_file_atomically(out + "/table.md", markdown(judged));
  if (!e.figure.layers.empty()) lmx::write_file_atomically(out + "/figure.svg", figure_svg(judged, records));
  std::cout << markdown(judged) << std::flush;
  lmx::log_info(str("results: ", out, "/{results.json,table.md", e.figure.layers.empty() ? "" : ",figure.svg", "}"));
}

void run(const Options& o) {
  o.directories.load();
  const Experiment e = read_experiment(experiment_file(o.name));
  const Scale& scale = e.scale(o.scale);
  const std::vector<Cell> cells = make_cells(e, scale, o.overrides);
  check_formulas(e, scale, cells);
  const std::vector<std::string> wanted = wanted_cells(cells, o.only);
  const std::set<std::string> problems = data_problems(cells, wanted);
  if (o.dry_run || !problems.empty()) {
    print_plan(e, cells, wanted);
    std::string text;
    for (const std::string& problem : problems) text += "\n  " + problem;
    if (!o.dry_run) throw UserError("[experiment] the data is not ready:" + text);
    std::cout << (problems.empty() ? "data: available" : "data: not ready" + text) << "\n";
    return;
  }
  const std::string out = o.out.empty() ? str("runs/experiments/", e.id, "/", scale.id) : o.out;
  Runner runner(e, cells, {out, o.jobs, o.keep_checkpoints, o.directories.directories});
  const Ending ending = runner.run(wanted);
  if (ending.signal) {
    lmx::log_info("interrupted; the same command continues from here");
    throw ExitCode{128 + ending.signal};
  }
  write_results(e, scale, cells, runner, out, ending);
  if (ending.failed.empty()) return;
  std::string text;
  for (const auto& [cell, why] : ending.failed) text += str("\n  ", cell, ": ", why);
  throw lmx::RunError(
      str("[experiment] ", ending.failed.size(), ending.failed.size() == 1 ? " cell" : " cells", " failed:", text));
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
  command->add_option("NAME", o->name, "an experiment of `lmx experiment list`, the last part of its name, or a file")
      ->required()
      ->type_name("");
  command->add_option("OVERRIDES", o->overrides, "key=value ..., for every cell, after the cell's own overrides")
      ->type_name("");
  command->add_option("--scale", o->scale, "desk or paper")->type_name("SCALE")->capture_default_str();
  command->add_option("--only", o->only, "a cell, or a pattern with * (repeatable)")
      ->type_name("CELL")
      ->allow_extra_args(false);
  command
      ->add_option("--out", o->out,
                   "folder of cells and results (runs/experiments/NAME/SCALE); its finished cells are kept")
      ->type_name("DIR");
  command->add_option("--jobs", o->jobs, "cells that run at the same time; they divide the cores")
      ->type_name("N")
      ->check(positive())
      ->capture_default_str();
  command->add_flag("--dry-run,-n", o->dry_run, "compose and check every cell; run nothing");
  command->add_flag("--keep-checkpoints", o->keep_checkpoints, "also keep the checkpoints of finished cells");
  o->directories.add_to(*command);
  command->callback([o] { run(*o); });
}

}  // namespace

void add_experiment(CLI::App& app) {
  CLI::App* group = app.add_subcommand("experiment", "a paper's tables and figures: claims against measurements");
  set_examples(*group, {{"lmx experiment list", "all experiments"},
                        {"lmx experiment run patwary2018/table3_memory", "starts the experiment, or continues it"}});
  CLI::App* list_command =
      group->add_subcommand("list", "every experiment: scales, title, and the table or figure of the paper");
  set_examples(*list_command, {{"lmx experiment list", "those below experiments/"}});
  list_command->callback([] { list(); });
  add_run_command(*group);
}

}  // namespace lmx_cli
