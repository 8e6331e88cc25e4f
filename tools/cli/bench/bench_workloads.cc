#include "cli/bench/bench_workloads.h"

#include <algorithm>
#include <cmath>

#include "lmx/plugin.h"

namespace lmx_cli {

Workload::Workload(lmx::Context& ctx, const Parts& parts) : ctx_(ctx), rate_(parts.rate), clip_(parts.clip) {
  const lmx::Node model = lmx::parse_yaml(parts.model, "bench");
  const lmx::Node loss = lmx::parse_yaml(parts.loss, "bench");
  const lmx::PluginInfo& plugin = lmx::Registry::instance().find(lmx::PluginKind::model, model, "model");
  model_ = lmx::create<lmx::ModelFactory>(plugin, model, "model", lmx::ModelEnv{parts.vocab});
  loss_ = lmx::make_loss(loss, "loss",
                         {parts.vocab, model_->feature_size(), nullptr, model_->parameters(), model_->output_table()});
  optimizer_ = lmx::make_optimizer(lmx::parse_yaml(parts.optimizer, "bench"), "optimizer");
  for (const lmx::ParameterSpec& spec : lmx::all_parameters(model_->parameters(), *loss_)) {
    params_.add(ctx, spec, lmx::RandomKey(1));
  }
}

double Workload::step(int64_t number) {
  const lmx::Span span(ctx_.tracer, "step");
  const lmx::RandomKey key = lmx::RandomKey(7).fold(static_cast<uint64_t>(number));
  const lmx::Batch b = batch(key);
  lmx::Tape tape;
  ctx_.tape = &tape;
  ctx_.key = key;
  lmx::ModelState state = model_->initial_state(ctx_, b.sequences());
  lmx::Var features, loss;
  {
    const lmx::Span forward(ctx_.tracer, "model");
    features = model_->forward(ctx_, params_, b, state);
  }
  {
    const lmx::Span forward(ctx_.tracer, "loss");
    const lmx::Tensor targets = b.targets.reshape({b.tokens()});
    loss = loss_->forward(ctx_, params_, features, targets, {.sampler_key = key.fold("sampler")}).loss;
  }
  const double count = static_cast<double>(tokens()), nats = *loss.value().data<float>() / count;
  {
    const lmx::Span backward(ctx_.tracer, "backward");
    tape.backward(ctx_, loss, 1.0 / count);
  }
  ctx_.tape = nullptr;
  update(number + 1);
  return nats;
}

void Workload::update(int64_t step) {
  {
    const lmx::Span span(ctx_.tracer, "coalesce");
    for (const std::string& name : params_.names()) params_.at(name).grad().coalesce(ctx_);
  }
  if (!clip_.empty()) {
    const lmx::Span span(ctx_.tracer, "clip");
    lmx::clip_gradients(ctx_, params_, clip_);
  }
  const lmx::Span span(ctx_.tracer, "update");
  for (const std::string& name : params_.names()) optimizer_->update(ctx_, params_.at(name), rate_, step);
  params_.clear_gradients();
}

namespace {

// Patwary's word model at its full size: LSTM with 2048 cells, projection 512, embedding 512, sampled softmax with 1024
// samples, SGD with rate 0.2, gradient norm of the LSTM clipped to 1.
class WordLstm final : public Workload {
 public:
  explicit WordLstm(lmx::Context& ctx)
      : Workload(ctx, {"{name: lstm, embedding: 512, cells: 2048, projection: 512}",
                       "{name: sampled_softmax, samples: 1024, bias: true}",
                       "{name: sgd, lr: 0.2}",
                       kVocab,
                       0.2,
                       {{lmx::ParamPattern("^lstm\\."), 1.0}}}) {}

  int64_t tokens() const override { return kBatch * kSteps; }
  double flops() const override {
    return 6.0 * static_cast<double>(tokens()) *
           static_cast<double>(model_->macs_per_token() + loss_->macs_per_token(tokens()));
  }

 private:
  static constexpr int64_t kVocab = 100'000, kBatch = 32, kSteps = 20;

  lmx::Batch batch(lmx::RandomKey key) const override {
    lmx::Batch b;
    b.inputs = zipf(key.fold("inputs"));
    b.targets = zipf(key.fold("targets"));
    for (int64_t s = 0; s < kBatch; ++s) b.slots.push_back(s);
    b.fresh.assign(kBatch, 1);
    return b;
  }

  // Zipf-distributed ids, as in text: P(k) ~ 1/(k+1).
  lmx::Tensor zipf(lmx::RandomKey key) const {
    lmx::Tensor ids = ctx_.empty({kBatch, kSteps}, lmx::DType::i32);
    for (int64_t i = 0; i < ids.numel(); ++i) {
      const double u = key.uniform(static_cast<uint64_t>(i));
      const auto id = static_cast<int64_t>(std::exp(u * std::log(kVocab + 1.0)) - 1.0);
      ids.data<int32_t>()[i] = static_cast<int32_t>(std::min(id, kVocab - 1));
    }
    return ids;
  }
};

lmx::Tensor uniform_ids(const lmx::Context& ctx, lmx::RandomKey key, int64_t n, int64_t vocab) {
  lmx::Tensor ids = ctx.empty({n}, lmx::DType::i32);
  for (int64_t i = 0; i < n; ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(key.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// A base Transformer (Vaswani et al.) with one table for all words, label smoothing 0.1 and Adam: 64 pairs of 24 and 26
// words. The three dropouts are those of torch.nn.Transformer(dropout=0.1), which tools/peers/torch_bench.py
// trains.
class NmtTransformer final : public Workload {
 public:
  explicit NmtTransformer(lmx::Context& ctx)
      : Workload(ctx, {"{name: transformer, d: 512, ffn: 2048, heads: 8, dropout: 0.1, attention_dropout: 0.1, "
                       "relu_dropout: 0.1}",
                       "{name: full_softmax, bias: false, label_smoothing: 0.1}",
                       "{name: adam, lr: 5e-4, betas: [0.9, 0.98], eps: 1e-8}",
                       kVocab,
                       5e-4,
                       {}}) {}

  int64_t tokens() const override { return kPairs * kTarget; }
  // Counts the weights of the layers and of the output layer, in the same way as the benchmarks in tools/peers.
  // Attention's own products are not counted. The keys and values of the source are counted as if they were computed
  // for each target word.
  double flops() const override {
    constexpr double d = 512, ffn = 2048, layers = 6;
    const double encoder = layers * (4 * d * d + 2 * d * ffn), decoder = layers * (8 * d * d + 2 * d * ffn);
    return 6.0 * kPairs * (kSource * encoder + kTarget * (decoder + d * kVocab));
  }

 private:
  static constexpr int64_t kVocab = 32'000, kPairs = 64, kSource = 24, kTarget = 26;

  lmx::Batch batch(lmx::RandomKey key) const override {
    lmx::Batch b;
    b.source = uniform_ids(ctx_, key.fold("source"), kPairs * kSource, kVocab);
    b.inputs = uniform_ids(ctx_, key.fold("inputs"), kPairs * kTarget, kVocab);
    b.targets = uniform_ids(ctx_, key.fold("targets"), kPairs * kTarget, kVocab);
    b.source_lengths.assign(kPairs, kSource);
    b.lengths.assign(kPairs, kTarget);
    for (int64_t s = 0; s < kPairs; ++s) b.slots.push_back(s);
    b.fresh.assign(kPairs, 1);
    return b;
  }
};

// A recurrent model of characters: random ids, full softmax, Adam, norm of all gradients clipped to 1.
class CharModel final : public Workload {
 public:
  struct Size {
    const char *model, *optimizer;
    double rate;
    int64_t vocab, batch, steps;
  };
  CharModel(lmx::Context& ctx, const Size& size)
      : Workload(ctx, {size.model,
                       "{name: full_softmax, bias: true}",
                       size.optimizer,
                       size.vocab,
                       size.rate,
                       {{lmx::ParamPattern(".*"), 1.0}}}),
        size_(size) {}

  int64_t tokens() const override { return size_.batch * size_.steps; }
  double flops() const override {
    return 6.0 * static_cast<double>(tokens()) *
           static_cast<double>(model_->macs_per_token() + loss_->macs_per_token(tokens()));
  }

 private:
  lmx::Batch batch(lmx::RandomKey key) const override {
    lmx::Batch b;
    const lmx::Shape shape{size_.batch, size_.steps};
    b.inputs = uniform_ids(ctx_, key.fold("inputs"), tokens(), size_.vocab).reshape(shape);
    b.targets = uniform_ids(ctx_, key.fold("targets"), tokens(), size_.vocab).reshape(shape);
    for (int64_t s = 0; s < size_.batch; ++s) b.slots.push_back(s);
    b.fresh.assign(static_cast<size_t>(size_.batch), 1);
    return b;
  }

  Size size_;
};

// The sizes of the benchmarks in tools/peers: a quarter of Patwary's width and of Puri's.
constexpr CharModel::Size kCharRhn{"{name: rhn, embedding: 512, cells: 512, depth: 10, transform_bias: 0}",
                                   "{name: adam, lr: 1e-3}",
                                   1e-3,
                                   98,
                                   32,
                                   50};
constexpr CharModel::Size kCharMlstm{"{name: mlstm, embedding: 64, cells: 1024, weight_norm: 'mlstm\\..*'}",
                                     "{name: adam, lr: 5e-4}",
                                     5e-4,
                                     256,
                                     32,
                                     64};

}  // namespace

std::vector<std::string> workload_names() {
  return {"word_lstm", "char_mlstm", "char_rhn", "nmt_transformer"};
}

std::unique_ptr<Workload> make_workload(const std::string& name, lmx::Context& ctx) {
  if (name == "word_lstm") return std::make_unique<WordLstm>(ctx);
  if (name == "char_mlstm") return std::make_unique<CharModel>(ctx, kCharMlstm);
  if (name == "char_rhn") return std::make_unique<CharModel>(ctx, kCharRhn);
  return std::make_unique<NmtTransformer>(ctx);
}

}  // namespace lmx_cli
