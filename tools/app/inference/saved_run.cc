#include "app/inference/saved_run.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "app/inference/run_text.h"
#include "app/runs/run_directory.h"
#include "app/runs/stored_parameters.h"
#include "app/translation/translate.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "nn/state_dict.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics.h"
#include "train/evaluate.h"

namespace lmx::app {

Recipe recipe_of_run(const std::string& directory, const std::string& device) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  Recipe recipe = read_recipe(read_run_config(directory), path.parent_path().filename().string());
  if (device.empty()) return recipe;
  recipe.device = device;
  recipe.device_place = "--device: ";
  return recipe;
}

namespace {

// Throws a separate message if a table with one row per word has a different number of rows. Then the checkpoint has
// another vocabulary, and is older than the vocabulary hashes in checkpoints.
void check_rows(const Network& network, const StateDict& values, int64_t words, const std::string& from) {
  for (const ParameterSpec& spec : network.specs) {
    const auto found = values.find(spec.name);
    if (found == values.end() || found->second.rank() != spec.shape.rank() || spec.shape[0] != words) continue;
    Shape same = found->second.shape();
    const int64_t there = same[0];
    same[0] = words;
    if (there != words && same == spec.shape)
      throw UserError(str("[checkpoint] ", from, " was trained with a vocabulary of ", there, " entries (", spec.name,
                          " ", found->second.shape(), "), this run's has ", words,
                          "; use a checkpoint of this run, or the run that it comes from"));
  }
}

// Adds the parameters to `params`. On a CPU a tensor of `values` becomes the value of its parameter without a copy.
// Values that do not fit their parameters are left to load_parameters(), which names them.
void add_stored(Context& ctx, ParameterStore& params, const std::vector<ParameterSpec>& specs,
                const StateDict& values) {
  for (ParameterSpec spec : specs) {
    spec.init = {"zeros", 0};
    const auto found = values.find(spec.name);
    const bool usable = found != values.end() && found->second.shape() == spec.shape &&
                        found->second.dtype() == DType::f32 && ctx.device.kind == Device::Kind::cpu;
    usable ? params.add(spec, found->second) : params.add(ctx, spec, RandomKey());
  }
}

}  // namespace

// The architecture `gpt` with learned positions has vectors for `context` positions; all others read any length.
int64_t longest_of(const Node& model) {
  const auto value = [&](const char* trait) { return trait_of(PluginKind::model, model, "model", trait); };
  const bool limited = value(trait::kArchitecture) == "gpt" && value("positions") == "learned";
  return limited ? parse_int(value("context")).value() : std::numeric_limits<int64_t>::max();
}

SavedRun::SavedRun(const std::string& directory, const Recipe& recipe, const Vocabulary& vocabulary,
                   const std::string& which)
    : comm(make_self_communicator(static_cast<int>(recipe.threads))), ctx(make_context(recipe, *comm)) {
  set_num_threads(comm->threads());
  ctx.training = false;
  network = make_network(recipe, vocabulary.size(), &vocabulary);
  checkpoint = find_parameters(directory, which);
  StoredParameters stored = load_stored(checkpoint, Allocator::cpu());
  check_vocabulary(stored.vocabulary, checkpoint, vocabulary, directory);
  check_rows(network, stored.values, vocabulary.size(), checkpoint);
  add_stored(ctx, params, network.specs, stored.values);
  load_parameters(params, stored.values, checkpoint);
  if (!stored.averages.empty()) {
    if (recipe.train.ema > 0)  // else they are those of the optimizer
      Ema(params, recipe.train.ema, ema_pattern(recipe)).load(stored.averages);
    for (const auto& [name, t] : stored.averages) stored.values[name] = t;
    load_parameters(params, stored.values, checkpoint);
  }
  require_finite(stored.values, checkpoint);
  step = stored.step;
  longest = longest_of(recipe.model);
}

namespace {

// Compares layer numbers in names that differ only in this number: the longer number is the higher one.
bool is_higher(const std::string& name, const std::string& other) {
  return name.size() != other.size() ? name.size() > other.size() : name > other;
}

}  // namespace

std::string state_name(const ModelState& state, const std::string& wanted) {
  if (state.empty())
    throw UserError(str("[state] this run's model keeps no state from token to token, so there is no ", wanted,
                        " state to look at"));
  if (state.contains(wanted)) return wanted;
  std::vector<std::string> names;
  std::string cell, hidden;  // of the last layer
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
    if (name.ends_with(".c") && is_higher(name, cell)) cell = name;
    if ((name.ends_with(".h") || name.ends_with(".s")) && is_higher(name, hidden)) hidden = name;
  }
  if (cell.empty()) cell = hidden;
  const std::string found = wanted == "cell" ? cell : wanted == "hidden" ? hidden : "";
  if (!found.empty()) return found;
  throw UserError(str("[state] this run's model has no ", wanted, " state", did_you_mean(wanted, names), "; it has ",
                      config::join(names)));
}

int64_t state_units(const ModelState& state, const std::string& name, int64_t unit) {
  const Tensor& tensor = state.at(name);
  const int64_t units = tensor.dim(0) > 0 ? tensor.numel() / tensor.dim(0) : 0;
  if (unit >= units || unit < -1)
    throw UserError(str("[state] ", name, " has units 0 to ", units - 1, ", no unit ", unit));
  return units;
}

// lmx average: the mean of several checkpoints' parameters.

namespace {

std::vector<std::string> newest(const std::string& run, int64_t n) {
  std::vector<std::string> paths = last_checkpoints(run, n);
  if (static_cast<int64_t>(paths.size()) < n)
    throw UserError(str("[average] ", n, " checkpoints requested, but ", run, " keeps ", paths.size(),
                        "; train with checkpoint.keep_last=", n));
  return paths;
}

std::vector<std::string> likeliest(const std::string& run, int64_t n) {
  const std::map<int64_t, double> ppl = validations(run);
  std::vector<std::pair<double, std::string>> scored;
  for (const CheckpointInfo& c : list_checkpoints(run))
    if (const auto found = ppl.find(c.step); found != ppl.end()) scored.emplace_back(found->second, c.folder);
  if (static_cast<int64_t>(scored.size()) < n)
    throw UserError(
        str("[average] ", n, " checkpoints requested, but ", run, " keeps ", scored.size(), " that were validated",
            "; train with a larger checkpoint.keep_last, and checkpoint.every a multiple of train.eval_every"));
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> paths;
  for (int64_t i = 0; i < n; ++i) paths.push_back(scored[static_cast<size_t>(i)].second);
  return paths;
}

std::vector<std::string> chosen(const AverageOptions& o) {
  const int ways = !o.checkpoints.empty() + (o.last != 0) + (o.best != 0);
  if (ways != 1) throw UserError("[average] name checkpoints, or a run with either --last N or --best N");
  if (o.last < 0 || o.best < 0) throw UserError(str("[average] cannot average ", o.last + o.best, " checkpoints"));
  if (!o.checkpoints.empty()) return o.checkpoints;
  static_cast<void>(find_parameters(o.run, "last"));  // throws its message if there is no run
  return o.last > 0 ? newest(o.run, o.last) : likeliest(o.run, o.best);
}

// Throws a UserError that names the first difference in names, shapes or types of the parameters.
void check_alike(const StateDict& a, const std::string& path_a, const StateDict& b, const std::string& path_b) {
  for (const auto& [name, t] : a) {
    const auto other = b.find(name);
    if (other == b.end())
      throw UserError(str("[average] ", path_b, " has no parameter ", name, ", which ", path_a, " has"));
    if (other->second.shape() != t.shape() || other->second.dtype() != t.dtype())
      throw UserError(str("[average] parameter ", name, " is ", describe(t), " in ", path_a, " and ",
                          describe(other->second), " in ", path_b, "; only checkpoints of one model have an average"));
  }
  for (const auto& [name, t] : b)
    if (!a.contains(name))
      throw UserError(str("[average] ", path_a, " has no parameter ", name, ", which ", path_b, " has"));
}

using Sums = std::map<std::string, std::vector<double>>;

void add(Sums& sums, const StateDict& values, const std::string& path) {
  for (const auto& [name, t] : values) {
    if (t.dtype() != DType::f32)
      throw UserError(str("[average] parameter ", name, " of ", path, " is ", describe(t), "; f32 is averaged"));
    std::vector<double>& sum = sums[name];
    sum.resize(static_cast<size_t>(t.numel()));
    const float* x = t.data<float>();
    parallel_for(t.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum[static_cast<size_t>(i)] += static_cast<double>(x[i]);
    });
  }
}

}  // namespace

std::vector<std::string> last_checkpoints(const std::string& run, int64_t most) {
  const std::vector<CheckpointInfo> all = list_checkpoints(run);
  std::vector<std::string> paths;
  for (auto it = all.end() - std::min(most, static_cast<int64_t>(all.size())); it != all.end(); ++it)
    paths.push_back(it->folder);
  return paths;
}

std::vector<std::string> average_checkpoints(const AverageOptions& options, const std::string& output) {
  const std::vector<std::string> paths = chosen(options);
  const auto allocator = Allocator::cpu();
  Sums sums;
  VocabularyMark vocabulary;
  std::string marked;  // the path that `vocabulary` is from
  StateDict mean;      // the tensors of the first checkpoint, until they are overwritten
  for (const std::string& path : paths) {
    StoredParameters stored = load_stored(path, allocator);
    StateDict& values = stored.values;
    if (values.empty()) throw UserError(str("[average] ", path, " holds no parameters"));
    if (!mean.empty()) check_alike(mean, paths[0], values, path);
    if (vocabulary.sha256.empty()) {
      vocabulary = stored.vocabulary;
      marked = path;
    }
    check_one_vocabulary(vocabulary, marked, stored.vocabulary, path);
    add(sums, values, path);
    if (mean.empty()) mean = std::move(values);
  }
  for (auto& [name, t] : mean) {
    const std::vector<double>& sum = sums.at(name);
    float* x = t.data<float>();
    for (size_t i = 0; i < sum.size(); ++i) x[i] = static_cast<float>(sum[i] / static_cast<double>(paths.size()));
  }
  std::map<std::string, std::string> metadata{{"average_of", config::join(paths)}};
  put_mark(metadata, vocabulary);
  save_safetensors(output, mean, metadata);
  return paths;
}

}  // namespace lmx::app
