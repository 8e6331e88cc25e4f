// The tensors of a layout, and the parameters of the model `gpt`.
#include <algorithm>

#include "app/huggingface/layouts.h"
#include "backend/convert.h"
#include "backend/cuda.h"
#include "lmx/error.h"

namespace lmx::huggingface {
namespace {

// "layer.3.attention.qkv.weight" is of the stem "layer.*.attention.qkv", layer "3", end "weight".
struct Name {
  std::string stem, layer, end;
};

Name parsed(const std::string& parameter) {
  constexpr std::string_view kLayer = "layer.";
  const size_t dot = parameter.rfind('.');
  Name name{parameter.substr(0, dot), "", dot == std::string::npos ? "" : parameter.substr(dot + 1)};
  if (!parameter.starts_with(kLayer)) return name;
  const size_t end = std::min(name.stem.find('.', kLayer.size()), name.stem.size());
  name.layer = name.stem.substr(kLayer.size(), end - kLayer.size());
  name.stem.replace(kLayer.size(), name.layer.size(), "*");
  return name;
}

std::string with_layer(std::string_view stem, const std::string& layer) {
  std::string name(stem);
  if (const size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, layer);
  return name;
}

const Stem& stem_of(const Layout& layout, const Name& name, const std::string& parameter) {
  for (const Stem& stem : layout.stems)
    if (stem.parameter == name.stem && !(name.stem == "softmax" && name.end == "bias")) return stem;
  throw UserError(str("[export] parameter ", parameter, " has no place in the layout of ", layout.name));
}

// The rows of the matrices that are stacked in a parameter, by its name without the end.
std::map<std::string, std::vector<int64_t>> stacked_rows(const std::vector<ParameterSpec>& specs) {
  std::map<std::string, std::vector<int64_t>> rows;
  for (const ParameterSpec& spec : specs)
    if (!spec.parts.empty()) rows[spec.name.substr(0, spec.name.rfind('.'))] = spec.parts;
  return rows;
}

}  // namespace

Shape Place::shape_of(const Part& part) const {
  if (transposed) return {shape[1], part.rows};
  Shape own = shape;
  own[0] = part.rows;
  return own;
}

std::string full_name(const Layout& layout, const std::string& name) {
  return name.starts_with(layout.base) || name.starts_with("lm_head.") ? name : layout.base + name;
}

std::vector<Place> places_of(const Layout& layout, const std::vector<ParameterSpec>& specs) {
  const auto stacked = stacked_rows(specs);
  std::vector<Place> places;
  for (const ParameterSpec& spec : specs) {
    const Name name = parsed(spec.name);
    const Stem& stem = stem_of(layout, name, spec.name);
    std::vector<int64_t> rows{spec.shape[0]};
    const auto parts = stacked.find(spec.name.substr(0, spec.name.rfind('.')));
    if (stem.tensors.size() > 1 && parts != stacked.end()) rows = parts->second;
    LMX_CHECK(rows.size() == stem.tensors.size(), spec.name, " has ", rows.size(), " parts");
    Place place{spec.name, spec.shape, {}, layout.transposed && spec.shape.rank() == 2 && !name.layer.empty()};
    for (size_t i = 0; i < rows.size(); ++i)
      place.parts.push_back(
          {full_name(layout, with_layer(stem.tensors[i], name.layer) + (name.end == "bias" ? ".bias" : ".weight")),
           rows[i]});
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<std::pair<std::string, Tensor>> split(const Place& place, const Tensor& value) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  int64_t row = 0;
  for (const Place::Part& part : place.parts) {
    const Tensor own = value.slice(row, row + part.rows);
    tensors.emplace_back(part.tensor, place.transposed ? transposed(own) : own);
    row += part.rows;
  }
  return tensors;
}

Tensor join(const Place& place, const std::vector<Tensor>& tensors) {
  Tensor out = Tensor::empty(Allocator::cpu(), place.shape, DType::f32, MemClass::other);
  float* to = out.data<float>();
  for (const Tensor& tensor : tensors) {
    const Tensor own = place.transposed ? transposed(widened(tensor)) : widened(tensor);
    to = std::copy_n(own.data<float>(), own.numel(), to);
  }
  return out;
}

Tensor widened(const Tensor& tensor) {
  // The allocator of a mapped tensor has no memory for the result.
  return tensor.dtype() == DType::f32 ? tensor : copy_to(tensor, Allocator::cpu()).to(DType::f32);
}

Tensor transposed(const Tensor& matrix) {
  const int64_t rows = matrix.dim(0), cols = matrix.dim(1);
  Tensor out = Tensor::empty(Allocator::cpu(), {cols, rows}, DType::f32, MemClass::other);
  transpose(matrix.data<float>(), out.data<float>(), rows, cols);
  return out;
}

}  // namespace lmx::huggingface
