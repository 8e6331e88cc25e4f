// The layouts of Hugging Face's transformers that the model `gpt` can have: GPT-2, Llama, Qwen2 and Qwen3. One table of
// the keys of config.json and one of the tensors serve imports and exports.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/text/json_object.h"
#include "lmx/parameters.h"

namespace lmx::app::huggingface {

using Json = nlohmann::ordered_json;
using app::parse_object;

// The fields of the model `gpt` as text, by their names; those of its group by "rope_scaling.factor".
using GptFields = std::map<std::string, std::string>;

enum class KeyType { integer, real, flag };
// A field of `gpt` and the key of config.json with the same meaning. Several keys may have the same field: then their
// values must be equal.
struct Key {
  const char* field;
  const char* key;
  KeyType type;
  const char* missing;  // the field's value if config.json does not have the key, or null; "": an error
};

// A key of config.json of which `gpt` has only these values; the first is the default of transformers.
struct FixedKey {
  const char* key;
  std::vector<Json> values;
  bool written;  // an export writes the first value
};

// The parameters PARAMETER.weight (.gain) and PARAMETER.bias are the tensors TENSOR.weight and TENSOR.bias, several
// tensors one below the other. TENSOR is without Layout::base. `*` is the number of a layer.
struct Stem {
  std::string_view parameter;
  std::vector<std::string_view> tensors;
};

struct Layout {
  std::string name;          // "Llama"
  std::string model_type;    // "llama"
  std::string architecture;  // "LlamaForCausalLM"
  std::string base;          // with which names of tensors begin, except those of the output layer: "model."
  GptFields fixed;           // fields that have one value in this layout
  std::vector<Key> keys;
  std::vector<FixedKey> fixed_keys;
  std::vector<Stem> stems;
  std::vector<std::string_view> buffers;  // the ends of the names of tensors that are no parameters
  bool rotary;                            // keys for the frequencies of rotary positions
  bool transposed;                        // matrices of a layer are stored as (in, out)
};

const std::vector<Layout>& layouts();

// config.json.

// The layout of this config. UserError: it is of another kind of model.
const Layout& layout_of(const Json& config, const std::string& path);
// The fields of `gpt`. UserError: a value that `gpt` cannot represent; the message names the key, its value and `path`.
GptFields fields_of(const Layout& layout, const Json& config, const std::string& path);
// An integer of config.json. UserError: the key is missing, or the value is not an integer of at least `least`.
int64_t integer_of(const Json& config, const char* key, int64_t least, const std::string& path);

// Why the layout cannot represent a model with these fields, such as "positions is rope, not learned". Empty: it can.
std::vector<std::string> misfits(const Layout& layout, const GptFields& fields);
// The inverse of fields_of(). `fields` has every field. REQUIRES: no misfits.
Json config_of(const Layout& layout, const GptFields& fields);

// Tensors.

// The name with the layout's base, which the files of a model without output layer leave out.
std::string full_name(const Layout& layout, const std::string& name);

// A parameter, and the tensors that its rows consist of.
struct Place {
  struct Part {
    std::string tensor;
    int64_t rows;  // of the parameter; of the tensor if it is not transposed
  };
  std::string parameter;
  Shape shape;
  std::vector<Part> parts;
  bool transposed;
  Shape shape_of(const Part& part) const;  // of the tensor
};
// UserError: a parameter without a place in the layout.
std::vector<Place> places_of(const Layout& layout, const std::vector<ParameterSpec>& specs);

// Returns the tensors of a parameter's value.
std::vector<std::pair<std::string, Tensor>> split(const Place& place, const Tensor& value);
// The inverse: an f32 tensor. REQUIRES: a tensor of the type f32, bf16 or f16 with shape_of() for each part, in order.
Tensor join(const Place& place, const std::vector<Tensor>& tensors);

// Returns the same numbers in f32; bf16 and f16 are converted exactly.
Tensor widened(const Tensor& tensor);
// Returns the transposed f32 matrix.
Tensor transposed(const Tensor& matrix);

}  // namespace lmx::app::huggingface
