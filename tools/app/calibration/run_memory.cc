#include "app/calibration/run_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/datasets/open.h"
#include "app/memory/counted.h"
#include "app/plan/variants.h"
#include "app/print/terminal.h"
#include "app/records/records.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/tensor.h"
#include "recipe/comm_config.h"
#include "recipe/planned_batcher.h"
#include "recipe/sync_rules.h"

namespace lmx::plan {
namespace {

using namespace train;

constexpr std::string_view kMemory = "memory/", kPeak = "_peak_bytes";

// The memory that the records of a run contain.
struct Recorded {
  std::map<std::string, int64_t> peaks;  // by class and "total": of the rank with the most, at the last record
  int64_t step = 0;                      // of the last record of the ranks
  bool validated = false;                // before that record
};

Recorded read_recorded(const std::string& run) {
  Recorded all;
  int64_t validation = -1;
  for (const lmx_cli::RunRecord& record : lmx_cli::read_records(run)) {
    if (record.split == "valid") validation = validation < 0 ? record.step : validation;
    for (const auto& [key, value] : record.values) {
      if (record.split != "rank" || !key.starts_with(kMemory) || !key.ends_with(kPeak)) continue;
      int64_t& most = all.peaks[key.substr(kMemory.size(), key.size() - kMemory.size() - kPeak.size())];
      most = std::max(most, static_cast<int64_t>(value));
      all.step = record.step;
    }
  }
  all.validated = validation >= 0 && validation < all.step;
  if (all.peaks.empty())
    throw UserError(str("[plan] --memory ", run, ": the run has no record of the memory of its ranks"));
  return all;
}

// As the run was made: its ranks were threads of one process or processes.
RankMemory counted(const Recipe& recipe, int ranks, const std::optional<Machine>& machine) {
  const BatchPlan plan = planned_batcher(recipe.batcher)->plan();
  const bool gpu = machine ? machine->device.support().gpu : recipe.device.starts_with("cuda");
  const CountedGroup group{gpu ? Device::Kind::cuda : Device::Kind::cpu, ranks,
                           comm_nodes(recipe.comm, "comm", ranks).per_node(),
                           check_dataset(recipe.data).findings.empty() ? [&] { return open_dataset(recipe.data); }
                                                                       : std::function<Dataset()>()};
  if (ranks > 1 && in_one_process(recipe.comm, "comm")) return count_process(recipe, plan, group, 1).rank;
  return count_rank(recipe, plan, group).memory;
}

}  // namespace

double ComparedClass::error() const {
  if (measured == 0) return planned == 0 ? 0 : INFINITY;
  return static_cast<double>(planned) / static_cast<double>(measured) - 1;
}

ComparedMemory compare_memory(const std::string& run, const std::optional<Machine>& machine) {
  const std::string config = (std::filesystem::path(run) / "config.yaml").string();
  if (!std::filesystem::exists(config))
    throw UserError(str("[plan] --memory ", run, ": there is no run (no config.yaml)"));
  const Node tree = parse_yaml_file(config);
  const Recipe recipe = read_recipe(tree, "run");
  if (is_asynchronous(recipe.sync, "sync"))
    throw UserError(str("[plan] --memory ", run, ": the memory of asynchronous workers is not compared"));
  const Recorded recorded = read_recorded(run);
  const int ranks = ranks_of(tree);
  const RankMemory planned = counted(recipe, ranks, machine);
  const std::filesystem::path folder = std::filesystem::absolute(run) / "";  // with or without a slash at the end
  ComparedMemory result{folder.parent_path().filename().string(), ranks, recorded.step, {}};
  const auto add = [&](const std::string& name, int64_t bytes) {
    const auto found = recorded.peaks.find(name);
    result.classes.push_back({name, bytes, found == recorded.peaks.end() ? 0 : found->second});
  };
  for (int c = 0; c < kMemClasses; ++c) {
    const auto type = static_cast<MemClass>(c);
    if (type != MemClass::other)
      add(name_of(type), recorded.validated ? planned.of(type) : planned.training.peak[static_cast<size_t>(c)]);
  }
  add("total", recorded.validated ? planned.total() : planned.training.total_peak);
  return result;
}

std::string text_of(const ComparedMemory& c) {
  std::vector<std::vector<std::string>> rows{{"CLASS", "PLANNED", "MEASURED", "ERROR"}};
  for (const ComparedClass& one : c.classes) {
    char error[32];
    std::snprintf(error, sizeof error, "%+.1f %%", 100 * one.error());
    rows.push_back({one.name, bytes_text(one.planned), bytes_text(one.measured), error});
  }
  return lmx_cli::fit(str("memory of a rank of ", c.recipe, ", ", c.ranks, c.ranks == 1 ? " rank, " : " ranks, ",
                          "until step ", c.steps, "\n", lmx_cli::table(rows)));
}

lmx_cli::Json json_of(const ComparedMemory& c) {
  lmx_cli::Json classes;
  for (const ComparedClass& one : c.classes)
    classes[one.name] = {
        {"planned_bytes", one.planned}, {"measured_bytes", one.measured}, {"error", lmx_cli::json_number(one.error())}};
  return {{"run", c.recipe}, {"ranks", c.ranks}, {"step", c.steps}, {"classes", classes}};
}

}  // namespace lmx::plan
