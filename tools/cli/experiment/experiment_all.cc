// lmx experiment all | doc
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "app/experiment/planned.h"
#include "app/experiment/results.h"
#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/records/records.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/experiment/prepared.h"
#include "cli/output/json_output.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app::cli {
namespace {

struct ExperimentAllFlags {
  PluginDirectories directories;
  std::string scale, machine;
  bool dry_run = false, json = false;
};

struct Listed {
  experiment::Needs needs;
  std::string title, place;
};

// Needs of every experiment at each of its scales. UserError: no experiment has the scale that is asked for.
std::vector<Listed> all_needs(const ExperimentAllFlags& o) {
  std::vector<Listed> all;
  std::set<std::string> scales;
  experiment::DataChecks checks;
  for (const auto& [id, file] : experiment::find_experiments()) {
    const experiment::Experiment e = experiment::read_experiment(file);
    for (const experiment::Scale& scale : e.scales) {
      scales.insert(scale.id);
      if (!o.scale.empty() && scale.id != o.scale) continue;
      Choice choice;
      choice.name = file;
      choice.scale = scale.id;
      const Prepared p(choice);
      if (all.empty() && !o.machine.empty()) experiment::require_machine(p.cells.at(0), o.machine);
      all.push_back(
          {experiment::needs_of(p.experiment, p.scale, p.cells, p.planned, o.machine, checks), e.title, e.place});
      all.back().needs.experiment = id;
    }
  }
  if (all.empty())
    throw UserError(str("[experiment] no experiment has the scale '", o.scale, "'",
                        did_you_mean(o.scale, {scales.begin(), scales.end()}), "; there are ", joined(scales)));
  return all;
}

std::string hours_text(double hours) {
  if (hours >= 1000) return str(static_cast<int64_t>(hours), " h");
  return format(hours < 0.1 ? "%.2g h" : "%.3g h", hours);
}

// "1.2 h", "1.2 h + 3 cells unknown", "seconds": nothing runs.
std::string time_text(const experiment::Needs& n) {
  if (n.runs == 0) return "seconds";
  if (n.unknown == 0) return hours_text(n.hours);
  const std::string unknown = str(plural(n.unknown, "cell"), " unknown");
  return n.hours > 0 ? hours_text(n.hours) + " + " + unknown : unknown;
}

// By scale.
std::map<std::string, experiment::Needs> totals_of(const std::vector<Listed>& all) {
  std::map<std::string, experiment::Needs> totals;
  for (const Listed& l : all) {
    experiment::Needs& total = totals[l.needs.scale];
    total.runs += l.needs.runs;
    total.planned += l.needs.planned;
    total.hours += l.needs.hours;
    total.unknown += l.needs.unknown;
  }
  return totals;
}

Json json_of(const std::vector<Listed>& all) {
  Json list = Json::array(), totals = Json::object();
  for (const auto& [scale, total] : totals_of(all))
    totals[scale] = {{"runs", total.runs}, {"hours", total.hours}, {"unknown", total.unknown}};
  for (const Listed& l : all) {
    const experiment::Needs& n = l.needs;
    list.push_back({{"experiment", n.experiment},
                    {"scale", n.scale},
                    {"title", l.title},
                    {"place", l.place},
                    {"runs", n.runs},
                    {"planned", n.planned},
                    {"ranks", n.ranks},
                    {"machine", n.machine},
                    {"hours", json_number(n.hours)},
                    {"unknown", n.unknown},
                    {"missing_data", n.missing}});
  }
  return {{"experiments", list}, {"total", totals}};
}

void print_list(const std::vector<Listed>& all) {
  std::vector<std::vector<std::string>> rows{
      {"EXPERIMENT", "SCALE", "RUNS", "PLANNED", "RANKS", "MACHINE", "TIME", "DATA"}};
  std::set<std::string> missing;
  for (const Listed& l : all) {
    const experiment::Needs& n = l.needs;
    rows.push_back({n.experiment, n.scale, str(n.runs), str(n.planned), n.runs > 0 ? str(n.ranks) : "-", n.machine,
                    time_text(n),
                    n.runs == 0         ? "none"
                    : n.missing.empty() ? "available"
                                        : "missing"});
    missing.insert(n.missing.begin(), n.missing.end());
  }
  for (const auto& [scale, total] : totals_of(all))
    rows.push_back({"total", scale, str(total.runs), str(total.planned), "", "", time_text(total), ""});
  std::cout << table(rows);
  std::cout
      << "The time is that of training on MACHINE, by `lmx plan`, one cell after the other. On desk_10gbe, virtual "
         "ranks share one computer.\n";
  if (!missing.empty()) std::cout << "missing data:\n";
  for (const std::string& line : missing) std::cout << "  " << line << "\n";
}

void all(const ExperimentAllFlags& o) {
  if (!o.dry_run)
    throw UserError(
        "[experiment] `lmx experiment all` lists what would run: write --dry-run; `lmx experiment run NAME` runs one "
        "experiment");
  o.directories.load();
  const std::vector<Listed> needs = all_needs(o);
  if (o.json) return print_json(json_of(needs));
  print_list(needs);
}

}  // namespace

void add_experiment_all(Command group) {
  const auto o = std::make_shared<ExperimentAllFlags>();
  const Command command =
      group.add_subcommand("all", "list every experiment and scale with the time and data it needs");
  set_examples(command,
               {{"lmx experiment all --dry-run", "time on each scale's machine, and how to get missing corpora"},
                {"lmx experiment all --dry-run --scale paper --machine a100_node", "time on nodes of 8 A100"}});
  command.add_flag("--dry-run,-n", o->dry_run, "compose and check every cell; run nothing (must be given)");
  command.add_option("--scale SCALE", o->scale, "only this scale");
  command.add_option(
      "--machine NAME", o->machine,
      "plan the time on this machine (default: the machine of the scale's plan, desk_10gbe, or h100_node)");
  add_json(command, o->json);
  o->directories.add_to(command);
  command.callback([o] { all(*o); });
}

// lmx experiment doc

namespace {

struct ExperimentDocFlags {
  PluginDirectories directories;
  std::vector<std::string> pages;
  bool check = false;
};

// Returns the content of a block; nothing if it needs cells that have not run here.
std::optional<std::string> content_of(const experiment::Block& block, const std::string& page) {
  Choice choice;
  choice.name = block.id;
  choice.scale = block.scale;
  const Prepared p(choice);
  const experiment::Finished finished(p.cells, block.only_planned ? "" : p.out);
  const auto waits = [&](const experiment::Cell& cell) { return cell.runs && !finished.done(cell); };
  if (!block.only_planned && std::any_of(p.cells.begin(), p.cells.end(), waits)) {
    log_info(str(page, ": ", block.id, " ", block.scale, " is left as it is: its cells have not run in ", p.out));
    return {};
  }
  return "\n" + experiment::comparison_markdown(results_of(p, finished), block.only_planned);
}

struct Page {
  std::string file, text;
  std::vector<experiment::Block> blocks;
};

// UserError: a page that cannot be read, or no block in any of them.
std::vector<Page> read_pages(const std::vector<std::string>& files) {
  std::vector<Page> pages;
  for (const std::string& file : files) {
    const std::string text = read_file(file);
    pages.push_back({file, text, experiment::blocks_of(text, file)});
  }
  const std::string none = "no block <!-- experiment ID SCALE planned --> ... <!-- end -->";
  if (std::all_of(pages.begin(), pages.end(), [](const Page& page) { return page.blocks.empty(); }))
    throw UserError(str("[experiment] ", joined(files), ": there is ", none));
  for (const Page& page : pages)
    if (page.blocks.empty()) log_info(page.file + " has " + none);
  return pages;
}

// Returns the page with all blocks written.
std::string written(const Page& page) {
  std::string out;
  size_t from = 0;
  for (const experiment::Block& block : page.blocks) {
    const std::optional<std::string> content = content_of(block, page.file);
    out += page.text.substr(from, block.begin - from) +
           content.value_or(page.text.substr(block.begin, block.end - block.begin));
    from = block.end;
  }
  return out + page.text.substr(from);
}

void doc(const ExperimentDocFlags& o) {
  o.directories.load();
  std::string stale;
  for (const Page& page : read_pages(o.pages)) {
    const std::string text = written(page);
    if (text == page.text) continue;
    if (!o.check) write_file(page.file, text);
    if (!o.check) log_info("wrote " + page.file);
    stale += (stale.empty() ? "" : ", ") + page.file;
  }
  if (o.check && !stale.empty())
    throw RunError(str("[experiment] ", stale, ": the tables are not what lmx writes; run it without --check"));
}

}  // namespace

void add_experiment_doc(Command group) {
  const auto o = std::make_shared<ExperimentDocFlags>();
  const Command command = group.add_subcommand("doc", "write the tables of experiments into Markdown pages");
  set_examples(command,
               {{"lmx experiment doc docs/experiments/*.md", "every block of these pages"},
                {"lmx experiment doc --check docs/experiments/*.md", "exit code 1 if a page is not up to date"}});
  command.add_option("PAGES", o->pages, "pages with blocks <!-- experiment ID SCALE planned --> ... <!-- end -->")
      .required()
      .writes();
  command.add_flag("--check", o->check, "only compare");
  o->directories.add_to(command);
  command.callback([o] { doc(*o); });
}

}  // namespace lmx::app::cli
