#include "app/plan/measured.h"

#include <cmath>
#include <filesystem>
#include <vector>

#include "app/plan/variants.h"
#include "app/records/records.h"
#include "app/report/step_times.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"
#include "recipe/recipe.h"

namespace lmx::app::plan {
namespace {

constexpr std::string_view kRows = "rows/";

// A normal distribution has 68 % of its values within one standard deviation of the mean. The ends of a histogram are
// rare pauses of the machine.
double spread_of(const SubBatches& times) {
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
  if (const Node* comm = m.recipe.find("comm"); comm && m.ranks > 1 && in_one_process(*comm, "comm"))
    throw UserError(str("[plan] --from ", run, ": its ", m.ranks,
                        " ranks divide the cores of one process, so their times are not those of a device; take a run ",
                        "of one rank or of processes"));
  const std::vector<RunRecord> records = read_records(run);
  std::vector<double> steps;
  std::map<std::string, double> counts;
  for (const RunRecord& record : records) {
    if (record.split != "train") continue;
    steps.push_back(record.at("step_s"));
    for (const auto& [key, value] : record.values)
      if (key.starts_with(kRows)) m.rows[key.substr(kRows.size())] += value, ++counts[key.substr(kRows.size())];
  }
  if (steps.empty()) throw UserError(str("[plan] --from ", run, ": the run has no record of a training step"));
  if (steps.size() > 2) steps.erase(steps.begin());  // the first step allocates memory
  const double exposed = m.ranks > 1 ? comm_times(records).exposed : 0;
  m.compute_s = median(steps) - exposed;
  if (!(m.compute_s > 0))
    throw UserError(str("[plan] --from ", run, ": its steps took no longer than the communication in them"));
  m.spread = spread_of(sub_batches(records));
  for (auto& [table, rows] : m.rows) rows /= counts[table];
  return m;
}

namespace {

const Node& part_of(const Node& tree, const std::string& key) {
  static const Node none = Node::map({});
  const Node* node = tree.find(key);
  return node ? *node : none;
}

std::string name_of(const Node& component) {
  return part_of(component, "name").text;
}

std::string precision_of(const Node& tree) {
  const std::string& text = part_of(tree, "precision").text;
  return text.empty() ? Recipe().precision : text;
}

// The seconds of the step, of which `row` is the plan.
double seconds_of(const KnownStep& step, const Row& row) {
  if (step.step_s > 0) return step.step_s;
  if (step.tokens_per_s > 0) return row.step_tokens / step.tokens_per_s;
  return step.hours_per_epoch * 3600 * row.step_tokens / step.epoch_tokens;
}

// The request that plans a known step on the machine as its file has it.
std::unique_ptr<Request> request_of(const KnownStep& step, const std::string& recipe, const Request& asked) {
  auto request = std::make_unique<Request>();
  request->recipe = recipe;
  request->machine = asked.machine;
  request->compose = asked.compose;
  request->compose.overrides = step.overrides;
  request->compose.places.clear();
  request->ranks = {step.ranks};
  request->calibrated = false;
  request->spread = step.spread;
  request->fill = step.fill;
  if (!step.types.empty()) request->law = parse_law(step.types);
  request->epoch_tokens = step.epoch_tokens > 0 ? step.epoch_tokens : NAN;  // the corpus is not looked at
  return request;
}

}  // namespace

std::string parts_text(const Node& tree) {
  std::string text = precision_of(tree);
  for (const char* part : {"data", "model", "loss", "sync"}) text += "\n" + to_yaml(part_of(tree, part));
  return text;
}

KnownSpeeds::Steps& KnownSpeeds::steps_of(const Request& request, const Variant& variant) {
  const std::filesystem::path folder = std::filesystem::path(request.recipe).parent_path();
  const auto [place, fresh] = machines_.try_emplace(request.machine + "\n" + folder.string());
  Steps& steps = place->second;
  if (!fresh) return steps;
  for (const KnownStep& step : variant.machine.known_steps()) {
    const std::string file = (folder / (step.recipe + ".yaml")).string();
    if (!std::filesystem::exists(file)) continue;  // a machine can have steps of recipes that are elsewhere
    Loaded loaded{step, {}, request_of(step, file, request), nullptr};
    bool swept = false;
    loaded.tree = variants_of(*loaded.request, swept)[0].tree;
    steps.push_back(std::move(loaded));
  }
  return steps;
}

KnownSpeeds::Match most_like(KnownSpeeds::Steps& steps, const std::string& recipe, const Node& tree,
                             bool any_precision) {
  using Match = KnownSpeeds::Match;
  Match best;
  const Node& model = part_of(tree, "model");
  for (KnownSpeeds::Loaded& l : steps) {
    if (!any_precision && precision_of(tree) != precision_of(l.tree)) continue;
    const Node& known = part_of(l.tree, "model");
    const Match::Kind kind = l.step.recipe == recipe                        ? Match::recipe
                             : settings_text(model) == settings_text(known) ? Match::model
                             : name_of(model) == name_of(known)             ? Match::kind_of_model
                                                                            : Match::other;
    if (kind > best.kind) best = {&l, kind};
  }
  return best;
}

const KnownSpeed& known_speed(KnownSpeeds::Loaded& known) {
  if (known.speed) return *known.speed;
  Planner planner(*known.request);
  const Row row = planner.rows(1).rows[0];
  const double seconds = seconds_of(known.step, row);
  known.speed = std::make_unique<KnownSpeed>(KnownSpeed{planner.speed_of({known.step.ranks, seconds}),
                                                        seconds / row.time.compute_s, seconds, known.step.ranks,
                                                        row.batch, parts_text(known.tree)});
  return *known.speed;
}

}  // namespace lmx::app::plan
