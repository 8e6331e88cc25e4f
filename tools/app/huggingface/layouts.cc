// The tables of all layouts.
#include "app/huggingface/layouts.h"

#include "lmx/error.h"

namespace lmx::huggingface {
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

}  // namespace lmx::huggingface
