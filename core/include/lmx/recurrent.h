// Recurrent language models: embedding, layers of one kind of cell, dropout between them. State is carried from batch
// to batch. A cell's plugin defines one layer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/model.h"
#include "lmx/ops.h"

namespace lmx {

// Keys of every recurrent model; a cell's config derives from this struct and adds its own.
struct LMX_API RecurrentConfig {
  int64_t layers = 1;
  int64_t embedding = 256;
  double dropout = 0;
  std::string weight_norm;  // pattern of matrices (lmx/config.h); "": none
  bool checkpoint = false;
  int64_t segment = 0;
  Init init{"uniform", 0.1};
  Init embedding_init{"uniform", 0.1};
  void fields(Fields& f);
  Traits traits() const { return {{trait::kChangeable, "dropout"}}; }  // a derived config adds its own to them
  void check(const std::string& where) const;  // UserError: a weight_norm that is not a valid pattern
};

class LMX_API RecurrentModel : public Model {
 public:
  // `name`: of the plugin; names of parameters begin with it. UserError: a weight_norm that is not a valid pattern, or
  // matches no matrix of a layer.
  RecurrentModel(std::string name, const RecurrentConfig& config, const ModelEnv& env);
  // "embedding.weight" and each layer's parameters, such as "NAME.0.weight_hh". A matrix w (N, K) that weight_norm
  // matches is replaced by w_v (N, K) and w_g (N).
  std::vector<ParameterSpec> parameters() const final;
  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const final;
  ModelState initial_state(Context& ctx, int64_t sequences) const final;
  int64_t feature_size() const final { return output_size(); }
  std::vector<std::string> warnings(const ForwardShape& shape) const final;

 protected:
  using Weights = std::function<Var(const std::string& name)>;  // a layer's weight by its name without prefix
  struct StatePart {
    std::string name;  // "h"
    int64_t width;
  };
  // For one layer that reads vectors of `input` elements. state_parts() and the tensors of `state` have the same order;
  // the first one is the output.
  virtual std::vector<ParameterSpec> layer_parameters(int64_t input) const = 0;  // names without prefix
  virtual Var layer(Context& ctx, const Var& x, const Weights& weights, std::vector<Tensor>& state,
                    const SequenceOptions& options) const = 0;
  virtual std::vector<StatePart> state_parts() const = 0;
  virtual int64_t output_size() const = 0;

 private:
  int64_t input_size(int64_t layer) const { return layer == 0 ? config_.embedding : output_size(); }
  std::string prefix(int64_t layer) const;
  bool normed(const std::string& name, const Shape& shape) const;
  Var weight(Context& ctx, const ParameterStore& params, const std::string& name) const;

  std::string name_;
  RecurrentConfig config_;
  std::optional<ParamPattern> weight_norm_;
  int64_t vocab_;
};

}  // namespace lmx
