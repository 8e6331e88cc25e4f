// The recurrent highway network (Zilly et al. 2016) of the character models of Patwary 2018, section IV-B.
#include "lmx/plugin.h"
#include "lmx/recurrent.h"
#include "rhn_op.h"

namespace lmx::rhn {

struct RhnConfig : RecurrentConfig {
  int64_t cells = 1792;
  int64_t depth = 10;
  bool coupled = true;
  double transform_bias = -2;

  RhnConfig() {
    embedding = 1792;
    init = {"xavier_uniform", 1.0};
  }

  void fields(Fields& f) {
    RecurrentConfig::fields(f);
    f.field("cells", cells, "units H of the state", kSize);
    f.field("depth", depth, "highway layers that the state passes at each step", kLayers);
    f.field("coupled", coupled, "carry gate = 1 - transform gate; false: a separate carry gate");
    f.field("transform_bias", transform_bias,
            "constant added to the transform gate's pre-activation and taken from a free carry gate's: below 0 the "
            "state is carried at first");
  }
  Traits traits() const {
    Traits all = RecurrentConfig::traits();
    all.merge(Traits{{trait::kArchitecture, "rhn"},
                     {trait::kLayers, str(layers)},
                     {trait::kEmbedding, str(embedding)},
                     {trait::kCells, str(cells)},
                     {trait::kDepth, str(depth)},
                     {trait::kCoupled, coupled ? "true" : "false"},
                     {trait::kTransformBias, trait_value(transform_bias)}});
    return all;
  }
};

namespace {

class Rhn final : public RecurrentModel {
 public:
  Rhn(const RhnConfig& config, const ModelEnv& env) : RecurrentModel("rhn", config, env), config_(config) {}

 private:
  int64_t gates() const { return (config_.coupled ? 2 : 3) * config_.cells; }

  std::vector<ParameterSpec> layer_parameters(int64_t input) const override {
    std::vector<ParameterSpec> specs{{"weight_x", {gates(), input}, config_.init, false}};
    for (int64_t l = 0; l < config_.depth; ++l) {
      specs.push_back({str("weight_s.", l), {gates(), config_.cells}, config_.init, false});
      specs.push_back({str("bias.", l), {gates()}, Init{"zeros", 0}, false});
    }
    return specs;
  }

  Var layer(Context& ctx, const Var& x, const Weights& weights, std::vector<Tensor>& state,
            const SequenceOptions& options) const override {
    LayerWeights w{weights("weight_x"), {}, {}};
    for (int64_t l = 0; l < config_.depth; ++l) {
      w.w_s.push_back(weights(str("weight_s.", l)));
      w.bias.push_back(weights(str("bias.", l)));
    }
    return rhn_layer(ctx, x, w, state, {config_.coupled, config_.transform_bias, options});
  }

  std::vector<StatePart> state_parts() const override { return {{"s", config_.cells}}; }
  int64_t output_size() const override { return config_.cells; }

  RhnConfig config_;
};

}  // namespace
}  // namespace lmx::rhn

LMX_PLUGIN(model, rhn, lmx::rhn::RhnConfig, lmx::rhn::Rhn)
