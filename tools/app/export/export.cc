#include "app/export/writers.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/runs/run_directory.h"
#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace lmx {
namespace train {

namespace fs = std::filesystem;

Node ExportSource::model() const {
  return full_component(PluginKind::model, recipe.model, "model");
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

namespace {

std::string text_at(const Node& node, const char* key) {
  const Node* value = node.find(key);
  return value ? value->text : "";
}
int64_t integer_at(const Node& node, const char* key) {
  return parse_int(text_at(node, key)).value_or(0);
}
double real_at(const Node& node, const char* key) {
  return parse_double(text_at(node, key)).value_or(0);
}

}  // namespace

TransformerShape read_transformer(const ExportSource& source, Misfits& misfits) {
  const Node model = source.model();
  TransformerShape shape;
  if (const std::string name = text_at(model, "name"); name != "transformer") {
    misfits.add("model.name", str(name, ", not transformer"));
    return shape;
  }
  const std::vector<std::string> known{"name",    "encoder_layers",    "decoder_layers", "d",    "ffn", "heads", "norm",
                                       "dropout", "attention_dropout", "relu_dropout",   "share"};
  for (const auto& [key, value] : model.entries)
    if (std::find(known.begin(), known.end(), key) == known.end())
      misfits.add("model." + key, "no export supports this key");
  shape.encoder_layers = integer_at(model, "encoder_layers");
  shape.decoder_layers = integer_at(model, "decoder_layers");
  shape.d = integer_at(model, "d");
  shape.ffn = integer_at(model, "ffn");
  shape.heads = integer_at(model, "heads");
  shape.dropout = real_at(model, "dropout");
  shape.attention_dropout = real_at(model, "attention_dropout");
  shape.relu_dropout = real_at(model, "relu_dropout");
  shape.norm = text_at(model, "norm");
  shape.share = text_at(model, "share");
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
  const Recipe recipe = recipe_of_run(directory);
  const Vocabulary vocabulary = load_vocabulary(directory);
  const SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  ExportFolder folder(options.output);
  format->write({directory, recipe, vocabulary, run, options}, folder);
  return folder.finish();
}

}  // namespace lmx
