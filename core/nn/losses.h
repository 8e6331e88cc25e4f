// The losses that a recipe can name, and what they share.
#pragma once

#include "lmx/loss.h"

namespace lmx::losses {

inline constexpr const char* kWeight = "softmax.weight";
inline constexpr const char* kBias = "softmax.bias";

// The output layer's fields, the same in every loss.
struct OutputConfig {
  bool bias = true;
  Init init;
  std::string normalize = "token";
  void fields(Fields& f) {
    f.field("bias", bias, "a bias for each word, starting at 0");
    f.group("init", init, "how the weight starts");
    f.choice("normalize", normalize, {"token", "sequence"}, "what the summed loss is divided by");
  }
  std::vector<ParameterSpec> parameters(const LossEnv& env, bool sparse) const;
};

// The bias of a layer that has one.
inline Var bias_of(ParameterStore& params) {
  return params.contains(kBias) ? params.at(kBias) : Var();
}

std::unique_ptr<Loss> make_full_softmax(const Node& config, const std::string& path, const LossEnv& env);
std::unique_ptr<Loss> make_sampled_softmax(const Node& config, const std::string& path, const LossEnv& env);
Node full_full_softmax(const Node& config, const std::string& path);
Node full_sampled_softmax(const Node& config, const std::string& path);

}  // namespace lmx::losses
