// lmx average: the mean of several checkpoints' parameters.
#include "app/inference/average.h"

#include <algorithm>
#include <map>

#include "app/inference/saved_run.h"
#include "app/runs/stored_parameters.h"
#include "app/translation/translate.h"
#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/parallel.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics.h"

namespace lmx {
namespace {

using namespace train;

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

}  // namespace lmx
