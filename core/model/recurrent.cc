#include "lmx/recurrent.h"

#include <cmath>

#include "lmx/array_ops.h"
#include "lmx/error.h"
#include "lmx/operand.h"
#include "lmx/ops.h"
#include "tensor/planned_products.h"

namespace lmx {

void RecurrentConfig::fields(Fields& f) {
  f.field("layers", layers, "recurrent layers, each reading the outputs of the one below", kLayers);
  f.field("embedding", embedding, "size E of a token's vector", kSize);
  f.field("dropout", dropout, "probability that an element of a layer's input or of the last output is zeroed",
          {0, 0.99, false});
  f.field("weight_norm", weight_norm,
          "pattern that is searched for in the names of the layers' matrices (mlstm\\..*); those that it matches are "
          "trained as direction and length of each row; '': none");
  f.field("checkpoint", checkpoint,
          "keep only the state before each segment of time and compute the rest again in backward: less memory, a "
          "forward more, and the same bits with the same segment");
  f.field("segment", segment,
          "time steps computed as a piece; 0: as many as make 2048 rows with the batch, on a GPU all of them unless "
          "checkpoint is set",
          kSizeOrNone);
  f.group("init", init, "how the layers' matrices start");
  f.group("embedding_init", embedding_init, "how the embedding starts");
}

void RecurrentConfig::check(const std::string& where) const {
  static_cast<void>(ParamPattern(weight_norm, str(where, ".weight_norm: ")));
}

namespace {

// (T*B, D), time-major -> (B*T, D), sequence by sequence.
Var to_sequences(Context& ctx, const Var& x, int64_t steps, int64_t batch) {
  const int64_t width = x.shape()[1];
  const Var y = permute(ctx, reshape(ctx, x, {steps, batch, width}), {1, 0, 2});
  return reshape(ctx, y, {batch * steps, width});
}

// Ids (B, T), reordered to (T*B), time-major.
Tensor time_major(Context& ctx, const Tensor& ids) {
  const int64_t batch = ids.dim(0), steps = ids.dim(1);
  Tensor out = Tensor::empty(ctx.host, {steps * batch}, DType::i32);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < steps; ++t) out.data<int32_t>()[t * batch + b] = ids.data<int32_t>()[b * steps + t];
  }
  return out;
}

// Row ids of a time-major batch for dropout. Row t*B + b is time t of global slot slots[b]; its id does not depend on
// the rank and the micro-batch.
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

// The average length of a row of `cols` elements after the initialisation `init`.
double row_length(const Init& init, const Shape& shape) {
  const double rows = static_cast<double>(shape[0]), cols = static_cast<double>(shape[1]);
  if (init.kind == "uniform") return init.scale * std::sqrt(cols / 3);
  if (init.kind == "normal") return init.scale * std::sqrt(cols);
  if (init.kind == "xavier_uniform" || init.kind == "xavier_normal")
    return init.scale * std::sqrt(2 * cols / (rows + cols));
  return (init.kind == "constant" ? std::abs(init.scale) : init.kind == "ones" ? 1.0 : 0.0) * std::sqrt(cols);
}

}  // namespace

RecurrentModel::RecurrentModel(std::string name, const RecurrentConfig& config, const ModelEnv& env)
    : name_(std::move(name)), config_(config), vocab_(env.vocab_size) {
  if (!config_.weight_norm.empty()) weight_norm_.emplace(config_.weight_norm, str("[", name_, "] weight_norm: "));
}

std::string RecurrentModel::prefix(int64_t layer) const {
  return str(name_, ".", layer, ".");
}

// Biases are not normalised: they have no direction separate from their length.
bool RecurrentModel::normed(const std::string& name, const Shape& shape) const {
  return weight_norm_ && shape.rank() == 2 && weight_norm_->matches(name);
}

std::vector<ParameterSpec> RecurrentModel::parameters() const {
  std::vector<ParameterSpec> specs{{"embedding.weight", {vocab_, config_.embedding}, config_.embedding_init, true}};
  std::vector<std::string> names;
  for (int64_t l = 0; l < config_.layers; ++l) {
    for (ParameterSpec& spec : layer_parameters(input_size(l))) {
      spec.name = prefix(l) + spec.name;
      if (spec.shape.rank() == 2) names.push_back(spec.name);
      if (!normed(spec.name, spec.shape)) {
        specs.push_back(std::move(spec));
        continue;
      }
      const double length = row_length(spec.init, spec.shape);
      if (length <= 0) throw UserError(str("[", name_, "] weight_norm of ", spec.name, ": its rows start at zero"));
      specs.push_back({spec.name + "_v", spec.shape, spec.init, false});
      specs.push_back({spec.name + "_g", {spec.shape[0]}, Init{"constant", length}, false});
    }
  }
  if (weight_norm_) static_cast<void>(weight_norm_->select(names));
  return specs;
}

Var RecurrentModel::weight(Context& ctx, const ParameterStore& params, const std::string& name) const {
  if (params.contains(name)) return params.at(name);
  return weight_norm(ctx, params.at(name + "_v"), params.at(name + "_g"));
}

Var RecurrentModel::forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const {
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
    std::vector<Tensor> parts;
    for (const StatePart& part : state_parts()) parts.push_back(state.at(p + part.name));
    const Weights weights = [&](const std::string& name) { return weight(ctx, params, p + name); };
    x = layer(ctx, noisy(x, l), weights, parts, {config_.segment, config_.checkpoint});
    size_t i = 0;
    for (const StatePart& part : state_parts()) state.at(p + part.name) = parts[i++];
  }
  return to_sequences(ctx, noisy(x, config_.layers), steps, sequences);
}

ModelState RecurrentModel::initial_state(Context& ctx, int64_t sequences) const {
  const DType type = ctx.compute == DType::f64 ? DType::f64 : DType::f32;
  ModelState state;
  for (int64_t l = 0; l < config_.layers; ++l) {
    for (const StatePart& part : state_parts()) state[prefix(l) + part.name] = ctx.zeros({sequences, part.width}, type);
  }
  return state;
}

// A single layer that is computed in one piece keeps the state before it and computes everything again.
std::vector<std::string> RecurrentModel::warnings(const ForwardShape& shape) const {
  if (!config_.checkpoint || config_.layers != 1 || shape.steps == 0) return {};
  if (segment_steps({config_.segment, true}, shape.steps, shape.sequences, planned_device()) < shape.steps) return {};
  return {str("[model] checkpoint saves nothing: ", shape.steps, " steps of ", plural(shape.sequences, "sequence"),
              " are one piece, which backward makes again as a whole",
              shape.steps > 1 ? str("; model.segment=", (shape.steps + 3) / 4, " would make pieces of it") : "")};
}

}  // namespace lmx
