// Writes a recurrent language model as a folder with a PyTorch module: the weights with the names that they have in
// lmx, with weight normalisation multiplied out, and the module that reads them.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/export/writers.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx::train {
namespace {

using Json = nlohmann::ordered_json;

// Computes w = g v / |v|, row by row, with norms summed in double as in training.
Tensor normed(const Tensor& v, const Tensor& g) {
  Tensor w = v.clone(MemClass::other);
  const int64_t cols = v.dim(1);
  for (int64_t r = 0; r < v.dim(0); ++r) {
    float* row = w.data<float>() + r * cols;
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    const double norm = std::sqrt(squares);
    const float factor = norm > 0 ? static_cast<float>(static_cast<double>(g.data<float>()[r]) / norm) : 0.0F;
    for (int64_t c = 0; c < cols; ++c) row[c] *= factor;
  }
  return w;
}

StateDict plain_weights(const ExportSource& source) {
  StateDict tensors;
  for (const std::string& name : source.run.params.names()) {
    const std::string stem = name.substr(0, name.size() - std::min<size_t>(2, name.size()));
    if (name.ends_with("_g") && source.has(stem + "_v")) continue;
    if (name.ends_with("_v") && source.has(stem + "_g"))
      tensors.emplace(stem, normed(source.at(name), source.at(stem + "_g")));
    else
      tensors.emplace(name, source.at(name));
  }
  return tensors;
}

// An architecture that the module contains, and the traits that the module needs, in the order of config.json.
struct Architecture {
  std::string name;
  std::vector<const char*> integers, reals, flags;
};

const std::vector<Architecture>& architectures() {
  using namespace trait;
  static const std::vector<Architecture> all{
      {"lstm", {trait::kLayers, kEmbedding, kCells, kProjection}, {kForgetBias}, {}},
      {"mlstm", {trait::kLayers, kEmbedding, kCells}, {kForgetBias}, {}},
      {"rhn", {trait::kLayers, kEmbedding, kCells, kDepth}, {kTransformBias}, {kCoupled}}};
  return all;
}

// Returns the values that the module needs; traits keep their names.
Json module_config(const ExportSource& source, const ModelTraits& traits, const Architecture& architecture) {
  Json config{{"model", architecture.name},
              {"words", source.vocabulary.size()},
              {"unit", source.vocabulary.of_bytes() ? "byte" : "word or character"}};
  for (const char* name : architecture.integers) config[name] = traits.integer(name);
  for (const char* name : architecture.reals) config[name] = traits.real(name);
  for (const char* name : architecture.flags) config[name] = traits.flag(name);
  config["output_table"] = source.output_table();
  config["output_bias"] = source.has("softmax.bias");
  return config;
}

}  // namespace

void export_pytorch(const ExportSource& source, NewFolder& folder) {
  const ModelTraits traits(source);
  const auto architecture = std::find_if(architectures().begin(), architectures().end(),
                                         [&](const Architecture& a) { return a.name == traits.architecture(); });
  Misfits misfits;
  if (architecture == architectures().end()) {
    std::vector<std::string> names;
    for (const Architecture& a : architectures()) names.push_back(a.name);
    misfits.add("model.name",
                str(traits.description(), "; the PyTorch module has the recurrent models ", config::join(names),
                    traits.architecture() == "transformer" ? "; lmx writes a Transformer by --to huggingface" : ""));
  }
  misfits.check(source.directory, "the PyTorch module");
  save_safetensors(folder.path("model.safetensors"), plain_weights(source));
  folder.write("config.json", module_config(source, traits, *architecture));
  folder.write("lmx_model.py", kExportedModule);
  folder.copy(source.directory + "/vocabulary.tsv", "vocabulary.tsv");
  folder.write("README.txt", std::string_view(export_note(source, kExportedReadMe)));
}

}  // namespace lmx::train
