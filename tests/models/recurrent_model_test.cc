// Recurrent language models as their plugins make them: sizes, weight normalisation, checkpoints, memory.
#include <map>

#include "lmx/error.h"
#include "lmx/loss.h"
#include "lmx/ops.h"
#include "lmx/optim.h"
#include "models/made_model.h"
#include "ops/gradcheck.h"
#include "test.h"

namespace lmx {
namespace {

std::string problem(const std::string& yaml) {
  return lmx_test::user_error([&] { testing::made_model(yaml, 11)->parameters(); });
}

// A model and its loss on one batch of random ids, everything in `compute`.
struct Trial {
  Trial(const std::string& yaml, DType compute, int64_t vocab = 11, int64_t batch = 4, int64_t steps = 7)
      : model(testing::made_model(yaml, vocab)) {
    loss = make_loss(parse_yaml("{name: full_softmax, bias: true}", "test"), "loss",
                     {vocab, model->feature_size(), nullptr});
    ctx.compute = compute;
    ctx.allocator = Allocator::counting(Allocator::cpu());
    for (const ParameterSpec& spec : all_parameters(model->parameters(), *loss)) params.add(ctx, spec, RandomKey(1));
    b.inputs = ids(batch, steps, vocab, 3);
    b.targets = ids(batch, steps, vocab, 4);
    for (int64_t s = 0; s < batch; ++s) b.slots.push_back(s);
    b.fresh.assign(b.slots.size(), 1);
  }

  Tensor ids(int64_t batch, int64_t steps, int64_t vocab, uint64_t seed) const {
    Tensor t = ctx.empty({batch, steps}, DType::i32);
    for (int64_t i = 0; i < t.numel(); ++i)
      t.data<int32_t>()[i] =
          static_cast<int32_t>(RandomKey(seed).below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab)));
    return t;
  }

  // Loss, state after and gradients of one step.
  std::map<std::string, std::vector<double>> step() {
    Tape tape;
    ctx.tape = &tape;
    ModelState state = model->initial_state(ctx, b.sequences());
    std::map<std::string, std::vector<double>> out;
    {
      const Var features = model->forward(ctx, params, b, state);
      const Var l = loss->forward(ctx, params, features, b.targets.reshape({-1}), {}).loss;
      out["loss"] = {l.value().dtype() == DType::f64 ? *l.value().data<double>()
                                                     : static_cast<double>(*l.value().data<float>())};
      tape.backward(ctx, l, 1.0 / static_cast<double>(b.tokens()));
    }
    ctx.tape = nullptr;
    for (const std::string& name : params.names()) out[name] = testing::dense_gradient(params.at(name));
    for (const auto& [name, t] : state) {
      const Tensor wide = t.to(DType::f64);
      out["state " + name].assign(wide.data<double>(), wide.data<double>() + wide.numel());
    }
    params.clear_gradients();
    return out;
  }

  Tensor features() {
    ModelState state = model->initial_state(ctx, b.sequences());
    return model->forward(ctx, params, b, state).value();
  }

  Context ctx;
  std::unique_ptr<Model> model;
  std::unique_ptr<Loss> loss;
  ParameterStore params;
  Batch b;
};

int64_t count(const std::string& yaml, int64_t vocab) {
  const std::unique_ptr<Model> model = testing::made_model(yaml, vocab);
  int64_t n = vocab * model->feature_size() + vocab;  // the output layer
  for (const ParameterSpec& spec : model->parameters()) n += spec.shape.numel();
  return n;
}

// Puri 2018, section VIII-A (4,096 cells: 0.18 GB in fp16), and Patwary 2018, section IV-B (213 million, which are the
// weights and the two moments of Adam): 16,384 + 262,144 + 16,777,216 + 1,048,576 + 67,108,864 + 16,384 + 1,048,576 +
// 256; a gain for each of 4096 + 4096 + 16384 + 16384 rows; and 2 E H + 2 L (H^2 + H) + V E + H V + V.
TEST(RecurrentModel, ParametersOfThePapers) {
  EXPECT_EQ(count("{name: mlstm}", 256), 86'278'400);
  EXPECT_EQ(count("{name: mlstm, weight_norm: 'mlstm\\..*'}", 256), 86'278'400 + 40'960);
  EXPECT_EQ(count("{name: rhn}", 98), 71'034'978);
  EXPECT_EQ(count("{name: rhn, coupled: false}", 98), 71'034'978 + 10 * (1792 * 1792 + 1792) + 1792 * 1792);
}

const char* const kModels[] = {
    "name: lstm, layers: 2, embedding: 6, cells: 8, projection: 5",
    "name: mlstm, layers: 2, embedding: 6, cells: 8",
    "name: rhn, layers: 2, embedding: 6, cells: 8, depth: 3",
};

TEST(RecurrentModel, WeightNormGradients) {
  for (const std::string model : kModels) {
    Trial run(str("{", model, ", weight_norm: '.*weight.*'}"), DType::f64);
    std::vector<Var> leaves;
    for (const std::string& name : run.params.names()) leaves.push_back(run.params.at(name));
    testing::gradcheck(
        [&](Context& ctx, const std::vector<Var>&) {
          ModelState state = run.model->initial_state(ctx, run.b.sequences());
          const Var features = run.model->forward(ctx, run.params, run.b, state);
          return scale(ctx, run.loss->forward(ctx, run.params, features, run.b.targets.reshape({-1}), {}).loss, 0.1);
        },
        leaves, {.per_leaf = 6});
  }
}

// v and g stand where w stood, biases and the embedding stay; a pattern may choose.
TEST(RecurrentModel, WeightNormChoosesByName) {
  const auto names = [](const std::string& pattern) {
    std::string out;
    for (const ParameterSpec& spec :
         testing::made_model(str("{name: mlstm, embedding: 6, cells: 8, weight_norm: '", pattern, "'}"), 11)
             ->parameters())
      out += str(spec.name, spec.shape, ' ');
    return out;
  };
  EXPECT_EQ(names(""),
            "embedding.weight(11, 6) mlstm.0.weight_mx(8, 6) mlstm.0.weight_mh(8, 8) mlstm.0.weight_x(32, 6) "
            "mlstm.0.weight_m(32, 8) mlstm.0.bias(32) ");
  EXPECT_EQ(names(".*"),
            "embedding.weight(11, 6) mlstm.0.weight_mx_v(8, 6) mlstm.0.weight_mx_g(8) mlstm.0.weight_mh_v(8, 8) "
            "mlstm.0.weight_mh_g(8) mlstm.0.weight_x_v(32, 6) mlstm.0.weight_x_g(32) mlstm.0.weight_m_v(32, 8) "
            "mlstm.0.weight_m_g(32) mlstm.0.bias(32) ");
  EXPECT_EQ(names("_mh$"),
            "embedding.weight(11, 6) mlstm.0.weight_mx(8, 6) mlstm.0.weight_mh_v(8, 8) mlstm.0.weight_mh_g(8) "
            "mlstm.0.weight_x(32, 6) mlstm.0.weight_m(32, 8) mlstm.0.bias(32) ");
}

TEST(RecurrentModel, WeightNormErrors) {
  const std::string none = problem("{name: mlstm, weight_norm: '^lstm'}");
  EXPECT_NE(none.find("[mlstm] weight_norm: '^lstm'"), std::string::npos) << none;
  EXPECT_NE(none.find("mlstm.0.weight_mx, mlstm.0.weight_mh, mlstm.0.weight_x, mlstm.0.weight_m"), std::string::npos)
      << none;
  const std::string open = problem("{name: mlstm, weight_norm: '(('}");
  EXPECT_NE(open.find("model.weight_norm: '((' is no regular expression"), std::string::npos) << open;
  EXPECT_EQ(problem("{name: rhn, weight_norm: '.*', init: {kind: zeros}}"),
            "[rhn] weight_norm of rhn.0.weight_x: its rows start at zero");
}

// Without gradients w is made once and kept: until v or g changes.
TEST(RecurrentModel, WeightNormFollowsItsParameters) {
  Trial run("{name: mlstm, embedding: 6, cells: 8, weight_norm: '.*'}", DType::f32);
  const auto values = [&] {
    const Tensor t = run.features();
    return std::vector<float>(t.data<float>(), t.data<float>() + t.numel());
  };
  const std::vector<float> first = values();
  EXPECT_EQ(values(), first);
  for (const char* name : {"mlstm.0.weight_m_g", "mlstm.0.weight_m_v"}) {
    const std::vector<float> before = values();
    Var& v = run.params.at(name);
    for (int64_t i = 0; i < v.value().numel(); ++i) v.value().data<float>()[i] += 0.01f * static_cast<float>(i % 3);
    v.changed();
    const std::vector<float> after = values();
    EXPECT_NE(after, before) << name;
    Tape tape;
    run.ctx.tape = &tape;
    EXPECT_EQ(values(), after) << name;
    run.ctx.tape = nullptr;
  }
}

// With dropout and several layers, in every precision: gradients, loss and state are the plain model's, bit for bit.
TEST(RecurrentModel, CheckpointedIsPlain) {
  for (const std::string model : kModels) {
    for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
      const std::string keys = str("{", model, ", dropout: 0.3, segment: 3, weight_norm: '.*weight.*', checkpoint: ");
      EXPECT_EQ(Trial(keys + "true}", compute).step(), Trial(keys + "false}", compute).step()) << model;
    }
  }
}

// A whole step over a large vocabulary without anything of the tables' size but the tables themselves.

TEST(RowSparse, AStepNeverHoldsAGradientOfATablesSize) {
  constexpr int64_t kWords = 50'000, kWidth = 32, kTokens = 40;
  for (const char* optimizer : {"{name: sgd, lr: 0.1}", "{name: adagrad, lr: 0.1}", "{name: adam, lr: 0.1}"}) {
    Context ctx;
    Tape tape;
    ParameterStore params;
    const Node loss_config = parse_yaml("{name: sampled_softmax, samples: 50, bias: true}", "test");
    const std::unique_ptr<Loss> loss = make_loss(loss_config, "loss", {kWords, kWidth, nullptr});
    params.add(ctx, {"embedding.weight", {kWords, kWidth}, {}, true}, RandomKey(1));
    for (const ParameterSpec& spec : loss->parameters()) params.add(ctx, spec, RandomKey(1));
    const std::unique_ptr<Optimizer> update = make_optimizer(parse_yaml(optimizer, "test"), "optimizer");
    Tensor ids = ctx.empty({kTokens}, DType::i32);
    for (int64_t i = 0; i < kTokens; ++i) ids.data<int32_t>()[i] = static_cast<int32_t>(i * 1237 % kWords);
    const int64_t table = params.at("embedding.weight").value().bytes();
    for (int64_t step = 1; step <= 3; ++step) {
      ctx.tape = &tape;
      const Var h = embedding(ctx, params.at("embedding.weight"), ids);
      tape.backward(
          ctx,
          loss->forward(ctx, params, h, ids, {.sampler_key = RandomKey(9).fold(static_cast<uint64_t>(step))}).loss);
      ctx.tape = nullptr;
      for (const std::string& name : params.names()) params.at(name).grad().coalesce(ctx);
      const ClipResult measured = measure_gradients(ctx, params, {{ParamPattern(".*"), 0.1}});
      EXPECT_GT(measured.norm, 0);
      for (const std::string& name : params.names()) {
        EXPECT_TRUE(params.at(name).grad().sparse()) << name;
        update->update(ctx, params.at(name), 0.1, step, measured.factor(name));
      }
      params.clear_gradients();
    }
    const MemoryStats m = ctx.allocator->stats();
    const auto peak = [&](MemClass c) { return m.peak[static_cast<size_t>(c)]; };
    EXPECT_LT(peak(MemClass::gradients) + peak(MemClass::activations) + peak(MemClass::other), table / 4) << optimizer;
  }
}

}  // namespace
}  // namespace lmx
