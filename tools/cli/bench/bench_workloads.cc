#include "cli/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/counting/device.h"
#include "backend/serial.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace lmx::app::cli {

Workload::Workload(Context& ctx, const Parts& parts)
    : ctx_(ctx),
      model_config_(parse_yaml(parts.model, "bench")),
      loss_config_(parse_yaml(parts.loss, "bench")),
      optimizer_config_(parse_yaml(parts.optimizer, "bench")),
      rate_(parts.rate),
      clip_(parts.clip) {
  const PluginInfo& plugin = Registry::instance().find(PluginKind::model, model_config_, "model");
  model_ = create<ModelFactory>(plugin, model_config_, "model", ModelEnv{parts.vocab});
  loss_ = make_loss(loss_config_, "loss",
                    {parts.vocab, model_->feature_size(), nullptr, model_->parameters(), model_->output_table()});
  optimizer_ = make_optimizer(optimizer_config_, "optimizer");
  for (const ParameterSpec& spec : all_parameters(model_->parameters(), *loss_)) {
    params_.add(ctx, spec, RandomKey(1));
  }
}

Reading<float> Workload::step(int64_t number) {
  const Span span(ctx_.tracer, "step");
  const RandomKey key = RandomKey(7).fold(static_cast<uint64_t>(number));
  const Batch b = batch(key);
  Tape tape;
  ctx_.tape = &tape;
  ctx_.key = key;
  ModelState state = model_->initial_state(ctx_, b.sequences());
  Var features, loss;
  {
    const Span forward(ctx_.tracer, "model");
    features = model_->forward(ctx_, params_, b, state);
  }
  {
    const Span forward(ctx_.tracer, "loss");
    const Tensor targets = b.targets.reshape({b.tokens()});
    loss = loss_->forward(ctx_, params_, features, targets, {.sampler_key = key.fold("sampler")}).loss;
  }
  {
    const Span backward(ctx_.tracer, "backward");
    tape.backward(ctx_, loss, 1.0 / static_cast<double>(tokens()));
  }
  ctx_.tape = nullptr;
  update(number + 1);
  return ctx_.read<float>(loss.value());  // after the update, so that the host that reads it has waited for all
}

void Workload::update(int64_t step) {
  {
    const Span span(ctx_.tracer, "coalesce");
    for (const std::string& name : params_.names()) params_.at(name).grad().coalesce(ctx_);
  }
  std::optional<GradientMeasure> measure;
  if (!clip_.empty()) {
    const Span span(ctx_.tracer, "clip");
    measure.emplace(ctx_, params_, clip_);
  }
  const Span span(ctx_.tracer, "update");
  std::vector<ParameterUpdate> updates;
  for (const std::string& name : params_.names()) {
    Var& param = params_.at(name);
    if (!param.grad().empty()) updates.push_back({&param, measure ? measure->scale(name) : GradScale()});
  }
  optimizer_->update_all(ctx_, updates, rate_, step);
  params_.clear_gradients();
}

namespace {

// Patwary's word model at its full size: LSTM with 2048 cells, projection 512, embedding 512, sampled softmax with 1024
// samples, SGD with rate 0.2, gradient norm of the LSTM clipped to 1.
class WordLstm final : public Workload {
 public:
  struct Size {
    const char *model, *loss;
    int64_t vocab, batch;
  };
  WordLstm(Context& ctx, const Size& size)
      : Workload(ctx,
                 {size.model, size.loss, "{name: sgd, lr: 0.2}", size.vocab, 0.2, {{ParamPattern("^lstm\\."), 1.0}}}),
        size_(size) {
    // Zipf-distributed ids, as in text: P(k) ~ 1/(k+1).
    const double range = std::log(static_cast<double>(size_.vocab) + 1.0);
    const RandomKey key(5);
    for (uint64_t i = 0; i < kText; ++i)
      text_.push_back(static_cast<int32_t>(
          std::min(static_cast<int64_t>(std::exp(key.uniform(i) * range) - 1.0), size_.vocab - 1)));
  }

  int64_t tokens() const override { return size_.batch * kSteps; }

 private:
  static constexpr int64_t kSteps = 20;
  static constexpr uint64_t kText = 1 << 20;

  Batch batch(RandomKey key) const override {
    Batch b;
    b.inputs = words(key.fold("inputs"));
    b.targets = words(key.fold("targets"));
    for (int64_t s = 0; s < size_.batch; ++s) b.slots.push_back(s);
    b.fresh.assign(static_cast<size_t>(size_.batch), 1);
    return b;
  }

  // Every sequence is read from a random place of the text.
  Tensor words(RandomKey key) const {
    Tensor ids = Tensor::empty(ctx_.host, {size_.batch, kSteps}, DType::i32);
    for (int64_t row = 0; row < size_.batch; ++row)
      std::copy_n(text_.data() + key.below(static_cast<uint64_t>(row), kText - kSteps), kSteps,
                  ids.data<int32_t>() + row * kSteps);
    return ids;
  }

  Size size_;
  std::vector<int32_t> text_;
};

WordLstm::Size word_lstm(WorkloadScale scale) {
  if (scale.quick)
    return {"{name: lstm, embedding: 8, cells: 16, projection: 8}", "{name: sampled_softmax, samples: 16, bias: true}",
            200, 2};
  return {"{name: lstm, embedding: 512, cells: 2048, projection: 512}",
          "{name: sampled_softmax, samples: 1024, bias: true}", 100'000, scale.paper ? 128 : 32};
}

Tensor uniform_ids(const Context& ctx, RandomKey key, int64_t n, int64_t vocab) {
  Tensor ids = Tensor::empty(ctx.host, {n}, DType::i32);
  for (int64_t i = 0; i < n; ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(key.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// A Transformer (Vaswani et al.; base, or big in the papers' sizes) with one table for all words, label smoothing 0.1
// and Adam. The three dropouts are those of torch.nn.Transformer(dropout=0.1), which tools/dev/peers/torch_bench.py trains.
class NmtTransformer final : public Workload {
 public:
  struct Size {
    int64_t d, ffn, heads, vocab, pairs, source, target;
  };
  NmtTransformer(Context& ctx, const Size& size)
      : Workload(ctx, {str("{name: transformer, d: ", size.d, ", ffn: ", size.ffn, ", heads: ", size.heads,
                           ", dropout: 0.1, attention_dropout: 0.1, relu_dropout: 0.1}"),
                       "{name: full_softmax, bias: false, label_smoothing: 0.1}",
                       "{name: adam, lr: 5e-4, betas: [0.9, 0.98], eps: 1e-8}",
                       size.vocab,
                       5e-4,
                       {}}),
        size_(size) {}

  int64_t tokens() const override { return size_.pairs * size_.target; }

 private:
  Batch batch(RandomKey key) const override {
    Batch b;
    b.source = uniform_ids(ctx_, key.fold("source"), size_.pairs * size_.source, size_.vocab);
    b.inputs = uniform_ids(ctx_, key.fold("inputs"), size_.pairs * size_.target, size_.vocab);
    b.targets = uniform_ids(ctx_, key.fold("targets"), size_.pairs * size_.target, size_.vocab);
    const auto pairs = static_cast<size_t>(size_.pairs);
    b.source_lengths.assign(pairs, size_.source);
    b.lengths.assign(pairs, size_.target);
    for (int64_t s = 0; s < size_.pairs; ++s) b.slots.push_back(s);
    b.fresh.assign(pairs, 1);
    return b;
  }

  Size size_;
};

NmtTransformer::Size nmt_transformer(WorkloadScale scale) {
  if (scale.quick) return {16, 32, 2, 64, 2, 4, 5};
  if (scale.paper) return {1024, 4096, 16, 32'000, 192, 27, 27};
  return {512, 2048, 8, 32'000, 64, 24, 26};
}

// A language model on random ids: full softmax, norm of all gradients clipped to 1.
class LanguageModel final : public Workload {
 public:
  struct Size {
    std::string model, loss, optimizer;  // the optimizer without its rate
    double rate;
    int64_t vocab, batch, steps;
  };
  LanguageModel(Context& ctx, const Size& size)
      : Workload(ctx, {size.model,
                       size.loss,
                       str("{", size.optimizer, ", lr: ", size.rate, "}"),
                       size.vocab,
                       size.rate,
                       {{ParamPattern(".*"), 1.0}}}),
        size_(size) {}

  int64_t tokens() const override { return size_.batch * size_.steps; }

 private:
  Batch batch(RandomKey key) const override {
    Batch b;
    const Shape shape{size_.batch, size_.steps};
    b.inputs = uniform_ids(ctx_, key.fold("inputs"), tokens(), size_.vocab).reshape(shape);
    b.targets = uniform_ids(ctx_, key.fold("targets"), tokens(), size_.vocab).reshape(shape);
    for (int64_t s = 0; s < size_.batch; ++s) b.slots.push_back(s);
    b.fresh.assign(static_cast<size_t>(size_.batch), 1);
    return b;
  }

  Size size_;
};

constexpr const char* kWithBias = "{name: full_softmax, bias: true}";

// The sizes of the benchmarks in tools/dev/peers: Patwary's and Puri's, or about a quarter of their widths.
LanguageModel::Size char_rhn(WorkloadScale scale) {
  const int64_t cells = scale.quick ? 8 : scale.paper ? 1792 : 512;
  return {str("{name: rhn, embedding: ", cells, ", cells: ", cells, ", depth: 10, transform_bias: 0}"),
          kWithBias,
          "name: adam",
          1e-3,
          98,
          scale.quick   ? 2
          : scale.paper ? 128
                        : 32,
          scale.paper ? 150 : 50};
}
LanguageModel::Size char_mlstm(WorkloadScale scale) {
  const int64_t cells = scale.quick ? 8 : scale.paper ? 4096 : 1024, embedding = scale.quick ? 8 : 64;
  return {str("{name: mlstm, embedding: ", embedding, ", cells: ", cells, ", weight_norm: 'mlstm\\..*'}"),
          kWithBias,
          "name: adam",
          5e-4,
          256,
          scale.quick   ? 2
          : scale.paper ? 128
                        : 32,
          scale.paper ? 256 : 64};
}

// A decoder of the kind of Llama; with the papers' sizes, that of GPT-2.
LanguageModel::Size gpt(WorkloadScale scale) {
  const auto of = [](const char* model, int64_t vocab, int64_t batch, int64_t steps) -> LanguageModel::Size {
    return {model,
            "{name: full_softmax, bias: false}",
            "name: adamw, betas: [0.9, 0.95], weight_decay: 0.1",
            6e-4,
            vocab,
            batch,
            steps};
  };
  if (scale.quick) return of("{name: gpt, layers: 6, d: 8, heads: 2, kv_heads: 1, ffn: 16}", 64, 2, 8);
  if (scale.paper) return of("{name: gpt, layers: 12, d: 768, heads: 12, kv_heads: 4, ffn: 2048}", 50'304, 16, 1024);
  return of("{name: gpt, layers: 6, d: 384, heads: 6, kv_heads: 2, ffn: 1024}", 8192, 8, 256);
}

}  // namespace

std::vector<std::string> workload_names() {
  return {"word_lstm", "char_mlstm", "char_rhn", "nmt_transformer", "gpt"};
}

std::unique_ptr<Workload> make_workload(const std::string& name, Context& ctx, WorkloadScale scale) {
  if (name == "word_lstm") return std::make_unique<WordLstm>(ctx, word_lstm(scale));
  if (name == "char_mlstm") return std::make_unique<LanguageModel>(ctx, char_mlstm(scale));
  if (name == "char_rhn") return std::make_unique<LanguageModel>(ctx, char_rhn(scale));
  if (name == "gpt") return std::make_unique<LanguageModel>(ctx, gpt(scale));
  return std::make_unique<NmtTransformer>(ctx, nmt_transformer(scale));
}

CountedWorkload count_workload(const std::string& name, Device::Kind kind, const Arithmetic& arithmetic,
                               WorkloadScale scale) {
  const auto device = CountingDevice::make(kind);
  Context ctx;
  device->place(ctx);
  ctx.compute = arithmetic.compute;
  ctx.products = arithmetic.products;
  const Serial serial(true);
  Recording recording(*device);
  const std::unique_ptr<Workload> workload = make_workload(name, ctx, scale);
  workload->step(0);  // packs weights and makes the state of the optimizer
  const DeviceCounts before = device->counts();
  recording.record().begin_pass(workload->tokens());
  workload->step(1);
  recording.record().end_pass();
  return {2 * macs_of(recording.record().last().forward), device->counts().since(before), ctx.allocator->stats()};
}

namespace {

// The kinds of copies in the order of output.
struct Kind {
  const char* name;
  DeviceCounts::Moved DeviceCounts::*moved;
};
constexpr Kind kKinds[] = {{"uploads", &DeviceCounts::uploads},
                           {"downloads", &DeviceCounts::downloads},
                           {"copies", &DeviceCounts::copies},
                           {"fills", &DeviceCounts::fills}};

}  // namespace

nlohmann::ordered_json counts_json(const DeviceCounts& counts) {
  nlohmann::ordered_json json{{"launches", counts.all_launches()}};
  for (const Kind& kind : kKinds) {
    const DeviceCounts::Moved& moved = counts.*kind.moved;
    json[kind.name] = {{"times", moved.times}, {"bytes", moved.bytes}};
  }
  json["waits"] = counts.waits;
  json["launches_by_name"] = counts.launches;
  return json;
}

std::string counts_table(const DeviceCounts& counts) {
  std::vector<std::pair<std::string, int64_t>> launches(counts.launches.begin(), counts.launches.end());
  std::stable_sort(launches.begin(), launches.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::vector<std::string>> cells{{"of one step", "times", "bytes"}};
  for (const auto& [name, times] : launches) cells.push_back({name, std::to_string(times), ""});
  cells.push_back({"all launches", std::to_string(counts.all_launches()), ""});
  for (const Kind& kind : kKinds) {
    const DeviceCounts::Moved& moved = counts.*kind.moved;
    cells.push_back({kind.name, std::to_string(moved.times), std::to_string(moved.bytes)});
  }
  cells.push_back({"waits", std::to_string(counts.waits), ""});
  std::string out;
  for (const std::string& line : table_lines(cells, {.left = 1, .gap = 2, .least = {}})) out += line + "\n";
  return out;
}

}  // namespace lmx::app::cli
