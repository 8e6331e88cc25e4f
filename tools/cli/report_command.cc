// lmx report: the results of runs, as tables and as an HTML file.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/jobs/process.h"
#include "app/report/page.h"
#include "app/report/report.h"
#include "app/report/trackers.h"
#include "app/run/shipped.h"
#include "app/sweep/store.h"
#include "app/sweep/table.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

using report::Report;

struct ReportFlags {
  PluginDirectories directories;
  std::vector<std::string> runs;
  std::string charts, html, format, tracker;
  int64_t watch = 0;  // seconds between two pages; 0: one page
  bool json = false;
};

void write_charts(const Report& r, const std::string& directory) {
  if (r.sub_batches.empty())
    throw UserError(str("[report] ", r.directory,
                        " has no times of sub-batches to draw: it was not trained on "
                        "parallel text, or has no record yet"));
  std::filesystem::create_directories(directory);
  write_file(directory + "/sub_batch_times.svg", histogram_svg(r.sub_batches));
  write_file(directory + "/timeline.svg", timeline_svg(r.sub_batches));
  write_file(directory + "/timeline.json", timeline_trace(r.sub_batches));
}

// Returns the path of the page: in the folder that was given; for several, in the current folder.
std::string page_path(const ReportFlags& o) {
  if (!o.html.empty()) return o.html;
  return o.runs.size() == 1 ? o.runs[0] + "/report.html" : "report.html";
}

// Returns the folders by name if they are few, otherwise their number.
std::string title_of(const ReportFlags& o) {
  if (o.runs.size() > 4) return str(o.runs.size(), " runs");
  std::string title;
  for (const std::string& run : o.runs) title += (title.empty() ? "" : ", ") + run;
  return title;
}

// `sweep`: null for runs; `refresh_s`: as in page().
std::string write_page(const ReportFlags& o, const std::vector<Report>& runs, const report::SweepView* sweep,
                       int64_t refresh_s = 0) {
  const std::string path = page_path(o);
  write_file(path, report::page(title_of(o), runs, sweep, refresh_s));
  return path;
}

// Writes the page. A program that reads JSON or a table gets it only with --html, and no line about it.
void add_page(const ReportFlags& o, const std::vector<Report>& runs, const report::SweepView* sweep) {
  const bool prints = !o.json && o.format.empty();
  if (!prints && o.html.empty()) return;
  const std::string path = write_page(o, runs, sweep);
  if (prints) std::cout << "\nreport   " << path << "\n";
}

bool is_sweep(const ReportFlags& o) {
  return o.runs.size() == 1 && sweep::holds_sweep(o.runs[0]);
}

void report_sweep(const ReportFlags& o) {
  if (!o.charts.empty())
    throw UserError(str("[report] --charts describes one run, but ", o.runs[0], " is a sweep; its runs are in ",
                        o.runs[0], "/points"));
  o.directories.load();  // the recipe names plugins
  const sweep::SweepReport sweep = sweep::read_sweep(o.runs[0]);
  if (o.format == "markdown") std::cout << sweep::markdown(sweep.summary);
  if (o.format == "latex") std::cout << sweep::latex(sweep.summary);
  if (o.format == "csv") std::cout << sweep::csv(sweep.summary);
  if (o.json) print_json(sweep::json(sweep.summary, o.runs[0]));
  if (!o.json && o.format.empty()) std::cout << sweep::text(sweep.summary);
  add_page(o, sweep.runs, &sweep.view);
}

// Writes the runs below `mlruns` or `wandb` of the current folder, where these programs look for them.
void export_runs(const ReportFlags& o) {
  for (const Report& run : report::read_reports(o.runs, "report")) {
    const std::string path =
        o.tracker == "mlflow" ? report::write_mlflow(run, "mlruns") : report::write_wandb(run, "wandb");
    std::cout << o.tracker << "   " << path << "   " << run.directory << "\n";
  }
}

void report(const ReportFlags& o) {
  if (!o.tracker.empty()) return export_runs(o);
  if (is_sweep(o)) return report_sweep(o);
  if (!o.format.empty())
    throw UserError(str("[report] --format is for the table of one sweep; --json describes a run"));
  const std::vector<Report> runs = report::read_reports(o.runs, "report");
  if ((o.json || !o.charts.empty()) && runs.size() > 1)
    throw UserError(
        str("[report] ", o.json ? "--json" : "--charts", " describes one run, but ", runs.size(), " are given"));
  if (!o.charts.empty()) write_charts(runs[0], o.charts);
  if (o.json) {
    report::print_json(runs[0]);
    return add_page(o, runs, nullptr);
  }
  if (runs.size() > 1) report::print_comparison(runs);
  for (size_t i = 0; i < runs.size() && o.runs.size() == runs.size(); ++i) {
    if (runs.size() > 1) std::cout << "\n";
    report::print_text(runs[i]);
  }
  add_page(o, runs, nullptr);
}

// Returns whether a process trains in one of the folders.
bool still_trains(const ReportFlags& o) {
  if (is_sweep(o)) return jobs::is_locked(o.runs[0]);
  for (const std::string& directory : o.runs) {
    const std::vector<std::string> runs =
        report::holds_run(directory) ? std::vector<std::string>{directory} : report::runs_below(directory);
    if (std::any_of(runs.begin(), runs.end(), jobs::is_locked)) return true;
  }
  return false;
}

void refresh_page(const ReportFlags& o) {
  std::string path;
  if (is_sweep(o)) {
    const sweep::SweepReport sweep = sweep::read_sweep(o.runs[0]);
    path = write_page(o, sweep.runs, &sweep.view, o.watch);
  } else {
    path = write_page(o, report::read_reports(o.runs, "report"), nullptr, o.watch);
  }
  progress_line(str("[report] ", path, " was written at ", local_time("%H:%M:%S"), ", again in ", o.watch,
                    " s; Ctrl-C ends this"));
}

// Writes the page again and again until nothing trains any more, or until a signal. The last page does not refresh
// itself, and the tables are printed.
void watch(const ReportFlags& o) {
  if (is_sweep(o)) o.directories.load();
  const jobs::SignalNote note;
  while (still_trains(o) && !jobs::SignalNote::received()) {
    refresh_page(o);
    for (int64_t tenth = 0; tenth < 10 * o.watch && !jobs::SignalNote::received(); ++tenth)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  progress_line("");
  report(o);
  if (const int signal = jobs::SignalNote::received()) throw ExitCode{128 + signal};
}

}  // namespace

void add_report(Command app) {
  const Command command =
      app.add_subcommand("report", "results of runs: tables, and one HTML file with curves, bytes, memory");
  set_examples(
      command,
      {{"lmx report runs/quickstart/2026-05-01_101500", "tables here, curves in its report.html"},
       {"lmx report runs/a runs/b --html both.html", "several runs over each other"},
       {"lmx report runs", "every run below a folder, compared in runs/report.html"},
       {"lmx report runs/sweeps/quickstart/2026-05-01_101500", "a sweep: heat map, parallel axes, its runs"},
       {"lmx report runs/sweeps/quickstart/2026-05-01_101500 --format latex", "its table for a paper"},
       {"lmx report runs/quickstart/2026-05-01_101500 --watch 30", "the page follows a run that trains"},
       {"lmx report runs --to mlflow", "writes them for `mlflow ui`, in ./mlruns"},
       {"lmx report runs/quickstart/2026-05-01_101500 --json", "one JSON object for programs; also of a sweep"}});
  const auto o = std::make_shared<ReportFlags>();
  command.add_option("RUN", o->runs, "folders of runs, folders that contain such folders at any depth, or one sweep")
      .required();
  command
      .add_option("--html FILE", o->html,
                  "the file of the page, which needs no network: report.html in the given folder, or in the current "
                  "one if several are given")
      .output_file();
  command.add_flag("--json", o->json, "one JSON object of a run or of a sweep, and a page only with --html");
  command
      .add_option("--format WORD", o->format,
                  "of a sweep: its table, for a paper or a program, and a page only with --html")
      .one_of({"markdown", "latex", "csv"})
      .excludes("--json");
  command
      .add_option("--charts DIR", o->charts,
                  "for parallel text: a folder for sub_batch_times.svg, timeline.svg (each rank in the last "
                  "recorded step) and timeline.json, the same for chrome://tracing")
      .writes({"/sub_batch_times.svg", "/timeline.svg", "/timeline.json"});
  command
      .add_option("--to PROGRAM", o->tracker,
                  "write the runs as files of MLflow (mlruns in the current folder) or of Weights & Biases (wandb, for "
                  "`wandb sync`), and no page")
      .one_of({"mlflow", "wandb"})
      .excludes("--html")
      .excludes("--json")
      .excludes("--format")
      .excludes("--charts");
  command
      .add_option("--watch SECONDS", o->watch,
                  "write the page every SECONDS while a run or a sweep trains; an open page shows it by itself")
      .integer_in(1, 86400);
  o->directories.add_to(command);
  command.callback([command, o] {
    if (o->watch == 0) return report(*o);
    refuse_given(command, {"--json", "--format", "--charts", "--to"}, "with --watch, which writes the page");
    watch(*o);
  });
}

}  // namespace lmx::app::cli
