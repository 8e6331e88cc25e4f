// A whole step over a large vocabulary without anything of the tables' size but the tables themselves.
#include <gtest/gtest.h>

#include "lmx/loss.h"
#include "lmx/ops.h"
#include "lmx/optim.h"

namespace lmx {
namespace {

TEST(RowSparse, AStepNeverHoldsAGradientOfATablesSize) {
  constexpr int64_t kVocab = 50'000, kWidth = 32, kTokens = 40;
  for (const char* optimizer : {"{name: sgd, lr: 0.1}", "{name: adagrad, lr: 0.1}", "{name: adam, lr: 0.1}"}) {
    Context ctx;
    Tape tape;
    ParameterStore params;
    const Node loss_config = parse_yaml("{name: sampled_softmax, samples: 50, bias: true}", "test");
    const std::unique_ptr<Loss> loss = make_loss(loss_config, "loss", {kVocab, kWidth, nullptr});
    params.add(ctx, {"embedding.weight", {kVocab, kWidth}, {}, true}, RandomKey(1));
    for (const ParameterSpec& spec : loss->parameters()) params.add(ctx, spec, RandomKey(1));
    const std::unique_ptr<Optimizer> update = make_optimizer(parse_yaml(optimizer, "test"), "optimizer");
    Tensor ids = ctx.empty({kTokens}, DType::i32);
    for (int64_t i = 0; i < kTokens; ++i) ids.data<int32_t>()[i] = static_cast<int32_t>(i * 1237 % kVocab);
    const int64_t table = params.at("embedding.weight").value().bytes();
    for (int64_t step = 1; step <= 3; ++step) {
      ctx.tape = &tape;
      const Var h = embedding(ctx, params.at("embedding.weight"), ids);
      tape.backward(
          ctx,
          loss->forward(ctx, params, h, ids, {.sampler_key = RandomKey(9).fold(static_cast<uint64_t>(step))}).loss);
      ctx.tape = nullptr;
      for (const std::string& name : params.names()) params.at(name).grad().coalesce(ctx);
      EXPECT_GT(clip_gradients(ctx, params, {{ParamPattern(".*"), 0.1}}).norm, 0);
      for (const std::string& name : params.names()) {
        EXPECT_TRUE(params.at(name).grad().sparse()) << name;
        update->update(ctx, params.at(name), 0.1, step);
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
