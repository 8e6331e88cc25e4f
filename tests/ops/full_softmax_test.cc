// The blocked full softmax against cross_entropy(linear(...)), in one block and in many, and in bf16 and f16.
#include <gtest/gtest.h>

#include <cmath>

#include "lmx/error.h"
#include "ops/gradcheck.h"

namespace lmx::testing {
namespace {

struct Size {
  int64_t n, d, v;
};

struct Outcome {
  double loss;
  std::vector<double> h, w, b;
};

Var leaf(Shape s, uint64_t seed, DType type, const char* name) {
  return Var(f64_tensor(s, seed, 0.5).to(type), true, name);
}

std::vector<int32_t> some_targets(const Size& z) {
  std::vector<int32_t> t;
  for (int64_t i = 0; i < z.n; ++i) t.push_back(static_cast<int32_t>((7919 * i + 3) % z.v));
  return t;
}

Outcome outcome(const Size& z, DType type, DType compute, bool blocked, double seed) {
  const Var h = leaf({z.n, z.d}, 1, type, "h"), w = leaf({z.v, z.d}, 2, type, "w"), b = leaf({z.v}, 3, type, "b");
  Tape tape;
  Context ctx;
  ctx.compute = compute;
  ctx.tape = &tape;
  const Tensor targets = ids_tensor(some_targets(z));
  const Var loss = blocked ? full_softmax_loss(ctx, {h, w, b, targets}).loss
                           : cross_entropy(ctx, linear(ctx, h, w, b), targets, Tensor());
  tape.backward(ctx, loss, seed);
  const double value =
      type == DType::f64 ? *loss.value().data<double>() : static_cast<double>(*loss.value().data<float>());
  return {value, dense_gradient(h), dense_gradient(w), dense_gradient(b)};
}

// The largest logit is subtracted before the exponentials, wherever in the row it is: otherwise they overflow.
TEST(FullSoftmax, AHugeLogitMayBeAnywhere) {
  constexpr int64_t kWords = 5000;
  for (const DType type : {DType::f64, DType::f32})
    for (const int32_t huge : {0, 2047, 2048, 4999}) {
      std::vector<double> bias(kWords);
      bias[static_cast<size_t>(huge)] = 1e4;
      const Tensor zeros = f64_tensor({1, 2}, 1, 0).to(type), w = f64_tensor({kWords, 2}, 2, 0).to(type);
      const Tensor b = Tensor::from<double>(Allocator::cpu(), {kWords}, bias).to(type);
      for (const int32_t target : {huge, 1}) {
        Context ctx;
        ctx.compute = type;
        const Var loss = cross_entropy(ctx, linear(ctx, Var(zeros), Var(w), Var(b)), ids_tensor({target}), Tensor());
        const Var blocked = full_softmax_loss(ctx, {Var(zeros), Var(w), Var(b), ids_tensor({target})}).loss;
        EXPECT_NEAR(*loss.value().to(DType::f64).data<double>(), target == huge ? 0 : 1e4, 1e-2) << huge;
        EXPECT_NEAR(*blocked.value().to(DType::f64).data<double>(), target == huge ? 0 : 1e4, 1e-2) << huge;
      }
    }
}

TEST(FullSoftmax, EqualsCrossEntropy) {
  for (const Size& z : {Size{5, 4, 11}, Size{1, 3, 1}, Size{3, 2, 5000}}) {
    const Outcome a = outcome(z, DType::f64, DType::f64, true, 0.7), e = outcome(z, DType::f64, DType::f64, false, 0.7);
    EXPECT_NEAR(a.loss, e.loss, 1e-10 * std::abs(e.loss));
    EXPECT_LT(difference(a.h, e.h), 1e-12);
    EXPECT_LT(difference(a.w, e.w), 1e-12);
    EXPECT_LT(difference(a.b, e.b), 1e-12);
  }
}

// 200 rows of 100,000 logits are three blocks of 32 MB.
TEST(FullSoftmax, ManyBlocksEqualOne) {
  const Size z{200, 3, 100'000};
  const Outcome a = outcome(z, DType::f32, DType::f32, true, 1), e = outcome(z, DType::f32, DType::f32, false, 1);
  EXPECT_NEAR(a.loss, e.loss, 1e-6 * e.loss);
  EXPECT_LT(difference(a.h, e.h), 1e-4);
  EXPECT_LT(difference(a.w, e.w), 1e-4);
  EXPECT_LT(difference(a.b, e.b), 1e-4);
}

TEST(FullSoftmax, MemoryIsBoundedByABlock) {
  const Size z{400, 2, 100'000};  // all logits: 160 MB
  const Var h = leaf({z.n, z.d}, 1, DType::f32, "h"), w = leaf({z.v, z.d}, 2, DType::f32, "w");
  Tape tape;
  Context ctx;
  ctx.tape = &tape;
  ctx.allocator->trim();
  ctx.allocator->reset_peak();
  const int64_t before = ctx.allocator->stats().total;
  const Var loss = full_softmax_loss(ctx, {h, w, Var(), ids_tensor(some_targets(z))}).loss;
  tape.backward(ctx, loss);
  full_softmax_nll(ctx, h.value(), w.value(), Tensor(), ids_tensor(some_targets(z)));
  EXPECT_LT(ctx.allocator->stats().total_peak - before, 48 << 20);
}

TEST(FullSoftmax, HalfPrecisionsStayNear) {
  const Size z{16, 32, 3000};
  const Outcome e = outcome(z, DType::f32, DType::f32, true, 1.0 / 16);
  const Outcome bf16 = outcome(z, DType::f32, DType::bf16, true, 1.0 / 16),
                f16 = outcome(z, DType::f32, DType::f16, true, 1.0 / 16);
  EXPECT_NEAR(bf16.loss, e.loss, 1e-2 * e.loss);
  EXPECT_NEAR(f16.loss, e.loss, 2e-3 * e.loss);
  EXPECT_LT(difference(bf16.h, e.h), 3e-2);
  EXPECT_LT(difference(bf16.w, e.w), 3e-2);
  EXPECT_LT(difference(f16.h, e.h), 4e-3);
  EXPECT_LT(difference(f16.w, e.w), 4e-3);
}

TEST(FullSoftmax, NllsAndLogitsAgreeWithTheLoss) {
  const Size z{9, 4, 50};
  const Tensor h = leaf({z.n, z.d}, 1, DType::f32, "h").value(), w = leaf({z.v, z.d}, 2, DType::f32, "w").value();
  const Tensor b = leaf({z.v}, 3, DType::f32, "b").value();
  const std::vector<int32_t> t = some_targets(z);
  Context ctx;
  const Tensor nll = full_softmax_nll(ctx, h, w, b, ids_tensor(t)), logits = full_softmax_logits(ctx, h, w, b);
  ASSERT_EQ(nll.shape(), (Shape{z.n}));
  ASSERT_EQ(logits.shape(), (Shape{z.n, z.v}));
  double sum = 0;
  for (int64_t i = 0; i < z.n; ++i) {
    double total = 0;
    for (int64_t k = 0; k < z.v; ++k) total += std::exp(static_cast<double>(logits.data<float>()[i * z.v + k]));
    const double exact =
        std::log(total) - static_cast<double>(logits.data<float>()[i * z.v + t[static_cast<size_t>(i)]]);
    EXPECT_NEAR(nll.data<float>()[i], exact, 1e-5);
    sum += exact;
  }
  EXPECT_NEAR(*full_softmax_loss(ctx, {Var(h), Var(w), Var(b), ids_tensor(t)}).loss.value().data<float>(), sum, 1e-4);
}

// PyTorch's cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum") of these logits is
// (1 - e) nll(target) + e / V sum_v nll(v); nats tell the likelihood alone.
TEST(FullSoftmax, SmoothedLoss) {
  const Size z{9, 4, 50};
  const Var h = leaf({z.n, z.d}, 1, DType::f64, "h"), w = leaf({z.v, z.d}, 2, DType::f64, "w");
  const Var b = leaf({z.v}, 3, DType::f64, "b");
  const std::vector<int32_t> t = some_targets(z);
  Context ctx = f64_context();
  const Tensor logits = full_softmax_logits(ctx, h.value(), w.value(), b.value());
  double smoothed = 0, plain = 0, fairseq = 0;
  for (int64_t i = 0; i < z.n; ++i) {
    const double* row = logits.data<double>() + i * z.v;
    double total = 0, mean = 0;
    for (int64_t k = 0; k < z.v; ++k) total += std::exp(row[k]);
    const double lse = std::log(total), nll = lse - row[t[static_cast<size_t>(i)]];
    for (int64_t k = 0; k < z.v; ++k) mean += (lse - row[k]) / static_cast<double>(z.v);
    plain += nll;
    smoothed += 0.9 * nll + 0.1 * mean;
    const double words = static_cast<double>(z.v), each = 0.1 / (words - 1);
    fairseq += (0.9 - each) * nll + each * words * mean;
  }
  const LossValue value = full_softmax_loss(ctx, {h, w, b, ids_tensor(t)}, 0.1);
  EXPECT_NEAR(*value.loss.value().data<double>(), smoothed, 1e-10 * smoothed);
  EXPECT_NEAR(ctx.read<double>(value.nats).value(), plain, 1e-10 * plain);
  // fairseq divides its share among the other V - 1 words, which is this loss with e V / (V - 1).
  const double others = 0.1 * static_cast<double>(z.v) / static_cast<double>(z.v - 1);
  const LossValue same = full_softmax_loss(ctx, {h, w, b, ids_tensor(t)}, others);
  EXPECT_NEAR(*same.loss.value().data<double>(), fairseq, 1e-10 * fairseq);
  for (const double wrong : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW(full_softmax_loss(ctx, {h, w, b, ids_tensor(t)}, wrong), UserError);
  }
}

TEST(FullSoftmax, NoRows) {
  Tape tape;
  Context ctx = f64_context(&tape);
  const Var w = f64_leaf({4, 3}, 2, "w");
  const Var loss = full_softmax_loss(ctx, {f64_leaf({0, 3}, 1, "h"), w, Var(), ids_tensor({})}).loss;
  EXPECT_EQ(*loss.value().data<double>(), 0);
  EXPECT_EQ(full_softmax_nll(ctx, f64_tensor({0, 3}, 1), w.value(), Tensor(), ids_tensor({})).numel(), 0);
}

}  // namespace
}  // namespace lmx::testing
