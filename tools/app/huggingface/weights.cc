#include "app/huggingface/weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "app/huggingface/layouts.h"
#include "backend/cuda.h"
#include "base/files.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::huggingface {

// The tensors of a layout, and the parameters of the model `gpt`.

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

Tensor widened(const Tensor& tensor) {
  // The allocator of a mapped tensor has no memory for the result.
  return tensor.dtype() == DType::f32 ? tensor : copy_to(tensor, Allocator::cpu()).to(DType::f32);
}

namespace {

namespace fs = std::filesystem;

bool is_float(DType type) {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

// Whether a value is NaN or infinite: then all bits of its exponent are 1.
template <class Bits>
bool any_not_finite(const Tensor& tensor, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(tensor.raw());
  return std::any_of(bits, bits + tensor.numel(), [&](Bits value) { return (value & exponent) == exponent; });
}

bool is_finite(const Tensor& tensor) {
  if (tensor.dtype() == DType::f32) return !any_not_finite<uint32_t>(tensor, 0x7F800000);
  return !any_not_finite<uint16_t>(tensor, tensor.dtype() == DType::bf16 ? 0x7F80 : 0x7C00);
}

bool is_buffer(const std::string& name, const Layout& layout) {
  return std::any_of(layout.buffers.begin(), layout.buffers.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

std::map<std::string, std::string> files_of_index(const std::string& text, const std::string& path) {
  const Json index = parse_object(text, path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    throw UserError(path + ": weight_map must name the file of each tensor");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      throw UserError(
          str(path, ": the file of '", tensor, "' must be a name without a folder, not ", file.dump(-1, ' ', true)));
    files[tensor] = name;
  }
  return files;
}

Weights::Weights(const std::string& directory, const Layout& layout) {
  const std::string one = directory + "/model.safetensors", index = one + ".index.json";
  std::error_code error;
  source_ = fs::exists(one, error) ? one : index;
  if (source_ == one)
    add(one, layout);
  else if (fs::exists(index, error))
    add_files_of(index, directory, layout);
  else
    throw UserError(str("[import] ", directory, " has neither model.safetensors nor model.safetensors.index.json; ",
                        "lmx reads no weights in other formats"));
}

void Weights::add_files_of(const std::string& index, const std::string& directory, const Layout& layout) {
  const auto files = files_of_index(read_file(index), "[import] " + index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  for (const std::string& name : names) add(str(directory, "/", name), layout);
  for (const auto& [tensor, file] : files) {
    const auto found = entries_.find(full_name(layout, tensor));
    if (found == entries_.end() || found->second.path != str(directory, "/", file))
      throw UserError(str("[import] ", index, " states that '", tensor, "' is in ", file, ", which lacks it"));
  }
}

void Weights::add(const std::string& path, const Layout& layout) {
  for (auto& [name, tensor] : map_safetensors(path, Allocator::cpu())) {
    const auto [known, fresh] = entries_.emplace(full_name(layout, name), Entry{tensor, path, name});
    if (!fresh)
      throw UserError(str("[import] the tensor '", name, "' of ", path, " is also '", known->second.name, "' of ",
                          known->second.path));
  }
}

std::vector<Tensor> Weights::take(const Place& place) {
  std::vector<Tensor> tensors;
  for (const Place::Part& part : place.parts) {
    const auto found = entries_.find(part.tensor);
    const Shape shape = place.shape_of(part);
    if (found == entries_.end())
      throw UserError(
          str("[import] ", source_, " has no tensor '", part.tensor, "' ", shape, ", which config.json asks for"));
    const auto& [tensor, path, name] = found->second;
    if (tensor.shape() != shape)
      throw UserError(str("[import] the tensor '", name, "' of ", path, " has the shape ", tensor.shape(),
                          ", but config.json asks for ", shape));
    if (!is_float(tensor.dtype()))
      throw UserError(str("[import] the tensor '", name, "' of ", path, " has the type ", name_of(tensor.dtype()),
                          "; lmx imports f32, bf16 and f16"));
    if (!is_finite(tensor))
      throw UserError(str("[import] the tensor '", name, "' of ", path,
                          " contains NaN or infinite values, so that the model computes nothing; get the file again"));
    tensors.push_back(tensor);
    entries_.erase(found);
  }
  return tensors;
}

void Weights::check_rest(const Layout& layout, const Tensor& table) const {
  for (const auto& [name, entry] : entries_) {
    if (is_buffer(name, layout)) continue;
    if (name == "lm_head.weight") {
      const Tensor& own = entry.tensor;
      if (own.shape() == table.shape() && is_float(own.dtype()) &&
          std::memcmp(widened(own).raw(), table.raw(), static_cast<size_t>(table.bytes())) == 0)
        continue;
      throw UserError(
          str("[import] config.json ties the output layer to the table of words (tie_word_embeddings), but ", "'",
              entry.name, "' of ", entry.path, " differs from this table"));
    }
    throw UserError(str("[import] the tensor '", entry.name, "' ", entry.tensor.shape(), " of ", entry.path,
                        " has no place in the layout of ", layout.name, " that config.json describes"));
  }
}

}  // namespace lmx::app::huggingface
