#include "app/plan/measured.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "app/plan/variants.h"
#include "app/records/median.h"
#include "app/records/run_records.h"
#include "app/report/comm_times.h"
#include "app/report/sub_batches.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"

namespace lmx::plan {
namespace {

constexpr std::string_view kRows = "rows/";

// A normal distribution has 68 % of its values within one standard deviation of the mean. The ends of a histogram are
// rare pauses of the machine.
double spread_of(const lmx_cli::SubBatches& times) {
  if (times.empty()) return 0;
  return (times.quantile(0.8413) - times.quantile(0.1587)) / 2 / times.mean();
}

}  // namespace

Measured read_measured(const std::string& run) {
  const std::string config = (std::filesystem::path(run) / "config.yaml").string();
  if (!std::filesystem::exists(config))
    throw UserError(str("[plan] --from ", run, ": there is no run (no config.yaml)"));
  Measured m;
  m.recipe = parse_yaml_file(config);
  m.ranks = ranks_of(m.recipe);
  if (Node* batch = m.recipe.find("batch")) batch->set("fit", Node::string("none"));  // the run has chosen
  if (const Node* comm = m.recipe.find("comm"); comm && m.ranks > 1 && train::in_one_process(*comm, "comm"))
    throw UserError(str("[plan] --from ", run, ": its ", m.ranks,
                        " ranks divide the cores of one process, so their times are not those of a device; take a run ",
                        "of one rank or of processes"));
  const std::vector<lmx_cli::RunRecord> records = lmx_cli::read_records(run);
  std::vector<double> steps;
  std::map<std::string, double> counts;
  for (const lmx_cli::RunRecord& record : records) {
    if (record.split != "train") continue;
    steps.push_back(record.at("step_s"));
    for (const auto& [key, value] : record.values)
      if (key.starts_with(kRows)) m.rows[key.substr(kRows.size())] += value, ++counts[key.substr(kRows.size())];
  }
  if (steps.empty()) throw UserError(str("[plan] --from ", run, ": the run has no record of a training step"));
  if (steps.size() > 2) steps.erase(steps.begin());  // the first step allocates memory
  const double exposed = m.ranks > 1 ? lmx_cli::comm_times(records).exposed : 0;
  m.compute_s = lmx_cli::median(steps) - exposed;
  if (!(m.compute_s > 0))
    throw UserError(str("[plan] --from ", run, ": its steps took no longer than the communication in them"));
  m.spread = spread_of(lmx_cli::sub_batches(records));
  for (auto& [table, rows] : m.rows) rows /= counts[table];
  return m;
}

}  // namespace lmx::plan
