// The LSTM language model of Patwary 2018 and Xiao 2017: embedding, LSTM layers, optional projection (Sak et al. 2014).
#include <mutex>

#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/ops.h"
#include "lmx/plugin.h"
#include "lstm_kernels.h"
#include "lstm_op.h"

namespace lmx::lstm {

struct LstmConfig {
  int64_t layers = 1;
  int64_t embedding = 256;
  int64_t cells = 512;
  int64_t projection = 0;
  double dropout = 0;
  double forget_bias = 0;
  Init init{"uniform", 0.1};
  Init embedding_init{"uniform", 0.1};

  void fields(Fields& f) {
    f.field("layers", layers, "LSTM layers, each reading the outputs of the one below", kPositive);
    f.field("embedding", embedding, "size E of a word's vector", kPositive);
    f.field("cells", cells, "memory cells H of a layer", kPositive);
    f.field("projection", projection, "size P that outputs are projected to before they recur; 0: none, P = H",
            kNonNegative);
    f.field("dropout", dropout, "probability that an element of a layer's input or of the last output is zeroed",
            {0, 0.99, false});
    f.field("forget_bias", forget_bias,
            "constant added to the forget gate's pre-activation (TensorFlow's default is 1)");
    f.group("init", init, "how the LSTM's matrices start; its biases start at zero");
    f.group("embedding_init", embedding_init, "how the embedding starts");
  }
};

namespace {

// (T*B, D) time-major -> (B*T, D) sequence by sequence, or back; a permutation of rows, so its gradient is the inverse
// one.
template <class T>
void swap_rows(const Tensor& from, Tensor& to, int64_t outer, int64_t inner) {
  const int64_t width = from.dim(1);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      std::copy_n(from.data<T>() + (o * inner + i) * width, width, to.data<T>() + (i * outer + o) * width);
    }
  }
}

Tensor swapped(const Tensor& from, int64_t outer, int64_t inner) {
  Tensor to = from.like(MemClass::activations);
  if (from.dtype() == DType::f64) {
    swap_rows<double>(from, to, outer, inner);
  } else {
    swap_rows<float>(from, to, outer, inner);
  }
  return to;
}

Var to_sequences(Context& ctx, const Var& x, int64_t steps, int64_t batch) {
  Var y(swapped(x.value(), steps, batch));
  if (ctx.tape) {
    ctx.tape->record("to_sequences", {x}, {y}, [&ctx, x, y, steps, batch](Tape& tape) {
      tape.accumulate(ctx, x, swapped(tape.grad_of(y), batch, steps));
    });
  }
  return y;
}

// Ids (B, T) as (T*B), time-major.
Tensor time_major(Context& ctx, const Tensor& ids) {
  const int64_t batch = ids.dim(0), steps = ids.dim(1);
  Tensor out = ctx.empty({steps * batch}, DType::i32);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < steps; ++t) out.data<int32_t>()[t * batch + b] = ids.data<int32_t>()[b * steps + t];
  }
  return out;
}

// What the rows of a time-major batch are to dropout: row t*B + b is time t of global slot slots[b], on whatever rank
// and in whatever micro-batch.
std::vector<uint64_t> row_ids(const Batch& batch) {
  const int64_t sequences = batch.inputs.dim(0), steps = batch.inputs.dim(1);
  LMX_CHECK(static_cast<int64_t>(batch.slots.size()) == sequences, batch.slots.size(), " slots for ", sequences);
  std::vector<uint64_t> ids;
  ids.reserve(static_cast<size_t>(batch.inputs.numel()));
  for (int64_t t = 0; t < steps; ++t) {
    for (const int64_t slot : batch.slots) ids.push_back(static_cast<uint64_t>(slot * steps + t));
  }
  return ids;
}

class Lstm final : public Model {
 public:
  Lstm(const LstmConfig& config, const ModelEnv& env) : config_(config), vocab_(env.vocab_size) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs{{"embedding.weight", {vocab_, config_.embedding}, config_.embedding_init, true}};
    for (int64_t l = 0; l < config_.layers; ++l) {
      const std::string p = prefix(l);
      specs.push_back({p + "weight_ih", {4 * config_.cells, input_size(l)}, config_.init, false});
      specs.push_back({p + "weight_hh", {4 * config_.cells, output_size()}, config_.init, false});
      specs.push_back({p + "bias", {4 * config_.cells}, Init{"zeros", 0}, false});
      if (config_.projection) specs.push_back({p + "weight_hr", {output_size(), config_.cells}, config_.init, false});
    }
    return specs;
  }

  Var forward(Context& ctx, ParameterStore& params, const Batch& batch, ModelState& state) const override {
    const int64_t sequences = batch.inputs.dim(0), steps = batch.inputs.dim(1);
    const RandomKey key = ctx.key.fold("dropout");
    const bool drops = ctx.training && config_.dropout > 0;
    const std::vector<uint64_t> rows = drops ? row_ids(batch) : std::vector<uint64_t>();
    const auto noisy = [&](const Var& v, int64_t layer) {
      return drops ? dropout(ctx, v, config_.dropout, key.fold(static_cast<uint64_t>(layer)), rows) : v;
    };
    Var x = embedding(ctx, params.at("embedding.weight"), time_major(ctx, batch.inputs));
    for (int64_t l = 0; l < config_.layers; ++l) {
      const std::string p = prefix(l);
      x = noisy(x, l);
      const LayerWeights w{params.at(p + "weight_ih"), params.at(p + "weight_hh"), params.at(p + "bias"),
                           config_.projection ? params.at(p + "weight_hr") : Var()};
      LayerState s{state.at(p + "h"), state.at(p + "c")};
      x = lstm_layer(ctx, x, w, s, config_.forget_bias);
      state.at(p + "h") = s.h;
      state.at(p + "c") = s.c;
    }
    return to_sequences(ctx, noisy(x, config_.layers), steps, sequences);
  }

  ModelState initial_state(Context& ctx, int64_t sequences) const override {
    const DType type = ctx.compute == DType::f64 ? DType::f64 : DType::f32;
    ModelState state;
    for (int64_t l = 0; l < config_.layers; ++l) {
      state[prefix(l) + "h"] = ctx.zeros({sequences, output_size()}, type);
      state[prefix(l) + "c"] = ctx.zeros({sequences, config_.cells}, type);
    }
    return state;
  }

  int64_t feature_size() const override { return output_size(); }

  int64_t macs_per_token() const override {
    int64_t macs = 0;
    for (int64_t l = 0; l < config_.layers; ++l) {
      macs += 4 * config_.cells * (input_size(l) + output_size());
      if (config_.projection) macs += config_.projection * config_.cells;
    }
    return macs;
  }

  int64_t activation_bytes_per_token() const override {
    // Gates, cells, o tanh(c) and hidden states of every layer, each input, in 4 bytes.
    int64_t elements = 0;
    for (int64_t l = 0; l < config_.layers; ++l) {
      elements += 6 * config_.cells + 3 * output_size() + input_size(l);
    }
    return 4 * elements;
  }

 private:
  static std::string prefix(int64_t layer) { return str("lstm.", layer, "."); }
  int64_t output_size() const { return config_.projection ? config_.projection : config_.cells; }
  int64_t input_size(int64_t layer) const { return layer == 0 ? config_.embedding : output_size(); }

  LstmConfig config_;
  int64_t vocab_;
};

std::unique_ptr<Model> make_lstm(const Node& config, const std::string& path, const ModelEnv& env) {
  static std::once_flag once;
  std::call_once(once, add_cpu_kernels);
  const auto c = read_config<LstmConfig>(config, path);
  if (c.projection > c.cells) {
    throw UserError(str("[lstm] projection ", c.projection, " is larger than cells ", c.cells,
                        ": a projection shrinks the outputs"));
  }
  return std::make_unique<Lstm>(c, env);
}

}  // namespace
}  // namespace lmx::lstm

LMX_PLUGIN(model, lstm, lmx::lstm::LstmConfig, lmx::lstm::make_lstm)
