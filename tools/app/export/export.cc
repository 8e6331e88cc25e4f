#include "app/export/writers.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/runs/run_directory.h"
#include "base/files.h"
#include "base/output_file.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "recipe/components.h"

namespace lmx {
namespace train {

namespace fs = std::filesystem;

const Tensor& ExportSource::at(const std::string& name) const {
  if (!has(name))
    throw UserError(str("[export] model ", component_name(recipe.model), " has no parameter '", name,
                        "', which the architecture that its plugin states has (docs/models.md)"));
  return run.params.at(name).value();
}

std::string ExportSource::output_table() const {
  for (const ParameterSpec& spec : run.network.specs)
    if (spec.output && spec.shape.rank() == 2) return spec.name;
  throw InternalError("no parameter makes the logits");
}

ExportFolder::ExportFolder(std::string target) : target_(std::move(target)) {
  std::error_code error;
  const fs::path path = fs::absolute(target_.ends_with('/') ? target_.substr(0, target_.size() - 1) : target_);
  if (fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error)))
    throw UserError(str("[export] ", target_, " exists; choose a folder that does not exist, or is empty"));
  if (!fs::is_directory(path.parent_path(), error))
    throw UserError(str("[export] there is no folder ", path.parent_path().string(), " to make ", target_, " in"));
  draft_ = (path.parent_path() / str(".", path.filename().string(), ".tmp-", getpid())).string();
  fs::remove_all(draft_, error);
  if (!fs::create_directory(draft_, error) || error)
    throw RunError(str("[export] cannot create ", draft_, ": ", error.message()));
}

ExportFolder::~ExportFolder() {
  std::error_code error;
  if (!finished_) fs::remove_all(draft_, error);
}

std::string ExportFolder::path(const std::string& name) {
  names_.push_back(name);
  return draft_ + "/" + name;
}

void ExportFolder::write(const std::string& name, std::string_view text) {
  write_file(path(name), text);
}

void ExportFolder::write(const std::string& name, const nlohmann::ordered_json& json) {
  write(name, std::string_view(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
}

void ExportFolder::copy(const std::string& from, const std::string& name) {
  write(name, std::string_view(read_file(from)));
}

std::vector<std::string> ExportFolder::finish() {
  std::error_code error;
  fs::remove(target_, error);  // removes an empty folder
  fs::rename(draft_, target_, error);
  if (error) throw RunError(str("[export] cannot create ", target_, ": ", error.message()));
  finished_ = true;
  return names_;
}

void Misfits::add(const std::string& key, const std::string& why) {
  reasons_.push_back(key + ": " + why);
}

void Misfits::check(const std::string& directory, const std::string& format) const {
  if (reasons_.empty()) return;
  std::string text;
  for (const std::string& reason : reasons_) text += "\n  " + reason;
  throw UserError(str("[export] the model of ", directory, " does not fit ", format, ":", text));
}

ModelTraits::ModelTraits(const ExportSource& source)
    : model_(source.recipe.model), name_(component_name(model_)), architecture_(find(trait::kArchitecture)) {}

std::string ModelTraits::find(const char* trait) const {
  return trait_of(PluginKind::model, model_, "model", trait);
}

std::string ModelTraits::text(const char* trait) const {
  const std::string value = find(trait);
  if (value.empty()) lacks(trait, "no value");
  return value;
}

int64_t ModelTraits::integer(const char* trait) const {
  const std::optional<int64_t> value = parse_int(text(trait));
  if (!value || *value < 0) lacks(trait, str("'", text(trait), "', which is no count"));
  return *value;
}

double ModelTraits::real(const char* trait) const {
  const std::optional<double> value = parse_double(text(trait));
  if (!value) lacks(trait, str("'", text(trait), "', which is no number"));
  return *value;
}

bool ModelTraits::flag(const char* trait) const {
  const std::optional<bool> value = parse_bool(text(trait));
  if (!value) lacks(trait, str("'", text(trait), "', which is neither true nor false"));
  return *value;
}

std::string ModelTraits::description() const {
  if (architecture_ == name_) return name_;
  if (architecture_.empty()) return name_ + ", whose plugin states no architecture";
  return str(name_, ", of the architecture ", architecture_);
}

void ModelTraits::lacks(const char* trait, const std::string& got) const {
  throw UserError(str("[export] the plugin of model ", name_, " states the architecture ", architecture_,
                      ", and for its trait '", trait, "' ", got, "; lmx/config.h lists the traits of an architecture"));
}

TransformerShape read_transformer(const ExportSource& source, Misfits& misfits) {
  const ModelTraits traits(source);
  TransformerShape shape;
  if (traits.architecture() != "transformer") {
    misfits.add("model.name", traits.description() + ", not transformer");
    return shape;
  }
  shape.encoder_layers = traits.integer(trait::kEncoderLayers);
  shape.decoder_layers = traits.integer(trait::kDecoderLayers);
  shape.d = traits.integer(trait::kWidth);
  shape.ffn = traits.integer(trait::kFeedForward);
  shape.heads = traits.integer(trait::kHeads);
  shape.dropout = traits.real(trait::kDropout);
  shape.attention_dropout = traits.real(trait::kAttentionDropout);
  shape.relu_dropout = traits.real(trait::kFeedForwardDropout);
  shape.norm = traits.text(trait::kNorm);
  shape.share = traits.text(trait::kSharedTables);
  return shape;
}

Tensor position_table(int64_t rows, int64_t d) {
  Tensor table = Tensor::empty(Allocator::cpu(), {rows, d}, DType::f32, MemClass::other);
  const int64_t half = d / 2;
  const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(1, half - 1));
  for (int64_t t = 0; t < rows; ++t) {
    float* row = table.data<float>() + t * d;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * std::exp(-step * static_cast<double>(i));
      row[i] = static_cast<float>(std::sin(angle));
      row[half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

Tensor transposed(const Tensor& matrix) {
  const int64_t rows = matrix.dim(0), cols = matrix.dim(1);
  Tensor out = Tensor::empty(Allocator::cpu(), {cols, rows}, DType::f32, MemClass::other);
  const float* from = matrix.data<float>();
  float* to = out.data<float>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
  return out;
}

Tensor scaled(const Tensor& tensor, double factor) {
  Tensor out = tensor.clone(MemClass::other);
  for (float& x : out.values<float>()) x *= static_cast<float>(factor);
  return out;
}

Tensor rows_of(const Tensor& matrix, int64_t part, int64_t parts) {
  const int64_t rows = matrix.dim(0) / parts;
  return matrix.slice(part * rows, (part + 1) * rows).clone(MemClass::other);
}

std::string export_note(const ExportSource& source, const std::string& text) {
  return str("Written by lmx ", kVersion, " from ", source.run.checkpoint, ".\n\n", text);
}

namespace {

struct Format {
  std::string name;
  void (*write)(const ExportSource&, ExportFolder&);
};

void export_huggingface(const ExportSource& source, ExportFolder& folder) {
  source.run.network.model->translates() ? export_marian(source, folder) : export_gpt2(source, folder);
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all{
      {"pytorch", export_pytorch}, {"huggingface", export_huggingface}, {"ctranslate2", export_ctranslate2}};
  return all;
}

}  // namespace
}  // namespace train

const std::vector<std::string>& export_formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const train::Format& format : train::formats()) all.push_back(format.name);
    return all;
  }();
  return names;
}

std::vector<std::string> export_run(const std::string& directory, const ExportOptions& options) {
  using namespace train;
  const auto format =
      std::find_if(formats().begin(), formats().end(), [&](const Format& known) { return known.name == options.to; });
  if (format == formats().end())
    throw UserError(str("[export] there is no format '", options.to, "'", did_you_mean(options.to, export_formats()),
                        "; there are ", config::join(export_formats())));
  if (options.positions < 1)
    throw UserError(str("[export] the number of positions must be at least 1, got ", options.positions));
  const Recipe recipe = recipe_of_run(directory, "cpu");  // an export only copies values
  const Vocabulary vocabulary = load_vocabulary(directory);
  const SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  ExportFolder folder(options.output);
  format->write({directory, recipe, vocabulary, run, options}, folder);
  return folder.finish();
}

}  // namespace lmx
