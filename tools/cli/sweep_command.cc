// lmx sweep
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/compose/compose.h"
#include "app/jobs/process.h"
#include "app/jobs/slurm.h"
#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/run/dry_run.h"
#include "app/run/run.h"
#include "app/sweep/journal.h"
#include "app/sweep/runner.h"
#include "app/sweep/table.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "config/error_collector.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

using namespace sweep;

struct SweepFlags {
  PluginDirectories directories;
  std::string recipe, resume, out, seeds, metric, halving, launcher;  // "": local, or the same as before
  ComposeOptions compose;
  std::vector<std::string> slurm;
  std::vector<int64_t> ranks;
  int64_t random = 0, random_seed = 0, jobs = 0, retry = 0;
  bool maximize = false, fail_fast = false, dry_run = false, json = false;
};

Request request_of(const SweepFlags& o) {
  Request base;
  base.recipe = o.recipe;
  base.overrides = o.compose.overrides;
  base.config_dirs = o.compose.search_path;
  base.plugin_dirs = o.directories.directories;
  base.ranks = o.ranks;
  base.random_seed = o.random_seed;
  Given given;
  if (!o.seeds.empty()) given.seeds = o.seeds;
  if (!o.metric.empty()) given.metric = o.metric;
  if (!o.halving.empty()) given.halving = o.halving;
  if (o.maximize) given.maximize = true;
  if (o.random > 0) given.random = o.random;
  return make_request(base, given);
}

// Returns "500" or, for a point that trains for epochs, "2 epochs".
std::string steps_of(const Point& point) {
  if (point.yaml.empty()) return "mistake";
  return point.steps > 0 ? std::to_string(point.steps) : point.epochs + (point.epochs == "1" ? " epoch" : " epochs");
}

void print_plan(const Plan& plan) {
  std::vector<std::vector<std::string>> rows{{"POINT"}};
  for (const Axis& axis : plan.axes) rows[0].push_back(axis.name);
  rows[0].insert(rows[0].end(), {"STEPS", "PARAMETERS", "MEMORY"});
  for (const Point& point : plan.points) {
    std::vector<std::string> row{point.id};
    row.insert(row.end(), point.place.begin(), point.place.end());
    row.push_back(steps_of(point));
    for (const std::string& said : {point.parameters, point.memory}) row.push_back(said.empty() ? "-" : said);
    rows.push_back(std::move(row));
  }
  std::cout << fit(str(plan.name, ": ", plural(plan.points.size(), "point"), ", ",
                       plan.request.metric.maximize ? "highest " : "lowest ", plan.request.metric.text(), "\n"))
            << table(rows);
}

Json plan_json(const Plan& plan) {
  Json points = Json::array();
  for (const Point& point : plan.points) {
    Json place = Json::object();
    for (size_t a = 0; a < plan.axes.size(); ++a) place[plan.axes[a].name] = point.place[a];
    Json one{{"id", point.id}, {"place", place}};
    if (!point.yaml.empty()) {
      if (point.steps > 0) one["steps"] = point.steps;
      if (point.steps <= 0) one["epochs"] = point.epochs;
      if (point.parameter_count > 0) one["parameters"] = point.parameter_count;
      if (point.memory_bytes > 0) one["memory_bytes"] = point.memory_bytes;
    }
    points.push_back(std::move(one));
  }
  return {{"recipe", plan.name},
          {"metric", plan.request.metric.name()},
          {"maximize", plan.request.metric.maximize},
          {"points", points},
          {"missing_data", plan.missing_data},
          {"missing_memory", plan.missing_memory},
          {"missing_device", plan.missing_device}};
}

std::string indented(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

void warn_of_halving(const Plan& plan) {
  const std::string why = why_no_rung(plan);
  if (!why.empty()) log_warn("[sweep] halving stops nothing: " + why);
}

void dry_run(const SweepFlags& o) {
  std::vector<std::string> errors;
  const Plan plan = make_plan(request_of(o), &errors);
  const bool any_good =
      std::any_of(plan.points.begin(), plan.points.end(), [](const Point& p) { return !p.yaml.empty(); });
  const bool here = o.launcher != "slurm";  // jobs run on other machines
  const bool short_of_memory = here && !plan.missing_memory.empty();
  const bool short_of_device = here && !plan.missing_device.empty();
  const bool not_ready = short_of_memory || short_of_device || !plan.missing_data.empty();
  if (any_good && !o.json) print_plan(plan);
  if (errors.empty()) warn_of_halving(plan);
  if (!errors.empty()) fail_together(errors, "mistakes");
  if (o.json) {
    print_json(plan_json(plan));
    if (not_ready) throw ExitCode{2};
    return;
  }
  if (short_of_memory) std::cout << fit("memory: not enough" + indented(plan.missing_memory)) << "\n";
  if (short_of_device) std::cout << fit("device: not available" + indented(plan.missing_device)) << "\n";
  std::cout << fit(plan.missing_data.empty() ? "data: available" : "data: not ready" + indented(plan.missing_data))
            << "\n";
  if (not_ready) throw ExitCode{2};
}

// Returns the folder of the sweep to resume; "": a new one.
std::string directory_to_resume(const SweepFlags& o) {
  if (o.resume != "auto") return o.resume;
  if (!o.out.empty()) return holds_sweep(o.out) ? o.out : "";
  return newest_sweep(std::filesystem::path(o.recipe).stem().string());
}

// Changes the metric of a resumed sweep. Points that have ended can be evaluated by another metric. A sweep with
// halving cannot, because points were stopped by the old metric.
void take_metric(Plan& plan, const Metric& metric, const Folder& folder) {
  Request& request = plan.request;
  if (metric.text() == request.metric.text() && metric.maximize == request.metric.maximize) return;
  check_metric(metric, {});
  if (request.halving.eta > 0)
    throw UserError(str("[sweep] ", folder.path, " halves by '", request.metric.text(), "', so that it cannot end by '",
                        metric.text(), "'; a new sweep can"));
  request.metric = metric;
}

// Checks that the recipe, and the files that it includes, have not changed since the sweep began.
void check_recipe(const Plan& there, const Plan& here, const Folder& folder) {
  const auto is_same = [](const Point& a, const Point& b) {
    return a.id == b.id && a.place == b.place && is_same_recipe(a.yaml, b.yaml);
  };
  const auto [mine, now] =
      std::mismatch(there.points.begin(), there.points.end(), here.points.begin(), here.points.end(), is_same);
  if (mine == there.points.end() && now == here.points.end()) return;
  const std::string what =
      there.points.size() != here.points.size()
          ? str("the sweep has ", there.points.size(), " points and the recipe now has ", here.points.size())
          : str("point ", mine->id, " is different now");
  throw UserError(str("[sweep] the recipe of ", folder.path, " has changed since that sweep began: ", what,
                      "; --resume ", folder.path,
                      " without a recipe continues the old one, --out DIR starts a new sweep"));
}

Plan resumed_plan(const SweepFlags& o, const Folder& folder) {
  Plan plan = read_plan(folder);
  if (o.recipe.empty()) {
    if (!o.metric.empty()) take_metric(plan, parse_metric(o.metric, o.maximize), folder);
    return plan;
  }
  const Request here = request_of(o);
  if (!o.metric.empty()) take_metric(plan, here.metric, folder);
  const std::string other = request_difference(plan.request, here);
  if (!other.empty())
    throw UserError(str("[sweep] ", folder.path, " was started with other options: ", other, "; --resume ", folder.path,
                        " without a recipe continues with the old ones"));
  check_recipe(plan, make_plan(here), folder);
  return plan;
}

// The recipes of the points keep paths relative to the folder in which the sweep began, so they continue there.
Folder enter_directory(const Plan& plan, const Folder& folder, bool retries) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (plan.directory.empty() || fs::equivalent(plan.directory, ".", error)) return folder;
  const auto may_run = [&](const State& s) { return retries || !s.ended() || s.outcome == Outcome::preempted; };
  const Standing standing = read_standing(plan, folder.path);
  if (std::none_of(standing.states.begin(), standing.states.end(), may_run)) return folder;
  const Folder absolute{fs::canonical(folder.path).string()};
  fs::current_path(plan.directory, error);
  if (error)
    throw UserError(str("[sweep] ", folder.path, " began in ", plan.directory, ", and paths in the recipes of its ",
                        "points are relative to this folder, which cannot be entered: ", error.message(),
                        "; if it was moved, change `directory` in ", folder.path, "/sweep.json"));
  log_info(str("the points run in ", plan.directory, ", where the sweep began"));
  return absolute;
}

// The folder must be empty, or contain only files of a sweep that was killed while it started.
void check_out(const std::string& out) {
  if (holds_sweep(out))
    throw UserError(str("[sweep] ", out, " contains a sweep already; --resume ", out, " continues it"));
  refuse_other_files("sweep", out,
                     [](const std::string& name) { return name == "points" || name.starts_with("sweep.json"); });
}

Plan new_plan(const SweepFlags& o) {
  if (!o.out.empty()) check_out(o.out);
  Plan plan = make_plan(request_of(o));
  if (!plan.missing_data.empty()) throw UserError("[sweep] the data is not ready:" + indented(plan.missing_data));
  warn_of_halving(plan);
  return plan;
}

void write_tables(const Plan& plan, const Journal& journal, const Folder& folder) {
  const Summary summary = summarise(plan, journal.states());
  write_file(folder.path + "/table.csv", csv(summary));
  write_file(folder.path + "/table.md", markdown(summary));
}

void print_summary(const Plan& plan, const Journal& journal, const Folder& folder, bool as_json) {
  const Summary summary = summarise(plan, journal.states());
  if (as_json) {
    print_json(json(summary, folder.path));
  } else {
    std::cout << text(summary) << "sweep " << folder.path << "\n";
  }
  std::cout.flush();
}

void finish(const Plan& plan, const Journal& journal, const Folder& folder, const Result& result, bool as_json) {
  write_tables(plan, journal, folder);
  const std::string again = command_name() + " sweep --resume " + shell_quoted(folder.path);
  if (result.signal) {
    log_info("interrupted; " + again + " continues it");
    throw ExitCode{128 + result.signal};
  }
  print_summary(plan, journal, folder, as_json);
  const auto& states = journal.states();
  const auto count = [&](auto fits) { return std::count_if(states.begin(), states.end(), fits); };
  const auto preempted = count([](const State& s) { return s.outcome == Outcome::preempted; });
  int64_t failed = 0, attempts = 0;  // --retry N counts the attempts of the whole sweep
  for (const State& s : states) {
    if (s.outcome != Outcome::failed && s.outcome != Outcome::out_of_memory) continue;
    ++failed;
    attempts = std::max<int64_t>(attempts, s.attempts);
  }
  const bool told = std::any_of(states.begin(), states.end(), [](const State& s) { return s.value.has_value(); });
  if (!told && count([](const State& s) { return s.outcome == Outcome::done; }) > 0)
    log_warn(str("[sweep] no run has recorded '", plan.request.metric.text(), "'; ", again,
                 " --metric KEY evaluates the sweep by another number"));
  if (preempted > 0)
    log_info(str(
        preempted, preempted == 1 ? " point was" : " points were", " preempted; ", again, " continues them",
        count([](const State& s) { return s.outcome == Outcome::paused; }) > 0 ? ", and halving waits for them" : ""));
  if (failed > 0) log_info(str(plural(failed, "point"), " failed; ", again, " --retry ", attempts, " tries again"));
  if (!result.failed.empty()) throw RunError("[sweep] ended by --fail-fast: " + result.failed);
}

// Refuses options of sbatch that would have no effect.
void check_scheduler(const SweepFlags& o, bool slurm) {
  if (!slurm && !o.slurm.empty())
    throw UserError(str("[sweep] --slurm=", o.slurm[0],
                        " is an option for sbatch, and points run on this machine; "
                        "write --launcher slurm, too"));
}

void run(Command command, const SweepFlags& o) {
  if (o.recipe.empty() && !o.resume.empty())
    refuse_given(command,
                 {"--seeds", "--ranks", "--halving", "--random", "--random-seed", "--config-dir", "--plugin-dir"},
                 "with --resume and no recipe: a sweep continues with its own options");
  if (!o.resume.empty() && o.resume != "auto")
    refuse_given(command, {"--out"}, "with --resume DIR: a sweep continues in its own folder");
  if (o.metric.empty() && !o.resume.empty()) refuse_given(command, {"--maximize"}, "without --metric");
  if (o.recipe.empty() && (o.resume.empty() || o.resume == "auto"))
    throw UserError("[sweep] a recipe is needed: lmx sweep RECIPE key=1,2,3; or --resume DIR with a sweep's folder");
  if (o.resume.empty() || !o.launcher.empty()) check_scheduler(o, o.launcher == "slurm");
  o.directories.load();
  if (o.dry_run) {
    if (o.recipe.empty()) {
      const Plan there = resumed_plan(o, {o.resume});
      return o.json ? print_json(plan_json(there)) : print_plan(there);
    }
    return dry_run(o);
  }
  if (o.launcher == "slurm") jobs::slurm::require();
  const std::string resumed = directory_to_resume(o);
  if (!resumed.empty() && !holds_sweep(resumed)) static_cast<void>(read_plan({resumed}));  // throws its message
  std::optional<Plan> fresh;
  if (resumed.empty()) fresh = new_plan(o);
  const Folder given{!resumed.empty() ? resumed : !o.out.empty() ? o.out : make_sweep_directory(fresh->name)};
  const jobs::DirectoryLock lock(given.path);
  if (fresh && !o.out.empty()) check_out(o.out);  // another sweep may have used the folder meanwhile
  const Plan plan = fresh ? *fresh : resumed_plan(o, given);
  const Folder folder = enter_directory(plan, given, o.retry > 0);
  const bool measure = !fresh && !o.metric.empty();
  if (fresh || measure) write_plan(plan, folder);
  if (!plan.environment.empty())
    log_info("the files of this sweep contain the values of environment variables: " + joined(plan.environment));
  log_info(str("sweep ", folder.path, ": ", plural(plan.points.size(), "point")));
  Journal journal(plan, folder.path);
  if (measure) measure_again(plan, folder, journal);
  Result result;
  {
    const LaunchOptions launch{o.jobs, o.slurm};
    const bool slurm = o.launcher.empty() ? !journal.batches().empty() : o.launcher == "slurm";
    check_scheduler(o, slurm);
    if (slurm) jobs::slurm::require();
    const std::unique_ptr<jobs::Launcher> launcher =
        slurm ? slurm_launcher(plan, folder, launch, journal) : jobs::local_launcher(o.jobs, plan.points.size());
    result = run_points(plan, folder, journal, *launcher, {o.fail_fast, o.retry});
  }
  finish(plan, journal, folder, result, o.json);
}

void add_what(Command command, const std::shared_ptr<SweepFlags>& o) {
  command.add_option("RECIPE", o->recipe, "a recipe, a YAML file; its part `sweep:` may contain axes").recipe();
  command.add_option("OVERRIDES", o->compose.overrides,
                     "key=value for all points; key=a,b,c, key=range(1,9), key=interval(a,b) ... to vary");
  command.add_option("--seeds N|LIST", o->seeds,
                     "number of seeds for each configuration, or a list of seeds: 3, or 1,5,9");
  command
      .add_option("--ranks N,...", o->ranks,
                  "N virtual ranks, as `lmx run --ranks N` would have them; several numbers are an axis")
      .separated_by_commas()
      .repeatable()
      .positive();
  command.add_option("--random N", o->random, "sample N points of the axes instead of using all combinations")
      .positive();
  command.add_option("--random-seed SEED", o->random_seed, "seed of the random points").show_default();
  command.add_option("--metric KEY", o->metric,
                     "the value to compare: split.key of metrics.jsonl, or of a result line (valid.ppl)");
  command.add_flag("--maximize", o->maximize, "larger values of the metric are better");
  command.add_option(
      "--halving eta=N,min=STEPS", o->halving,
      "eta=3,min=STEPS: after min steps the best third continues to three times as many steps, and so on");
  command.add_option("--config-dir DIR", o->compose.search_path, "another folder of config groups (repeatable)")
      .repeatable();
  o->directories.add_to(command);
}

void add_how(Command command, const std::shared_ptr<SweepFlags>& o) {
  command.add_option("--launcher NAME", o->launcher, "local: processes of this machine (default); slurm: array jobs")
      .one_of({"local", "slurm"});
  command
      .add_option("--jobs N", o->jobs,
                  "points at a time (default: 1 with local, where points divide the cores; no limit with slurm)")
      .positive();
  command.add_option("--slurm OPTION", o->slurm, "an option for sbatch: --slurm=--partition=gpu (repeatable)")
      .repeatable();
  command
      .add_option("--retry N", o->retry,
                  "start a point again, up to N times, if it failed, ran out of memory or was preempted")
      .integer_in(0, 1000)
      .show_default();
  command.add_flag("--fail-fast", o->fail_fast,
                   "end at the first point that fails; divergence and lack of memory do not count as failures");
  command.add_option("--out DIR", o->out, "the sweep's folder (runs/sweeps/RECIPE/DATE-TIME)").writes();
  command.add_option("--resume DIR|auto", o->resume, "a sweep's folder, or auto: the newest sweep of this recipe");
  command.add_flag("--dry-run,-n", o->dry_run,
                   "compose and check every point, list all with the memory of a rank; run nothing");
  add_json(command, o->json);
}

}  // namespace

void add_sweep(Command app) {
  const Command command = app.add_subcommand("sweep", "train a recipe many times: grid, random points, seeds");
  set_examples(command,
               {{"lmx sweep recipes/quickstart.yaml optimizer.lr=1e-3,3e-3 --seeds 3",
                 "two learning rates with three seeds each: six runs"},
                {"lmx sweep recipes/quickstart.yaml model.cells=32,64 --dry-run", "the points, checked; runs nothing"},
                {"lmx sweep recipes/patwary_seeding_desk.yaml", "a recipe that contains its own axes"},
                {"lmx sweep RECIPE 'optimizer.lr=tag(log,interval(1e-4,1e-1))' --random 20",
                 "random points, with the same probability for each decade"},
                {"lmx sweep RECIPE optimizer.lr=1e-4,1e-3,1e-2 --halving eta=3,min=100", "stop the worse ones early"},
                {"lmx sweep RECIPE seed=1,2,3,4 --jobs 4", "four at a time, which divide the cores"},
                {"lmx sweep RECIPE seed=1,2,3,4 --launcher slurm --slurm=--partition=gpu", "as an array job"},
                {"lmx sweep --resume runs/sweeps/quickstart/2026-05-01_101500", "continue an interrupted sweep"}});
  const auto o = std::make_shared<SweepFlags>();
  add_what(command, o);
  add_how(command, o);
  command.callback([command, o] { run(command, *o); });
}

}  // namespace lmx::app::cli
