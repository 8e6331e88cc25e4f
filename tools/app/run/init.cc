#include "app/run/run.h"

#include <algorithm>
#include <filesystem>

#include "app/runs/run_directory.h"
#include "app/runs/stored_parameters.h"
#include "backend/cuda.h"
#include "base/files.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "nn/state_dict.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the paths in the folder of a path that does not exist, to suggest the one that was meant.
std::vector<std::string> beside(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(folder, error))
    names.push_back((path.has_parent_path() ? entry.path() : entry.path().filename()).string());
  return names;
}

// Returns the checkpoint or file that `init.from` refers to.
std::string source_of(const InitConfig& init) {
  std::error_code error;
  if (!fs::exists(init.from, error))
    throw UserError(
        str(init.from_place, "there is no run or file '", init.from, "'", did_you_mean(init.from, beside(init.from))));
  if (!fs::is_directory(init.from, error) || fs::exists(init.from + "/state.json", error)) return init.from;
  try {
    static_cast<void>(read_run_config(init.from));
    return find_checkpoint(init.from, init.checkpoint);
  } catch (const UserError& e) {
    throw UserError(init.from_place + e.what());
  }
}

std::string hash_of(const std::string& path) {
  return sha256_of_file(fs::is_directory(path) ? path + "/model.safetensors" : path);
}

// Returns for each row of a table here the row of the table there; -1 for a word that the other vocabulary lacks.
// Empty: the vocabulary is the same, or was not recorded.
std::vector<int64_t> rows_by_word(const StoredParameters& stored, const std::string& path,
                                  const Vocabulary& vocabulary) {
  if (stored.vocabulary.sha256.empty() || stored.vocabulary.sha256 == mark_of(vocabulary).sha256) return {};
  std::vector<int64_t> rows(static_cast<size_t>(vocabulary.size()), -1);
  const std::optional<Vocabulary> there = vocabulary_beside(path, stored.vocabulary);
  if (!there) return rows;
  for (int32_t i = 0; i < vocabulary.size(); ++i) {
    const int32_t other = there->id(vocabulary.word(i));
    const bool known = other >= 0 && (other != there->unk() || there->word(other) == vocabulary.word(i));
    if (known) rows[static_cast<size_t>(i)] = other;
  }
  return rows;
}

class Taking {
 public:
  Taking(const std::string& path, const Vocabulary* vocabulary, ParameterStore* params)
      : params_(params), stored_(load_stored(path, Allocator::cpu())) {
    for (auto& [name, t] : stored_.averages) stored_.values[name] = t;  // the other run is evaluated with them
    require_finite(stored_.values, path);
    if (vocabulary) rows_ = rows_by_word(stored_, path, *vocabulary);
    report_.path = path;
    report_.sha256 = hash_of(path);
  }

  void take(const ParameterSpec& spec) {
    const auto found = stored_.values.find(spec.name);
    if (found == stored_.values.end()) return keep(spec, "is not there");
    const Tensor& there = found->second;
    Shape rest = there.shape();
    const bool words = (spec.sparse || spec.output) && !rows_.empty() && there.rank() == spec.shape.rank() &&
                       spec.shape[0] == static_cast<int64_t>(rows_.size());
    if (words) rest[0] = spec.shape[0];
    if (rest != spec.shape) return keep(spec, str("is ", there.shape(), " there and ", spec.shape, " here"));
    if (there.dtype() != DType::f32 && there.dtype() != DType::f64 && there.dtype() != DType::f16 &&
        there.dtype() != DType::bf16)
      return keep(spec, str("is ", describe(there), " there, which is no floating type"));
    words ? take_rows(spec, there.to(DType::f32)) : take_all(spec, there.to(DType::f32));
  }

  void keep(const ParameterSpec& spec, const std::string& why) { report_.kept.push_back({spec.name, why}); }

  InitReport finish(const std::vector<std::string>& names) {
    for (const auto& [name, t] : stored_.values)
      if (!holds(names, name)) report_.unused.push_back(str(name, " ", t.shape()));
    return std::move(report_);
  }

 private:
  void take_all(const ParameterSpec& spec, const Tensor& there) {
    report_.taken.push_back(spec.name);
    if (!params_) return;
    Var& var = params_->at(spec.name);
    copy_values(var.value(), var.value().dtype() == DType::f32 ? there : there.to(var.value().dtype()));
    var.changed();
  }

  void take_rows(const ParameterSpec& spec, const Tensor& there) {
    const auto known = std::count_if(rows_.begin(), rows_.end(), [](int64_t row) { return row >= 0; });
    if (known == 0) return keep(spec, "belongs to another vocabulary there, whose words are not known");
    report_.taken.push_back(spec.name);
    report_.partly.push_back(str(spec.name, ": ", count_text(known), " of ", count_text(std::ssize(rows_)), " rows"));
    if (!params_) return;
    Var& var = params_->at(spec.name);
    const int64_t width = there.numel() / there.dim(0);
    Tensor values = copy_to(var.value(), Allocator::cpu());
    float* to = values.data<float>();
    for (size_t i = 0; i < rows_.size(); ++i)
      if (rows_[i] >= 0 && rows_[i] < there.dim(0))
        std::copy_n(there.data<float>() + rows_[i] * width, width, to + static_cast<int64_t>(i) * width);
    copy_values(var.value(), values);
    var.changed();
  }

  ParameterStore* params_;
  StoredParameters stored_;
  std::vector<int64_t> rows_;
  InitReport report_;
};

// Example: "a, b, c and 4 more".
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost)));
  return config::join(first) + (names.size() > kMost ? str(" and ", names.size() - kMost, " more") : "");
}

}  // namespace

InitReport take_parameters(const InitConfig& init, const std::vector<ParameterSpec>& specs,
                           const Vocabulary* vocabulary, ParameterStore* params) {
  InitReport report;
  if (!init.from.empty()) {
    const std::vector<std::string> names = names_of(specs);
    const std::vector<std::string> wanted = ParamPattern(init.params, init.params_place).select(names);
    Taking taking(source_of(init), vocabulary, params);
    for (const ParameterSpec& spec : specs)
      holds(wanted, spec.name) ? taking.take(spec) : taking.keep(spec, "is not named by init.params");
    report = taking.finish(names);
    if (report.taken.empty()) {
      const auto first = std::find_if(report.kept.begin(), report.kept.end(),
                                      [&](const InitReport::Kept& kept) { return holds(wanted, kept.name); });
      throw UserError(str(init.from_place, "no parameter starts from ", report.path, ": ", first->name, " ", first->why,
                          report.unused.empty() ? "" : "; it holds " + some_of(report.unused)));
    }
  }
  for (const ParameterSpec& spec : specs) {
    if (!spec.frozen) continue;
    report.frozen.push_back(spec.name);
    report.frozen_values += spec.shape.numel();
  }
  return report;
}

std::vector<std::string> describe(const InitReport& report) {
  std::vector<std::string> lines;
  if (!report.path.empty()) {
    const size_t all = report.taken.size() + report.kept.size();
    lines.push_back(str("init: ", report.taken.size(), " of ", all, " parameters start from ", report.path));
    for (const std::string& table : report.partly)
      lines.push_back(str("init: ", table, " start from there, by word; the other words are not in its vocabulary"));
    for (const InitReport::Kept& kept : report.kept)
      lines.push_back(str("init: ", kept.name, " ", kept.why, "; it keeps its own first values"));
    if (!report.unused.empty())
      lines.push_back(str("init: ", plural(report.unused.size(), "tensor"),
                          " there without a parameter here: ", some_of(report.unused)));
  }
  if (!report.frozen.empty())
    lines.push_back(str("init: ", report.frozen.size(), report.frozen.size() == 1 ? " parameter is" : " parameters are",
                        " frozen (", count_text(report.frozen_values), " values): ", some_of(report.frozen)));
  return lines;
}

}  // namespace lmx::app
