#include "app/report/sides.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "app/print/words.h"
#include "app/report/compare.h"
#include "app/report/report.h"
#include "lmx/error.h"
#include "lmx/tensor.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::report {
namespace {

// By step, split and the number of steps that a training record covers: records with the same name have means over the
// same steps.
using RecordName = std::tuple<int64_t, std::string, int64_t>;

std::map<RecordName, const RunRecord*> named(const std::vector<RunRecord>& records) {
  const std::vector<double> steps = window_steps(records);
  std::map<RecordName, const RunRecord*> names;
  size_t window = 0;
  for (const RunRecord& r : records) {
    const int64_t covered = r.split == "train" ? std::llround(steps[window++]) : 0;
    if (r.split != "rank" && r.split != "change") names[{r.step, r.split, covered}] = &r;
  }
  return names;
}

bool is_result(const std::string& field) {
  return !field.starts_with("comm_") && !field.ends_with("_s") && field != "step_spread";
}

std::vector<FieldDifference> differing_fields(const RunRecord& a, const RunRecord& b) {
  std::vector<FieldDifference> fields;
  for (const auto& [name, value] : a.values) {
    const auto other = b.values.find(name);
    if (other == b.values.end() || !is_result(name)) continue;
    const bool equal = value == other->second || (std::isnan(value) && std::isnan(other->second));
    if (!equal) fields.push_back({name, value, other->second});
  }
  return fields;
}

}  // namespace

RecordDivergence record_divergence(const std::vector<RunRecord>& a, const std::vector<RunRecord>& b) {
  RecordDivergence found;
  const std::map<RecordName, const RunRecord*> others = named(b);
  for (const auto& [name, record] : named(a)) {
    const auto other = others.find(name);
    if (other == others.end()) continue;
    ++found.compared;
    if (!found.fields.empty()) continue;
    found.fields = differing_fields(*record, *other->second);
    found.step = record->step;
    found.split = record->split;
    if (found.fields.empty()) found.equal_until = record->step;
  }
  return found;
}

namespace {

// The tensors of a checkpoint by file and name; the parameters come first.
using Tensors = std::map<std::pair<std::string, std::string>, Tensor>;

Tensors tensors_of(const std::string& folder) {
  Tensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".safetensors") continue;
    const std::string file = path.stem() == "model" ? "" : path.stem().string() + ": ";
    for (auto& [name, tensor] : map_safetensors(path.string(), Allocator::cpu()))
      tensors[{file, name}] = std::move(tensor);
  }
  return tensors;
}

double element(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::f64:
      return t.data<double>()[i];
    case DType::f32:
      return t.data<float>()[i];
    case DType::bf16:
      return static_cast<float>(t.data<bfloat16>()[i]);
    case DType::f16:
      return static_cast<float>(t.data<float16>()[i]);
    case DType::i32:
      return t.data<int32_t>()[i];
    case DType::i64:
      return static_cast<double>(t.data<int64_t>()[i]);
    case DType::u8:
      return t.data<uint8_t>()[i];
  }
  throw InternalError("[compare] a tensor of an unknown type");
}

std::vector<int64_t> index_in(const Shape& shape, int64_t place) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (size_t d = index.size(); d-- > 0; place /= shape.dims()[d]) index[d] = place % shape.dims()[d];
  return index;
}

bool same_bits(const Tensor& a, const Tensor& b, int64_t i) {
  const size_t size = size_of(a.dtype()), at = static_cast<size_t>(i) * size;
  return std::memcmp(static_cast<const char*>(a.raw()) + at, static_cast<const char*>(b.raw()) + at, size) == 0;
}

// REQUIRES: equal shapes and types, and not all bits are equal.
void measure(const Tensor& a, const Tensor& b, TensorDifference& d) {
  double squares = 0, squares_a = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = element(a, i), y = element(b, i);
    squares_a += x * x;
    if (same_bits(a, b, i)) continue;
    if (d.elements++ == 0) {
      d.index = index_in(a.shape(), i);
      d.a = x;
      d.b = y;
    }
    const double distance = x == y || (std::isnan(x) && std::isnan(y)) ? 0 : std::fabs(x - y);
    d.max_abs = std::max(d.max_abs, std::isnan(distance) ? INFINITY : distance);
    squares += distance * distance;
  }
  d.relative = std::sqrt(squares) / std::sqrt(squares_a);
}

bool are_equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

TensorDifference difference_of(const std::string& name, const Tensor& a, const Tensor& b) {
  TensorDifference d;
  d.name = name;
  d.shape_a = describe(a);
  d.shape_b = describe(b);
  if (d.shape_a == d.shape_b) measure(a, b, d);
  return d;
}

// Fills everything but `equal` and `step`. Returns whether the checkpoints are equal.
bool compare_checkpoints(const std::string& folder_a, const std::string& folder_b, CheckpointDivergence& found) {
  const Tensors a = tensors_of(folder_a), b = tensors_of(folder_b);
  for (const auto& [key, tensor] : a) {
    const std::string name = key.first + key.second;
    const auto other = b.find(key);
    if (other == b.end()) {
      found.only_a.push_back(name);
      continue;
    }
    ++found.tensors;
    if (!are_equal(tensor, other->second)) found.different.push_back(difference_of(name, tensor, other->second));
  }
  for (const auto& [key, tensor] : b)
    if (!a.contains(key)) found.only_b.push_back(key.first + key.second);
  return found.different.empty() && found.only_a.empty() && found.only_b.empty();
}

// Compares the tensors of all checkpoints whose step is that of a checkpoint of the other run, by ascending step up to
// the first difference. The files are mapped, so that large ones need little memory. UserError: a damaged file.
CheckpointDivergence checkpoint_divergence(const std::string& run_a, const std::string& run_b) {
  CheckpointDivergence found;
  const std::vector<CheckpointInfo> others = list_checkpoints(run_b);
  for (const CheckpointInfo& own : list_checkpoints(run_a)) {
    const auto other = std::find_if(others.begin(), others.end(), [&](const auto& o) { return o.step == own.step; });
    if (other == others.end()) continue;
    found.tensors = 0;
    if (!compare_checkpoints(own.folder, other->folder, found)) {
      found.step = own.step;
      return found;
    }
    found.equal.push_back(own.step);
  }
  return found;
}

std::vector<const Report*> pointers(const std::vector<Report>& runs) {
  std::vector<const Report*> all;
  for (const Report& r : runs) all.push_back(&r);
  return all;
}

// UserError: the runs are not one configuration with different seeds.
void check_side(const std::vector<Report>& runs, const std::string& side) {
  std::vector<std::string> keys;
  for (const Setting& s : settings_of(pointers(runs)))
    if (is_setting(s.key) && !s.same()) keys.push_back(s.key);
  if (!keys.empty())
    throw UserError(str("[compare] the ", runs.size(), " runs of side ", side, " differ in ", joined(keys),
                        ", but a side is one configuration, with a run for each seed; name the folders of one"));
  std::map<std::string, std::string> seeds;
  for (const Report& r : runs)
    if (const auto [at, fresh] = seeds.try_emplace(seed_of(r), r.directory); !fresh)
      throw UserError(str("[compare] ", at->second, " and ", r.directory, " of side ", side, " both have seed ",
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

}  // namespace lmx::app::report
