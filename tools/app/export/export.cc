#include "app/export/export.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/runs/run_directory.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "recipe/components.h"
#include "runfiles/checkpoint.h"

namespace lmx::app {

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

Tensor scaled(const Tensor& tensor, double factor) {
  Tensor out = tensor.clone(MemClass::other);
  for (float& x : out.values<float>()) x *= static_cast<float>(factor);
  return out;
}

Tensor rows_of(const Tensor& matrix, int64_t part, int64_t parts) {
  const int64_t rows = matrix.dim(0) / parts;
  return matrix.slice(part * rows, (part + 1) * rows).clone(MemClass::other);
}

namespace {

// The types of exported tensors, and their names in PyTorch.
struct ExportType {
  DType type;
  const char* torch;
};
constexpr float kLargestF16 = 65504, kLargestBf16 = 0x1.fep127f;
constexpr ExportType kTypes[] = {{DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {DType::f16, "float16"}};

const ExportType& type_of(const ExportOptions& options) {
  for (const ExportType& type : kTypes)
    if (name_of(type.type) == options.dtype) return type;
  throw UserError(str("[export] there is no type '", options.dtype, "'", did_you_mean(options.dtype, export_types()),
                      "; there are ", config::join(export_types())));
}

}  // namespace

std::string torch_type(const ExportSource& source) {
  return type_of(source.options).torch;
}

void save_weights(const ExportSource& source, NewFolder& folder, StateDict tensors) {
  const DType type = type_of(source.options).type;
  for (auto& [name, tensor] : tensors) {
    folder.end_after_signal();
    const auto values = tensor.values<float>();
    const float most = type == DType::f16 ? kLargestF16 : type == DType::bf16 ? kLargestBf16 : INFINITY;
    if (std::any_of(values.begin(), values.end(), [&](float x) { return std::abs(x) > most; }))
      throw UserError(str("[export] --dtype ", source.options.dtype, ": ", name, " has values above ", most,
                          type == DType::f16 ? "; use bf16 or f32" : "; use f32"));
    tensor = tensor.to(type);
  }
  save_safetensors(folder.path("model.safetensors"), tensors);
}

std::string export_note(const ExportSource& source, const std::string& text) {
  return str("Written by lmx ", kVersion, " from ", source.run.checkpoint, ".\n\n", text);
}

namespace {

struct Format {
  std::string name;
  void (*write)(const ExportSource&, NewFolder&);
};

void export_huggingface(const ExportSource& source, NewFolder& folder) {
  if (source.run.network.model->translates()) return export_marian(source, folder);
  ModelTraits(source).architecture() == "gpt" ? export_gpt(source, folder) : export_gpt2(source, folder);
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all{
      {"pytorch", export_pytorch}, {"huggingface", export_huggingface}, {"ctranslate2", export_ctranslate2}};
  return all;
}

}  // namespace

const std::vector<std::string>& export_types() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ExportType& type : kTypes) all.emplace_back(name_of(type.type));
    return all;
  }();
  return names;
}

const std::vector<std::string>& export_formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Format& format : formats()) all.push_back(format.name);
    return all;
  }();
  return names;
}

std::vector<std::string> export_run(const std::string& directory, const ExportOptions& options) {
  const auto format =
      std::find_if(formats().begin(), formats().end(), [&](const Format& known) { return known.name == options.to; });
  if (format == formats().end())
    throw UserError(str("[export] there is no format '", options.to, "'", did_you_mean(options.to, export_formats()),
                        "; there are ", config::join(export_formats())));
  constexpr int64_t kMostPositions = 10'000'000;  // their table alone has gigabytes
  if (options.positions && (*options.positions < 1 || *options.positions > kMostPositions))
    throw UserError(str("[export] --positions must be 1 to ", kMostPositions, ", got ", *options.positions));
  if (options.dtype != ExportOptions().dtype && options.to != "huggingface")
    throw UserError(str("[export] --dtype is for --to huggingface; ", options.to, " has f32 only"));
  const Recipe recipe = recipe_of_run(directory, "cpu");  // an export only copies values
  const Vocabulary vocabulary = load_vocabulary(directory);
  const SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  const ExportSource source{directory, recipe, vocabulary, run, options};
  if (const ModelTraits model(source); options.positions && model.architecture() != "transformer")
    throw UserError(str("[export] --positions is for the sinusoids of a Transformer; ", directory, " holds the model ",
                        model.description()));
  NewFolder folder("export", options.output);
  format->write(source, folder);
  return folder.finish();
}

}  // namespace lmx::app
