// lmx experiment list | run | show; prepared.h has the other commands
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "app/experiment/planned.h"
#include "app/experiment/results.h"
#include "app/experiment/runner.h"
#include "app/jobs/slurm.h"
#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/records/records.h"
#include "app/report/chart.h"
#include "app/run/dry_run.h"
#include "app/sweep/store.h"
#include "base/output_file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/experiment/prepared.h"
#include "cli/output/json_output.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app::cli {
namespace {

using namespace experiment;

struct ExperimentFlags {
  PluginDirectories directories;
  Choice choice;
  std::vector<std::string> only, slurm;
  int64_t jobs = 0;
  bool dry_run = false, keep_checkpoints = false, json = false, check = false;
};

constexpr int kOutsideCode = 3;

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
    throw UserError(
        str("[experiment] no cell '", pattern, "'", did_you_mean(pattern, ids), "; there are ", joined(ids)));
  }
  return wanted;
}

std::string command_of(const Cell& cell) {
  std::string text = command_name() + (cell.types ? " data stats " : " run ") + shell_quoted(cell.recipe_file);
  for (const std::string& word : cell.overrides) text += " " + shell_quoted(word);
  return text;
}

// The columns of a cell that depend on its model. The cells of a row, which differ in their seeds, have the same.
class SizeColumns {
 public:
  SizeColumns(const Prepared& p, DataChecks& checks)
      : p_(p), times_(p.experiment, p.scale, p.cells, p.planned, "", checks) {}

  std::vector<std::string> names() const {
    if (!p_.scale.one_device()) return {"PARAMETERS"};
    return {"PARAMETERS", "MEMORY", "TIME"};
  }
  std::vector<std::string> of(const Cell& cell) {
    if (cell.types) return std::vector<std::string>(names().size());
    const auto [found, fresh] = rows_.try_emplace(row_of(p_.experiment, cell));
    Sizes& row = found->second;
    if (fresh) row.parameters = count_text(parameters_of(cell.composed, cell.id));
    if (!p_.scale.one_device()) return {row.parameters};
    if (fresh) row.memory = memory_of(cell);
    const bool trains = cell.runs && cell.same_as.empty();
    if (fresh && trains) row.hours = times_.hours(cell);
    if (trains) hours_ += row.hours.value_or(0);
    return {row.parameters, row.memory, !trains ? "" : row.hours ? seconds_text(*row.hours) : "unknown"};
  }
  // A line about the times of the cells; "" if there are none.
  std::string total() const {
    if (hours_ == 0) return "";
    return fit(str("time of training by `lmx plan` on ", times_.machine(),
                   ", one cell after the other: ", seconds_text(hours_))) +
           "\n";
  }

 private:
  struct Sizes {
    std::string parameters, memory;
    std::optional<double> hours;
  };
  static std::string memory_of(const Cell& cell) {
    const int64_t bytes = process_bytes(cell.composed, cell.id);
    return bytes > 0 ? bytes_text(bytes) : "unknown";
  }
  static std::string seconds_text(double hours) {
    const double seconds = 3600 * hours;
    if (seconds < 100) return number_text(seconds, 2) + " s";
    return seconds < 6000 ? number_text(seconds / 60, 2) + " min" : number_text(hours, 3) + " h";
  }

  const Prepared& p_;
  const TimePlan times_;
  std::map<std::string, Sizes> rows_;
  double hours_ = 0;
};

// Prints one line for each cell that would run. Composes each cell, and builds one of each row as far as possible
// without data.
void print_plan(const Prepared& p, const std::vector<std::string>& wanted, DataChecks& checks) {
  const Experiment& e = p.experiment;
  SizeColumns sizes(p, checks);
  std::vector<std::vector<std::string>> rows{{"CELL", "RUNS", "RANKS", "STEPS", "SEQUENCES"}};
  const auto add = [](std::vector<std::string>& row, const std::vector<std::string>& columns) {
    row.insert(row.end(), columns.begin(), columns.end());
  };
  add(rows[0], sizes.names());
  std::string commands;
  for (const Cell& cell : p.cells) {
    if (std::find(wanted.begin(), wanted.end(), cell.id) == wanted.end()) continue;
    const Node full = parse_yaml(cell.yaml, cell.id);
    const std::string runs = cell.types             ? "counts"
                             : !cell.runs           ? (p.planned.contains(cell.id) ? "planned" : "formula")
                             : cell.same_as.empty() ? "yes"
                                                    : "as " + cell.same_as;
    std::string steps = text_at(full, "train.steps");
    if (steps == "0") steps = text_at(full, "train.epochs") + " epochs";
    rows.push_back({cell.id, runs, cell.types ? "" : str(cell.ranks), cell.types ? "" : steps,
                    cell.types ? "" : text_at(full, "batch.global")});
    add(rows.back(), sizes.of(cell));
    if (cell.runs && cell.same_as.empty()) commands += "  " + command_of(cell) + "\n";
  }
  std::cout << fit(e.id + ": " + e.title) << "\n" << table(rows) << sizes.total();
  std::cout << (commands.empty() ? "" : "commands:\n") << commands;
}

// Writes results.json, the table in three forms and the figures, and prints the table to stdout.
void write_results(const Results& r, const Finished& finished) {
  const std::string& out = finished.out();
  std::vector<std::pair<std::string, std::string>> figures;
  if (!r.experiment.figure.layers.empty()) figures.emplace_back("figure.svg", figure_svg(r, finished.all_records()));
  for (auto& figure : break_even_figures(r)) figures.push_back(std::move(figure));
  std::vector<std::string> images;
  std::string written = "results.json,table.md,table.html,table.csv";
  for (const auto& [name, svg] : figures) {
    write_file(out + "/" + name, svg);
    images.push_back(svg);
    written += "," + name;
  }
  write_file(out + "/results.json", json(r));
  const std::string tables = markdown(r);
  write_file(out + "/table.md", tables);
  write_file(out + "/table.html", html_page(r.experiment.title, tables, images));
  write_file(out + "/table.csv", csv(r));
  std::cout << text(r) << std::flush;
  log_info(str("results: ", out, "/{", written, "}"));
}

// UserError: the folder holds something else than the results of an experiment.
void check_out(const std::string& out) {
  if (sweep::holds_sweep(out)) throw UserError(str("[experiment] --out ", out, " contains a sweep"));
  std::error_code error;
  for (const char* own : {"cells", "journal.jsonl", "results.json"})
    if (std::filesystem::exists(out + "/" + own, error)) return;
  refuse_other_files("experiment", out, [](const std::string&) { return false; });
}

// Ends with kOutsideCode if a cell is outside its tolerance, a claim is refuted, or nothing could be judged.
void check(const Results& r) {
  const std::vector<std::string> lines = outside(r);
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  if (!lines.empty()) log(LogLevel::error, "outside the tolerance:" + text);
  const bool judged = anything_judged(r);
  if (!judged) log(LogLevel::error, "[experiment] --check: nothing has been judged; run the experiment first");
  if (!lines.empty() || !judged) throw ExitCode{kOutsideCode};
}

void run(const ExperimentFlags& o) {
  if (o.choice.launcher != "slurm" && !o.slurm.empty())
    throw UserError(str("[experiment] --slurm=", o.slurm[0],
                        " is an option for sbatch, and cells run on this machine; write --launcher slurm, too"));
  o.directories.load();
  const Prepared p(o.choice);
  const std::vector<std::string> wanted = wanted_cells(p.cells, o.only);
  DataChecks checks;
  const std::set<std::string> problems = data_problems(p.cells, wanted, checks);
  if (o.dry_run || !problems.empty()) {
    print_plan(p, wanted, checks);
    std::string text;
    for (const std::string& problem : problems) text += "\n  " + problem;
    if (!o.dry_run)
      throw UserError(
          str("[experiment] the data is not ready:", text,
              p.planned.empty() ? "" : "\n`lmx experiment show` prints the planned cells, which need none"));
    std::cout << fit(problems.empty() ? "data: available" : "data: not ready" + text) << "\n";
    return;
  }
  const bool slurm = o.choice.launcher == "slurm";
  if (slurm) jobs::slurm::require();
  check_out(p.out);
  const jobs::DirectoryLock lock(p.out);
  Finished finished(p.cells, p.out);
  const Ending ending = run_cells(p.experiment, p.cells, finished, wanted,
                                  {o.jobs, o.keep_checkpoints, o.directories.directories, slurm, o.slurm});
  if (ending.signal) {
    log_info(slurm ? "interrupted; the jobs continue, and the same command watches them again"
                   : "interrupted; the same command continues from here");
    throw ExitCode{128 + ending.signal};
  }
  const Results r = cli::results_of(p, finished, ending);
  write_results(r, finished);
  if (ending.failed.empty()) return o.check ? check(r) : void();
  std::string text;
  for (const auto& [cell, why] : ending.failed) text += str("\n  ", cell, ": ", why);
  throw RunError(str("[experiment] ", plural(ending.failed.size(), "cell"), " failed:", text));
}

void show(const ExperimentFlags& o) {
  o.directories.load();
  const Prepared p(o.choice);
  const Results r = cli::results_of(p, Finished(p.cells, p.out));
  std::cout << (o.json ? json(r) : text(r)) << std::flush;
  if (o.check) check(r);
}

void add_common(Command command, const std::shared_ptr<ExperimentFlags>& o) {
  command
      .add_option("NAME", o->choice.name,
                  "an experiment of `lmx experiment list`, the last part of its name, or a file")
      .required();
  command.add_option("OVERRIDES", o->choice.overrides, "key=value ..., for every cell, after the cell's own overrides");
  command.add_option(
      "--scale SCALE", o->choice.scale,
      "a scale of `lmx experiment list`, such as desk, paper or gpu (default: desk, if the experiment has it)");
  command
      .add_option("--out DIR", o->choice.out,
                  "folder of cells and results (runs/experiments/NAME/SCALE); its finished cells are kept")
      .writes();
  command
      .add_option("--launcher NAME", o->choice.launcher,
                  "start ranks as processes, with the recipe's own comm or comm=mpi, gloo, nccl among OVERRIDES, so "
                  "that times count: local (on this machine) or slurm (a job for each cell)")
      .one_of({"local", "slurm"});
  command.add_flag(
      "--check", o->check,
      "exit with code 3 if a cell is outside its tolerance or a claim is refuted, or if nothing is judged");
  o->directories.add_to(command);
}

void add_run_command(Command group) {
  const auto o = std::make_shared<ExperimentFlags>();
  const Command command = group.add_subcommand("run", "run an experiment's cells and judge the paper's claims");
  set_examples(
      command,
      {{"lmx experiment run patwary2018/table3_memory", "its table, with the paper's numbers and the measured ones"},
       {"lmx experiment run figure7_seeds --only 'all-*'", "some of the cells"},
       {"lmx experiment run figure7_seeds --dry-run", "checks and lists the cells; runs nothing"},
       {"lmx experiment run table3_memory --scale paper", "at the paper's size, if its corpus is available"},
       {"lmx experiment run table2 --scale gpu", "the paper's model on a free text, in minutes on one GPU"},
       {"lmx experiment run table1_ladder --scale paper --launcher slurm --slurm=--ntasks-per-node=8",
        "on a cluster, so that times count"}});
  add_common(command, o);
  command.add_option("--only CELL", o->only, "a cell, or a pattern with * (repeatable)").repeatable();
  command
      .add_option("--jobs N", o->jobs,
                  "cells that run at the same time; they divide the cores (default: 1; with --launcher slurm all)")
      .positive();
  command.add_option("--slurm OPTION", o->slurm, "an option of sbatch, such as --slurm=--nodes=2 (repeatable)")
      .repeatable();
  command.add_flag("--dry-run,-n", o->dry_run, "compose and check every cell; run nothing");
  command.add_flag("--keep-checkpoints", o->keep_checkpoints, "also keep the checkpoints of finished cells");
  command.callback([o] { run(*o); });
}

void add_show_command(Command group) {
  const auto o = std::make_shared<ExperimentFlags>();
  const Command command = group.add_subcommand(
      "show", "print the tables and verdicts of what has run and of what is planned; runs nothing");
  set_examples(command, {{"lmx experiment show table3_memory --scale paper", "the planned cells, without the corpus"},
                         {"lmx experiment show figure7_seeds --json", "the content of results.json"},
                         {"lmx experiment show NAME --check", "exit code 3 if a claim is refuted, for a CI"}});
  add_common(command, o);
  add_json(command, o->json);
  command.callback([o] { show(*o); });
}

}  // namespace

void add_experiment(Command app) {
  const Command group = app.add_subcommand("experiment", "a paper's tables and figures: claims against measurements");
  set_examples(group, {{"lmx experiment list", "all experiments"},
                       {"lmx experiment run patwary2018/table3_memory", "starts the experiment, or continues it"},
                       {"lmx experiment show patwary2018/table3_memory", "prints its tables; runs nothing"}});
  const Command list_command =
      group.add_subcommand("list", "every experiment: scales, title, and the table or figure of the paper");
  set_examples(list_command, {{"lmx experiment list", "those below experiments/"}});
  list_command.callback([] { list(); });
  add_run_command(group);
  add_show_command(group);
  cli::add_experiment_all(group);
  cli::add_experiment_doc(group);
}

namespace {

// An experiment may have only one of the scales.
const Scale& scale_of(const Experiment& e, const std::string& name) {
  const bool desk = std::any_of(e.scales.begin(), e.scales.end(), [](const Scale& s) { return s.id == kDesk; });
  return name.empty() && !desk ? e.scales[0] : e.scale(name.empty() ? kDesk : name);
}

// Launched cells have other recipes than those with virtual ranks, and so another folder.
std::string default_folder(const Experiment& e, const Scale& scale, const std::string& launcher) {
  return str("runs/experiments/", e.id, "/", scale.id, launcher.empty() ? "" : "-" + launcher);
}

}  // namespace

Prepared::Prepared(const Choice& c)
    : experiment(read_experiment(experiment_file(c.name))),
      scale(scale_of(experiment, c.scale)),
      cells(make_cells(experiment, scale, {c.overrides, !c.launcher.empty()})),
      out(c.out.empty() ? default_folder(experiment, scale, c.launcher) : c.out) {
  check_formulas(experiment, scale, cells);
  planned = plan_cells(experiment, scale, cells);
  curves = step_curves(experiment, cells);
}

Results results_of(const Prepared& p, const Finished& finished, const Ending& ending) {
  Results r = judge(p.experiment, p.scale, p.cells,
                    measure_cells(p.experiment, p.cells, finished.all_records(), p.planned), ending.failed);
  r.devices = finished.devices();
  r.break_even = break_even(r, p.curves);
  return r;
}

}  // namespace lmx::app::cli
