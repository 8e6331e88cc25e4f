// The tables of all layouts; config.json to the fields of the model `gpt`, and back.
#include "app/huggingface/layouts.h"

#include <limits>

#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app::huggingface {
namespace {

Layout gpt2() {
  return {.name = "GPT-2",
          .model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .base = "transformer.",
          .fixed = {{"positions", "learned"},
                    {"norm", "layer"},
                    {"activation", "gelu_tanh"},
                    {"bias", "true"},
                    {"qk_norm", "false"}},
          .keys = {{"layers", "n_layer", KeyType::integer, ""},
                   {"d", "n_embd", KeyType::integer, ""},
                   {"heads", "n_head", KeyType::integer, ""},
                   {"ffn", "n_inner", KeyType::integer, "0"},
                   {"context", "n_positions", KeyType::integer, ""},
                   {"norm_eps", "layer_norm_epsilon", KeyType::real, "1e-5"},
                   {"tie", "tie_word_embeddings", KeyType::flag, "true"},
                   {"dropout", "embd_pdrop", KeyType::real, "0.1"},
                   {"dropout", "attn_pdrop", KeyType::real, "0.1"},
                   {"dropout", "resid_pdrop", KeyType::real, "0.1"}},
          .fixed_keys = {{"activation_function", {"gelu_new", "gelu_pytorch_tanh"}, true},
                         {"scale_attn_weights", {true}, false},
                         {"scale_attn_by_inverse_layer_idx", {false}, false},
                         {"add_cross_attention", {false}, false}},
          .stems = {{"embedding", {"wte"}},
                    {"positions", {"wpe"}},
                    {"layer.*.attention_norm", {"h.*.ln_1"}},
                    {"layer.*.attention.qkv", {"h.*.attn.c_attn"}},
                    {"layer.*.attention.out", {"h.*.attn.c_proj"}},
                    {"layer.*.ffn_norm", {"h.*.ln_2"}},
                    {"layer.*.ffn.in", {"h.*.mlp.c_fc"}},
                    {"layer.*.ffn.out", {"h.*.mlp.c_proj"}},
                    {"norm", {"ln_f"}},
                    {"softmax", {"lm_head"}}},
          .buffers = {".attn.bias", ".attn.masked_bias"},
          .rotary = false,
          .transposed = true};
}

Layout llama() {
  return {.name = "Llama",
          .model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .base = "model.",
          .fixed = {{"positions", "rope"},
                    {"norm", "rms"},
                    {"activation", "swiglu"},
                    {"qkv_bias", "false"},
                    {"qk_norm", "false"}},
          .keys = {{"layers", "num_hidden_layers", KeyType::integer, ""},
                   {"d", "hidden_size", KeyType::integer, ""},
                   {"heads", "num_attention_heads", KeyType::integer, ""},
                   {"kv_heads", "num_key_value_heads", KeyType::integer, "0"},
                   {"head_size", "head_dim", KeyType::integer, "0"},
                   {"ffn", "intermediate_size", KeyType::integer, ""},
                   {"context", "max_position_embeddings", KeyType::integer, "2048"},
                   {"norm_eps", "rms_norm_eps", KeyType::real, "1e-6"},
                   {"tie", "tie_word_embeddings", KeyType::flag, "false"},
                   {"bias", "attention_bias", KeyType::flag, "false"},
                   {"bias", "mlp_bias", KeyType::flag, "false"}},
          .fixed_keys = {{"hidden_act", {"silu", "swish"}, true},
                         {"attention_dropout", {0}, false},
                         {"pretraining_tp", {1}, false},
                         {"partial_rotary_factor", {1}, false},
                         {"sliding_window", {nullptr}, false}},
          .stems = {{"embedding", {"embed_tokens"}},
                    {"layer.*.attention_norm", {"layers.*.input_layernorm"}},
                    {"layer.*.attention.qkv",
                     {"layers.*.self_attn.q_proj", "layers.*.self_attn.k_proj", "layers.*.self_attn.v_proj"}},
                    {"layer.*.attention.q_norm", {"layers.*.self_attn.q_norm"}},
                    {"layer.*.attention.k_norm", {"layers.*.self_attn.k_norm"}},
                    {"layer.*.attention.out", {"layers.*.self_attn.o_proj"}},
                    {"layer.*.ffn_norm", {"layers.*.post_attention_layernorm"}},
                    {"layer.*.ffn.in", {"layers.*.mlp.gate_proj", "layers.*.mlp.up_proj"}},
                    {"layer.*.ffn.out", {"layers.*.mlp.down_proj"}},
                    {"norm", {"norm"}},
                    {"softmax", {"lm_head"}}},
          .buffers = {".rotary_emb.inv_freq"},
          .rotary = true,
          .transposed = false};
}

// Llama's layout with the windows of Qwen, which are off in the models that lmx can represent.
Layout qwen(const std::string& number) {
  Layout layout = llama();
  layout.name = "Qwen" + number;
  layout.model_type = "qwen" + number;
  layout.architecture = str("Qwen", number, "ForCausalLM");
  layout.fixed["bias"] = "false";
  std::erase_if(layout.keys, [](const Key& key) { return std::string_view(key.field) == "bias"; });
  std::erase_if(layout.fixed_keys, [](const FixedKey& key) { return std::string_view(key.key) == "sliding_window"; });
  layout.fixed_keys.push_back({"use_sliding_window", {false}, true});
  layout.fixed_keys.push_back({"dual_chunk_attention_config", {nullptr}, false});
  return layout;
}

Layout qwen2() {
  Layout layout = qwen("2");
  layout.fixed["qkv_bias"] = "true";
  return layout;
}

Layout qwen3() {
  Layout layout = qwen("3");
  layout.fixed["qk_norm"] = "true";
  for (Key& key : layout.keys)
    if (std::string_view(key.key) == "head_dim") key.missing = "128";
  layout.fixed_keys.push_back({"attention_bias", {false}, true});
  return layout;
}

}  // namespace

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = [] {
    std::vector<Layout> list{gpt2(), llama(), qwen2(), qwen3()};
    for (Layout& layout : list)
      for (const char* key : {"quantization_config", "auto_map"}) layout.fixed_keys.push_back({key, {nullptr}, false});
    return list;
  }();
  return all;
}

// config.json to the fields of the model `gpt`, and back.

namespace {

constexpr const char* kFullAttention = "full_attention";

// A value in a message.
std::string shown(const Json& value) {
  constexpr size_t kMost = 60;
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

const Json& value_of(const Json& object, const char* key) {
  static const Json none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

// Reads the values of one object. `place` is the beginning of messages: "gpt2/config.json: ".
class Reader {
 public:
  Reader(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    throw UserError(str(place_, key, " is ", shown(value_of(object_, key)), "; ", why));
  }
  int64_t integer(const char* key, int64_t least) const {
    const Json& value = required(key);
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}
                          : value.is_number_integer();
    if (!fits || value.get<int64_t>() < least) refuse(key, str("it must be an integer of at least ", least));
    return value.get<int64_t>();
  }
  double real(const char* key) const {
    if (!required(key).is_number()) refuse(key, "it must be a number");
    return value_of(object_, key).get<double>();
  }
  std::string text(const char* key) const {
    if (!required(key).is_string()) refuse(key, "it must be a text");
    return value_of(object_, key).get<std::string>();
  }
  bool flag(const char* key) const {
    if (!required(key).is_boolean()) refuse(key, "it must be true or false");
    return value_of(object_, key).get<bool>();
  }
  bool has(const char* key) const { return !value_of(object_, key).is_null(); }
  // The object that is the value of `key`; an empty one if there is none.
  Reader object(const char* key) const {
    static const Json empty = Json::object();
    if (!has(key)) return {empty, place_};
    if (!value_of(object_, key).is_object()) refuse(key, "it must be an object");
    return {value_of(object_, key), str(place_, key, ".")};
  }

  // The field's value as text.
  std::string field(const Key& key) const {
    const bool given = has(key.key);
    if (!given && *key.missing == '\0') throw UserError(str(place_, "the key '", key.key, "' is missing"));
    switch (key.type) {
      case KeyType::integer:
        return given ? str(integer(key.key, *key.missing == '\0' ? 1 : 0)) : key.missing;
      case KeyType::real:
        return trait_value(given ? real(key.key) : parse_double(key.missing).value());
      case KeyType::flag:
        break;
    }
    return given ? flag(key.key) ? "true" : "false" : key.missing;
  }

  void check(const FixedKey& fixed) const {
    const Json& value = value_of(object_, fixed.key);
    if (value.is_null() || std::find(fixed.values.begin(), fixed.values.end(), value) != fixed.values.end()) return;
    refuse(fixed.key, fixed.values[0].is_null() ? "lmx does not have this" : str("lmx has ", shown(fixed.values[0])));
  }

  // Layers with a sliding window are of another kind.
  void check_layer_types() const {
    for (const Json& type : value_of(object_, "layer_types"))
      if (type != kFullAttention) refuse("layer_types", str("lmx has layers of ", shown(kFullAttention), " only"));
  }

 private:
  const Json& required(const char* key) const {
    const Json& value = value_of(object_, key);
    if (value.is_null()) throw UserError(str(place_, "the key '", key, "' is missing"));
    return value;
  }

  const Json& object_;
  std::string place_;
};

struct ScalingKey {
  const char* field;
  const char* key;
};
constexpr ScalingKey kScalingKeys[] = {{"rope_scaling.factor", "factor"},
                                       {"rope_scaling.low", "low_freq_factor"},
                                       {"rope_scaling.high", "high_freq_factor"}};
constexpr ScalingKey kOriginal = {"rope_scaling.original", "original_max_position_embeddings"};

// The frequencies that the object `name` describes.
GptFields rotary_of(const Reader& config, const char* name) {
  const Reader rope = config.object(name);
  const Reader& base = rope.has("rope_theta") ? rope : config;
  GptFields fields{{"rope_base", trait_value(base.has("rope_theta") ? base.real("rope_theta") : 10000)}};
  rope.check({"partial_rotary_factor", {1}, false});
  const char* key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.has(key) ? rope.text(key) : "default";
  if (type == "default") return fields;
  if (type != "llama3") rope.refuse(key, "lmx has \"default\" and \"llama3\"");
  for (const ScalingKey& own : kScalingKeys) fields[own.field] = trait_value(rope.real(own.key));
  fields[kOriginal.field] = str(rope.integer(kOriginal.key, 1));
  return fields;
}

// transformers 5 writes one object `rope_parameters`, transformers 4 `rope_theta` and the object `rope_scaling`. Of
// two objects that differ transformers ignores one.
void read_rotary(const Reader& config, GptFields& fields) {
  const char *older = "rope_scaling", *newer = "rope_parameters";
  GptFields rotary = rotary_of(config, config.has(newer) ? newer : older);
  if (config.has(newer) && config.has(older) && rotary_of(config, older) != rotary)
    config.refuse(older, str(newer, " describes other frequencies: remove one of the two"));
  fields.merge(rotary);
}

void write_rotary(const GptFields& fields, Json& config) {
  config["rope_theta"] = parse_double(fields.at("rope_base")).value();
  config["rope_scaling"] = nullptr;
  const auto factor = fields.find(kScalingKeys[0].field);
  if (factor == fields.end() || parse_double(factor->second) == 1) return;
  Json scaling{{"rope_type", "llama3"}};
  for (const ScalingKey& own : kScalingKeys) scaling[own.key] = parse_double(fields.at(own.field)).value();
  scaling[kOriginal.key] = parse_int(fields.at(kOriginal.field)).value();
  config["rope_scaling"] = std::move(scaling);
}

Json json_of(KeyType type, const std::string& value) {
  if (type == KeyType::integer) return parse_int(value).value();
  if (type == KeyType::real) return parse_double(value).value();
  return value == "true";
}

bool has_field(const Layout& layout, std::string_view field) {
  return std::any_of(layout.keys.begin(), layout.keys.end(), [&](const Key& key) { return key.field == field; });
}

}  // namespace

const Layout& layout_of(const Json& config, const std::string& path) {
  const Reader reader(config, path + ": ");
  const std::string type = reader.text("model_type");
  std::string known;
  for (const Layout& layout : layouts()) {
    if (layout.model_type == type) return layout;
    known += str(known.empty() ? "" : ", ", layout.model_type);
  }
  reader.refuse("model_type", "lmx imports " + known);
}

int64_t integer_of(const Json& config, const char* key, int64_t least, const std::string& path) {
  return Reader(config, path + ": ").integer(key, least);
}

GptFields fields_of(const Layout& layout, const Json& config, const std::string& path) {
  const Reader reader(config, path + ": ");
  for (const FixedKey& fixed : layout.fixed_keys) reader.check(fixed);
  reader.check_layer_types();
  GptFields fields = layout.fixed;
  std::map<std::string, const char*> keys;  // from which each field was read
  for (const Key& key : layout.keys) {
    const auto [known, fresh] = fields.emplace(key.field, reader.field(key));
    if (fresh)
      keys[key.field] = key.key;
    else if (known->second != reader.field(key))
      throw UserError(str(path, ": ", keys.at(key.field), " is ", known->second, " and ", key.key, " is ",
                          reader.field(key), "; lmx has one value for both"));
  }
  if (layout.rotary) read_rotary(reader, fields);
  return fields;
}

std::vector<std::string> misfits(const Layout& layout, const GptFields& fields) {
  std::vector<std::string> reasons;
  for (const auto& [field, value] : layout.fixed)
    if (fields.at(field) != value) reasons.push_back(str(field, " is ", fields.at(field), ", not ", value));
  const auto number = [&](const char* field) { return parse_int(fields.at(field)).value(); };
  if (!has_field(layout, "kv_heads") && number("kv_heads") != number("heads"))
    reasons.push_back(str("kv_heads is ", number("kv_heads"), ", not heads, ", number("heads")));
  if (!has_field(layout, "head_size") && number("head_size") * number("heads") != number("d"))
    reasons.push_back(
        str("head_size is ", number("head_size"), ", not d / heads, ", number("d"), " / ", number("heads")));
  return reasons;
}

Json config_of(const Layout& layout, const GptFields& fields) {
  Json config{{"architectures", {layout.architecture}}, {"model_type", layout.model_type}};
  for (const Key& key : layout.keys) config[key.key] = json_of(key.type, fields.at(key.field));
  for (const FixedKey& fixed : layout.fixed_keys)
    if (fixed.written) config[fixed.key] = fixed.values[0];
  if (layout.rotary) write_rotary(fields, config);
  return config;
}

}  // namespace lmx::app::huggingface
