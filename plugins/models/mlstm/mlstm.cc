// The multiplicative LSTM language model of Radford 2017 and Puri 2018 (Krause et al. 2016).
#include "lmx/plugin.h"
#include "lmx/recurrent.h"
#include "mlstm_op.h"

namespace lmx::mlstm {

struct MlstmConfig : RecurrentConfig {
  int64_t cells = 4096;
  double forget_bias = 0;

  MlstmConfig() {
    embedding = 64;
    init = {"xavier_uniform", 1.0};
  }

  void fields(Fields& f) {
    RecurrentConfig::fields(f);
    f.field("cells", cells, "memory cells H of a layer", kSize);
    f.field("forget_bias", forget_bias, "constant added to the forget gate's pre-activation");
  }
  Traits traits() const {
    Traits all = RecurrentConfig::traits();
    all.merge(Traits{{trait::kArchitecture, "mlstm"},
                     {trait::kLayers, str(layers)},
                     {trait::kEmbedding, str(embedding)},
                     {trait::kCells, str(cells)},
                     {trait::kForgetBias, trait_value(forget_bias)}});
    return all;
  }
};

namespace {

class Mlstm final : public RecurrentModel {
 public:
  Mlstm(const MlstmConfig& config, const ModelEnv& env) : RecurrentModel("mlstm", config, env), config_(config) {}

 private:
  std::vector<ParameterSpec> layer_parameters(int64_t input) const override {
    const int64_t h = config_.cells;
    return {{"weight_mx", {h, input}, config_.init, false},
            {"weight_mh", {h, h}, config_.init, false},
            {"weight_x", {4 * h, input}, config_.init, false},
            {"weight_m", {4 * h, h}, config_.init, false},
            {"bias", {4 * h}, Init{"zeros", 0}, false}};
  }

  Var layer(Context& ctx, const Var& x, const Weights& weights, std::vector<Tensor>& state,
            const SequenceOptions& options) const override {
    const LayerWeights w{weights("weight_mx"), weights("weight_mh"), weights("weight_x"), weights("weight_m"),
                         weights("bias")};
    return mlstm_layer(ctx, x, w, state, {config_.forget_bias, options});
  }

  std::vector<StatePart> state_parts() const override { return {{"h", config_.cells}, {"c", config_.cells}}; }
  int64_t output_size() const override { return config_.cells; }

  MlstmConfig config_;
};

}  // namespace
}  // namespace lmx::mlstm

LMX_PLUGIN(model, mlstm, lmx::mlstm::MlstmConfig, lmx::mlstm::Mlstm)
