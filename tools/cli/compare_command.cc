// lmx compare: where two runs differ, or two configurations with several seeds.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/report/page.h"
#include "app/report/sides.h"
#include "app/sweep/plan.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "lmx/error.h"

namespace lmx::app::cli {
namespace {

struct CompareFlags {
  std::vector<std::string> a, b;
  std::string metric = "valid.nll_nat", html;
  bool json = false, exit_code = false;
};

// Without --to, the two folders are the two sides.
void take_sides(CompareFlags& o) {
  if (!o.b.empty()) return;
  if (o.a.size() != 2)
    throw UserError(str("[compare] two folders are compared, but ", o.a.size(),
                        o.a.size() == 1 ? " is given" : " are given",
                        "; several runs of a side are given as: lmx compare A1 A2 --to B1 B2"));
  o.b = {o.a[1]};
  o.a.pop_back();
}

void compare(CompareFlags o) {
  take_sides(o);
  const sweep::Metric metric = sweep::parse_metric(o.metric, false);
  sweep::check_metric(metric, {});
  std::vector<report::Report> a = report::read_reports(o.a, "compare");
  const std::vector<report::Report> b = report::read_reports(o.b, "compare");
  const report::Sides sides = report::compare_sides(a, b, metric.split, metric.key);
  if (o.json)
    print_json(report::json_of(sides));
  else
    std::cout << report::text_of(sides);
  if (!o.html.empty()) {
    a.insert(a.end(), b.begin(), b.end());
    write_file(o.html, report::page("A and B", a, nullptr));
  }
  if (o.exit_code && sides.differ()) throw ExitCode{1};
}

}  // namespace

void add_compare(Command app) {
  const Command command =
      app.add_subcommand("compare", "where two runs differ: recipe, provenance, metrics, tensors, curves over seeds");
  set_examples(command,
               {{"lmx compare runs/a runs/b", "the first step and tensor at which two runs differ"},
                {"lmx compare runs/a runs/b --exit-code", "for scripts: exit code 1 if their results differ"},
                {"lmx compare runs/a-1 runs/a-2 runs/a-3 --to runs/b-1 runs/b-2 runs/b-3",
                 "two configurations with three seeds each: means, intervals, and where they differ"},
                {"lmx compare runs/a runs/b --html both.html", "also the page of lmx report, with the curves"}});
  const auto o = std::make_shared<CompareFlags>();
  command
      .add_option("RUN", o->a,
                  "A and B: folders of runs, or folders that contain those of one configuration at any depth. With "
                  "--to, the folders of A")
      .required();
  command.add_option("--to RUN", o->b, "the folders of B, if a side has several");
  command
      .add_option("--metric SPLIT.KEY", o->metric,
                  "the number of metrics.jsonl whose curves over seeds are compared, such as valid.ppl")
      .show_default();
  command.add_option("--html FILE", o->html, "also write the page of `lmx report` for all of these runs").output_file();
  command.add_flag("--exit-code", o->exit_code,
                   "exit code 1 if results differ: a metric or a tensor of two runs; with several seeds, the metric "
                   "beyond the noise between seeds at the last step");
  add_json(command, o->json);
  command.callback([o] { compare(*o); });
}

}  // namespace lmx::app::cli
