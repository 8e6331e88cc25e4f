// The LSTM language model of Patwary 2018 and Xiao 2017: embedding, LSTM layers, optional projection (Sak et al. 2014).
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/recurrent.h"
#include "lstm_op.h"

namespace lmx::lstm {

struct LstmConfig : RecurrentConfig {
  int64_t cells = 512;
  int64_t projection = 0;
  double forget_bias = 0;

  void fields(Fields& f) {
    RecurrentConfig::fields(f);
    f.field("cells", cells, "memory cells H of a layer", kSize);
    f.field("projection", projection, "size P that outputs are projected to before they recur; 0: none, P = H",
            kSizeOrNone);
    f.field("forget_bias", forget_bias,
            "constant added to the forget gate's pre-activation (TensorFlow's default is 1)");
  }
  void check(const std::string& where) const {
    RecurrentConfig::check(where);
    if (projection > cells)
      throw UserError(str(where, ".projection: ", projection, " is more than the ", cells, " cells, but a projection ",
                          "makes the outputs of a layer narrower; lower it, or set it to 0: none"));
  }
  Traits traits() const {
    Traits all = RecurrentConfig::traits();
    all.merge(Traits{{trait::kArchitecture, "lstm"},
                     {trait::kLayers, str(layers)},
                     {trait::kEmbedding, str(embedding)},
                     {trait::kCells, str(cells)},
                     {trait::kProjection, str(projection)},
                     {trait::kForgetBias, trait_value(forget_bias)}});
    return all;
  }
};

namespace {

class Lstm final : public RecurrentModel {
 public:
  Lstm(const LstmConfig& config, const ModelEnv& env) : RecurrentModel("lstm", config, env), config_(config) {}

 private:
  std::vector<ParameterSpec> layer_parameters(int64_t input) const override {
    const int64_t gates = 4 * config_.cells;
    std::vector<ParameterSpec> specs{{"weight_ih", {gates, input}, config_.init, false},
                                     {"weight_hh", {gates, output_size()}, config_.init, false},
                                     {"bias", {gates}, Init{"zeros", 0}, false}};
    if (config_.projection) specs.push_back({"weight_hr", {output_size(), config_.cells}, config_.init, false});
    return specs;
  }

  Var layer(Context& ctx, const Var& x, const Weights& weights, std::vector<Tensor>& state,
            const SequenceOptions& options) const override {
    const LayerWeights w{weights("weight_ih"), weights("weight_hh"), weights("bias"),
                         config_.projection ? weights("weight_hr") : Var()};
    return lstm_layer(ctx, x, w, state, {config_.forget_bias, options});
  }

  std::vector<StatePart> state_parts() const override { return {{"h", output_size()}, {"c", config_.cells}}; }
  int64_t output_size() const override { return config_.projection ? config_.projection : config_.cells; }

  LstmConfig config_;
};

std::unique_ptr<Model> make_lstm(const Node& config, const std::string& path, const ModelEnv& env) {
  return std::make_unique<Lstm>(read_config<LstmConfig>(config, path), env);
}

}  // namespace
}  // namespace lmx::lstm

LMX_PLUGIN(model, lstm, lmx::lstm::LstmConfig, lmx::lstm::make_lstm)
