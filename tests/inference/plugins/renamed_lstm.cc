// The LSTM of lmx as a model outside its tree: its fields have other names, and its parameters the same. TEST_TRAITS=0:
// it states no architecture, so lmx cannot know that it is an LSTM. TEST_TRAITS=2: it states one, but not all numbers.
#include "lmx/plugin.h"
#include "lmx/recurrent.h"
#include "lstm_op.h"

namespace {

using namespace lmx;

struct RenamedConfig {
  int64_t height = 1, vector = 8, units = 8;
  double memory = 0;

  void fields(Fields& f) {
    f.field("height", height, "layers", kPositive);
    f.field("vector", vector, "size of a word's vector", kPositive);
    f.field("units", units, "memory cells of a layer", kPositive);
    f.field("memory", memory, "constant added to the forget gate's pre-activation");
  }
#if TEST_TRAITS
  Traits traits() const {
    Traits all{{trait::kArchitecture, "lstm"},
               {trait::kLayers, str(height)},
               {trait::kEmbedding, str(vector)},
               {trait::kCells, str(units)},
               {trait::kProjection, "0"}};
    if (TEST_TRAITS == 1) all[trait::kForgetBias] = trait_value(memory);
    return all;
  }
#endif
  RecurrentConfig recurrent() const {
    RecurrentConfig config;
    config.layers = height;
    config.embedding = vector;
    return config;
  }
};

class Renamed final : public RecurrentModel {
 public:
  Renamed(const RenamedConfig& config, const ModelEnv& env)
      : RecurrentModel("lstm", config.recurrent(), env), config_(config) {}

 private:
  std::vector<ParameterSpec> layer_parameters(int64_t input) const override {
    const int64_t gates = 4 * config_.units;
    const Init init{"uniform", 0.1};
    return {{"weight_ih", {gates, input}, init, false},
            {"weight_hh", {gates, config_.units}, init, false},
            {"bias", {gates}, Init{"zeros", 0}, false}};
  }
  Var layer(Context& ctx, const Var& x, const Weights& weights, std::vector<Tensor>& state,
            const SequenceOptions& options) const override {
    const lstm::LayerWeights w{weights("weight_ih"), weights("weight_hh"), weights("bias"), Var()};
    return lstm::lstm_layer(ctx, x, w, state, {config_.memory, options});
  }
  std::vector<StatePart> state_parts() const override { return {{"h", config_.units}, {"c", config_.units}}; }
  int64_t output_size() const override { return config_.units; }

  RenamedConfig config_;
};

}  // namespace

#if TEST_TRAITS == 0
LMX_PLUGIN(model, silent_lstm, RenamedConfig, Renamed)
#elif TEST_TRAITS == 1
LMX_PLUGIN(model, renamed_lstm, RenamedConfig, Renamed)
#else
LMX_PLUGIN(model, partial_lstm, RenamedConfig, Renamed)
#endif
