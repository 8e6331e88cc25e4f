#include "app/report/sides.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "app/print/words.h"
#include "app/report/compare.h"
#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

using lmx::str;

std::vector<const Report*> pointers(const std::vector<Report>& runs) {
  std::vector<const Report*> all;
  for (const Report& r : runs) all.push_back(&r);
  return all;
}

std::string seed_of(const Report& run) {
  for (const auto& [key, value] : run.config)
    if (key == "seed") return value;
  return "";
}

// UserError: the runs are not one configuration with different seeds.
void check_side(const std::vector<Report>& runs, const std::string& side) {
  std::vector<std::string> keys;
  for (const Setting& s : settings_of(pointers(runs)))
    if (is_setting(s.key) && !s.same()) keys.push_back(s.key);
  if (!keys.empty())
    throw lmx::UserError(str("[compare] the ", runs.size(), " runs of side ", side, " differ in ", joined(keys),
                             ", but a side is one configuration, with a run for each seed; name the folders of one"));
  std::map<std::string, std::string> seeds;
  for (const Report& r : runs)
    if (const auto [at, fresh] = seeds.try_emplace(seed_of(r), r.directory); !fresh)
      throw lmx::UserError(str("[compare] ", at->second, " and ", r.directory, " of side ", side, " both have seed ",
                               at->first, ", so they do not show the noise between seeds; leave out one"));
}

// Each value once, so that the order of a side's runs does not matter.
std::string joined_once(const std::vector<std::string>& values) {
  return joined(std::set<std::string>(values.begin(), values.end()));
}

void add_difference(std::vector<SideDifference>& to, const std::string& name, const std::vector<std::string>& a,
                    const std::vector<std::string>& b) {
  SideDifference d{name, joined_once(a), joined_once(b)};
  if (d.a != d.b) to.push_back(std::move(d));
}

std::vector<SideDifference> recipe_differences(const std::vector<Report>& a, const std::vector<Report>& b) {
  std::vector<const Report*> all = pointers(a);
  for (const Report& r : b) all.push_back(&r);
  std::vector<SideDifference> different;
  for (const Setting& s : settings_of(all)) {
    const auto middle = s.values.begin() + static_cast<int64_t>(a.size());
    if (!s.key.starts_with("run."))
      add_difference(different, s.key, {s.values.begin(), middle}, {middle, s.values.end()});
  }
  return different;
}

using Provenance = std::map<std::string, std::string>;

// Values of the last start that can make results differ although the recipes are equal.
Provenance provenance_of(const Report& run) {
  const nlohmann::json start = nlohmann::json::parse(run.start);
  Provenance values{{"ranks", std::to_string(run.ranks)},
                    {"starts", std::to_string(run.starts)},
                    {"state", state_text(run)},
                    {"last step", std::to_string(run.step)}};
  for (const char* at :
       {"/data/hash", "/lmx/version", "/lmx/compiler", "/host/name", "/host/system", "/host/cpu", "/compute/device",
        "/compute/isa", "/compute/threads", "/compute/cuda/name", "/compute/cuda/driver", "/compute/cuda/runtime",
        "/compute/cuda/cudnn", "/init/sha256", "/lr_factor", "/parameters"}) {
    std::string name = std::string(at).substr(1);
    std::replace(name.begin(), name.end(), '/', ' ');
    values[name] = start_text(run, at);
  }
  const nlohmann::json plugins = start.value("plugins", nlohmann::json::object());
  for (const auto& [name, plugin] : plugins.items())
    values["plugin " + name] = str(plugin.value("version", ""), " (", plugin.value("sha256", "").substr(0, 8), ")");
  return values;
}

std::vector<SideDifference> provenance_differences(const std::vector<Report>& a, const std::vector<Report>& b) {
  std::map<std::string, std::pair<std::vector<std::string>, std::vector<std::string>>> all;
  for (const Report& r : a)
    for (auto& [name, value] : provenance_of(r)) all[name].first.push_back(value);
  for (const Report& r : b)
    for (auto& [name, value] : provenance_of(r)) all[name].second.push_back(value);
  std::vector<SideDifference> different;
  for (const auto& [name, values] : all)  // a plugin that one side does not use is a difference of the recipes
    if (!values.first.empty() && !values.second.empty()) add_difference(different, name, values.first, values.second);
  return different;
}

std::set<std::string> seeds_of(const std::vector<Report>& runs) {
  std::set<std::string> seeds;
  for (const Report& r : runs) seeds.insert(seed_of(r));
  return seeds;
}

RunPair pair_of(const Report& a, const Report& b, const std::string& seed) {
  return {seed, a.directory, b.directory, record_divergence(a.records, b.records),
          checkpoint_divergence(a.directory, b.directory)};
}

std::vector<RunPair> pairs_of(const std::vector<Report>& a, const std::vector<Report>& b) {
  if (a.size() == 1 && b.size() == 1) return {pair_of(a[0], b[0], "")};
  std::vector<RunPair> pairs;
  for (const Report& own : a)
    for (const Report& other : b)
      if (seed_of(own) == seed_of(other)) pairs.push_back(pair_of(own, other, seed_of(own)));
  return pairs;
}

// The finite values of the metric by step, one for each run that has one, in the order of the seeds.
std::map<int64_t, std::vector<double>> curves_of(const std::vector<Report>& runs, const std::string& split,
                                                 const std::string& key) {
  std::vector<const Report*> order = pointers(runs);
  std::stable_sort(order.begin(), order.end(), [](auto* x, auto* y) { return seed_of(*x) < seed_of(*y); });
  std::map<int64_t, std::vector<double>> values;
  for (const Report* run : order) {
    std::map<int64_t, double> own;
    for (const RunRecord& r : run->records)
      if (r.split == split && std::isfinite(r.at(key, NAN))) own[r.step] = r.at(key);
    for (const auto& [step, value] : own) values[step].push_back(value);
  }
  return values;
}

}  // namespace

bool RunPair::equal() const {
  const bool compared = records.compared > 0 || !checkpoints.equal.empty();
  return compared && records.fields.empty() && !checkpoints.step;
}

bool Sides::differ() const {
  if (!several()) return !pairs[0].equal();
  return curve.empty() || curve.back().difference.significant().value_or(true);
}

Sides compare_sides(const std::vector<Report>& a, const std::vector<Report>& b, const std::string& split,
                    const std::string& key) {
  check_side(a, "A");
  check_side(b, "B");
  Sides sides;
  for (const Report& r : a) sides.a.push_back(r.directory);
  for (const Report& r : b) sides.b.push_back(r.directory);
  sides.recipe = recipe_differences(a, b);
  sides.provenance = provenance_differences(a, b);
  sides.pairs = pairs_of(a, b);
  sides.metric = split + " " + key;
  sides.paired = seeds_of(a) == seeds_of(b);
  const std::map<int64_t, std::vector<double>> others = curves_of(b, split, key);
  for (const auto& [step, values] : curves_of(a, split, key)) {
    const auto other = others.find(step);
    if (values.size() < a.size() || other == others.end() || other->second.size() < b.size()) continue;
    sides.curve.push_back(
        {step, values, other->second,
         sides.paired ? difference_of_pairs(values, other->second) : difference_of_means(values, other->second)});
  }
  return sides;
}

}  // namespace lmx_cli::reports
