// The two-stage softmax against an independent dense reference in f64 with the same sets of words, and what it is equal
// to where the sets are all words.
#include <cmath>
#include <set>

#include "ops/gradcheck.h"
#include "ops/messages.h"

namespace lmx::testing {
namespace {

using namespace lmx_test;

constexpr int64_t kTargets = 9, kHidden = 5, kTable = 23;

struct DenseStages {
  double loss = 0;
  std::vector<double> h = std::vector<double>(kTargets * kHidden), w = std::vector<double>(kTable * kHidden),
                      b = std::vector<double>(kTable);
};

// By the definitions: the softmax over V_f, then every gradient word by word where the rules allow it.
DenseStages reference(const std::vector<Var>& v, const std::vector<int32_t>& targets, const TwoStageRows& rows,
                      bool bias, bool weighted) {
  const double *h = v[0].value().data<double>(), *w = v[1].value().data<double>(), *b = v[2].value().data<double>();
  const std::set<int32_t> all(rows.ids.begin(), rows.ids.begin() + rows.trained);
  DenseStages out;
  for (int64_t i = 0; i < kTargets; ++i) {
    std::vector<double> logit(kTable, 0);
    double z = 0;
    for (const int32_t k : rows.ids) {
      logit[static_cast<size_t>(k)] = bias ? b[k] : 0;
      for (int64_t d = 0; d < kHidden; ++d) logit[static_cast<size_t>(k)] += h[i * kHidden + d] * w[k * kHidden + d];
      z += std::exp(logit[static_cast<size_t>(k)]);
    }
    const auto t = targets[static_cast<size_t>(i)];
    const double weight = weighted ? 0.5 * static_cast<double>(i) : 1;
    out.loss += weight * (std::log(z) - logit[static_cast<size_t>(t)]);
    for (const int32_t k : rows.ids) {
      const double g = weight * (std::exp(logit[static_cast<size_t>(k)]) / z - (k == t ? 1 : 0));
      for (int64_t d = 0; d < kHidden; ++d) {
        if (all.contains(k) || rows.dh_forward) out.h[static_cast<size_t>(i * kHidden + d)] += g * w[k * kHidden + d];
        if (all.contains(k)) out.w[static_cast<size_t>(k * kHidden + d)] += g * h[i * kHidden + d];
      }
      if (all.contains(k)) out.b[static_cast<size_t>(k)] += g;
    }
  }
  return out;
}

double value_of(const Var& loss) {
  return loss.value().dtype() == DType::f64 ? *loss.value().data<double>()
                                            : static_cast<double>(*loss.value().data<float>());
}

void check(const TwoStageRows& rows, bool bias, bool weighted, DType type) {
  const std::vector<Var> exact{f64_leaf({kTargets, kHidden}, 1, "h"), f64_leaf({kTable, kHidden}, 2, "w"),
                               f64_leaf({kTable}, 3, "b")};
  std::vector<int32_t> targets;  // repeated ones among them
  std::vector<float> row_weights;
  for (int64_t i = 0; i < kTargets; ++i) {
    targets.push_back(rows.ids[static_cast<size_t>(i * i % rows.trained)]);
    row_weights.push_back(0.5f * static_cast<float>(i));
  }
  const Tensor weights = weighted ? Tensor::from<float>(Allocator::cpu(), {kTargets}, row_weights) : Tensor();
  std::vector<Var> v;
  for (const Var& e : exact) v.emplace_back(e.value().to(type), true, e.name());
  Tape tape;
  Context ctx;
  ctx.compute = type;
  ctx.tape = &tape;
  const Var loss = two_stage_softmax_loss(ctx, {v[0], v[1], bias ? v[2] : Var(), ids_tensor(targets), weights}, rows);
  const double value = value_of(loss);
  tape.backward(ctx, loss);
  const DenseStages r = reference(exact, targets, rows, bias, weighted);
  const double tolerance = type == DType::f64 ? 1e-12 : 2e-5;
  EXPECT_NEAR(value, r.loss, tolerance * 10);
  expect_near(dense_gradient(v[0]), r.h, tolerance, "dh");
  expect_near(dense_gradient(v[1]), r.w, tolerance, "dw");
  expect_near(dense_gradient(v[2]), bias ? r.b : std::vector<double>(kTable), tolerance, "db");
  ASSERT_EQ(v[1].grad().pieces.size(), 1u);
  EXPECT_FALSE(v[1].grad().dense.defined());
  EXPECT_EQ(v[1].grad().pieces[0].indices, std::vector<int32_t>(rows.ids.begin(), rows.ids.begin() + rows.trained));
  EXPECT_TRUE(v[1].grad().pieces[0].unique);
}

TEST(TwoStageSoftmax, MatchesTheDenseReference) {
  std::vector<TwoStageRows> sets{{{0, 1, 2, 5, 9, 22}, 6, false},            // mu = 0
                                 {{0, 1, 2, 5, 9, 22, 3, 4, 17}, 6, false},  // noise before and between
                                 {{4, 0, 1, 2, 3, 22}, 1, false},            // one word takes gradients
                                 {{}, kTable, false}};                       // p = 100
  for (int32_t k = 0; k < kTable; ++k) sets.back().ids.push_back(k);
  for (TwoStageRows rows : sets) {
    for (int options = 0; options < 8; ++options) {
      rows.dh_forward = (options & 1) != 0;
      SCOPED_TRACE(::testing::Message() << rows.trained << " of " << rows.ids.size() << " options " << options);
      for (const DType type : {DType::f64, DType::f32}) check(rows, (options & 2) != 0, (options & 4) != 0, type);
    }
  }
}

TEST(TwoStageSoftmax, OverAllWordsIsTheFullSoftmax) {
  const std::vector<Var> two{f64_leaf({kTargets, kHidden}, 1, "h"), f64_leaf({kTable, kHidden}, 2, "w"),
                             f64_leaf({kTable}, 3, "b")},
      full{f64_leaf({kTargets, kHidden}, 1, "h"), f64_leaf({kTable, kHidden}, 2, "w"), f64_leaf({kTable}, 3, "b")};
  TwoStageRows all{{}, kTable, false};
  for (int32_t k = 0; k < kTable; ++k) all.ids.push_back(k);
  const Tensor targets = ids_tensor({0, 1, 2, 3, 22, 22, 0, 7, 7});
  Tape tape;
  Context ctx = f64_context(&tape);
  const Var a = two_stage_softmax_loss(ctx, {two[0], two[1], two[2], targets}, all);
  EXPECT_EQ(value_of(a), value_of(full_softmax_loss(ctx, {full[0], full[1], full[2], targets}).loss));
  const Var b = full_softmax_loss(ctx, {full[0], full[1], full[2], targets}).loss;
  tape.backward(ctx, b, 0.5);
  const Var again = two_stage_softmax_loss(ctx, {two[0], two[1], two[2], targets}, all);
  tape.backward(ctx, again, 0.5);
  for (size_t i = 0; i < 3; ++i) expect_near(dense_gradient(two[i]), dense_gradient(full[i]), 1e-13, "gradient");
}

// Many rows, so that the logits take several blocks: 40,000 rows of 300 logits in 8 bytes are 96 MB.
TEST(TwoStageSoftmax, BlocksAddUp) {
  constexpr int64_t kRows = 40'000, kWords = 300, kWidth = 2;
  TwoStageRows rows{{}, 200, true};
  for (int32_t k = 0; k < kWords; ++k) rows.ids.push_back(k);
  const Var w = f64_leaf({kWords, kWidth}, 2, "w"), whole = f64_leaf({kRows, kWidth}, 1, "h");
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < kRows; ++i) targets.push_back(static_cast<int32_t>(i % 200));
  const auto run = [&](const Var& h, const std::vector<int32_t>& t) {
    Tape tape;
    Context ctx = f64_context(&tape);
    const Var loss = two_stage_softmax_loss(ctx, {h, w, Var(), ids_tensor(t)}, rows);
    const double value = value_of(loss);
    tape.backward(ctx, loss);
    return value;
  };
  const double value = run(whole, targets);
  const std::vector<double> dw = dense_gradient(w);
  w.grad().clear();
  double parts = 0;
  for (int64_t first = 0; first < kRows; first += 8'000) {
    const Var part(whole.value().slice(first, first + 8'000), true, "part");
    parts += run(part, {targets.begin() + first, targets.begin() + first + 8'000});
    const std::vector<double> all = dense_gradient(whole), own = dense_gradient(part);
    expect_near(own, {all.begin() + first * kWidth, all.begin() + (first + 8'000) * kWidth}, 1e-12, "dh");
  }
  EXPECT_NEAR(value, parts, 1e-9 * value);
  expect_near(dense_gradient(w), dw, 1e-8, "dw");
}

TEST(TwoStageSoftmax, HalfPrecisionStaysNear) {
  TwoStageRows rows{{0, 3, 7, 1, 2}, 3, true};
  const Tensor targets = ids_tensor({0, 3, 7, 7, 0, 3, 0, 0, 7});
  std::vector<std::vector<double>> gradients;
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<Var> v;
    for (const Var& e : {f64_leaf({kTargets, kHidden}, 1, "h"), f64_leaf({kTable, kHidden}, 2, "w")})
      v.emplace_back(e.value().to(DType::f32), true, e.name());
    Tape tape;
    Context ctx;
    ctx.compute = compute;
    ctx.tape = &tape;
    tape.backward(ctx, two_stage_softmax_loss(ctx, {v[0], v[1], Var(), targets}, rows));
    gradients.push_back(dense_gradient(v[0]));
  }
  expect_near(gradients[1], gradients[0], 0.05, "bf16");
  expect_near(gradients[2], gradients[0], 0.01, "f16");
}

TEST(TwoStageSoftmax, LargeLogitsStayFinite) {
  Context ctx;
  Tape tape;
  ctx.tape = &tape;
  Tensor x = Tensor::empty(ctx.allocator, {6, 4}, DType::f32);
  for (float& e : x.values<float>()) e = 100;
  const Var h(x.slice(0, 2).clone(), true, "h"), w(x, true, "w");
  const Var loss = two_stage_softmax_loss(ctx, {h, w, Var(), ids_tensor({1, 2})}, {{1, 2, 5}, 2, false});
  EXPECT_NEAR(value_of(loss), 2 * std::log(3.0), 1e-5);
  tape.backward(ctx, loss);
  for (const double g : dense_gradient(w)) EXPECT_TRUE(std::isfinite(g));
}

TEST(TwoStageSoftmax, NoTargetsIsZeroWithoutGradients) {
  Tape tape;
  Context ctx = f64_context(&tape);
  const Var w = f64_leaf({4, 3}, 2, "w");
  const Var loss = two_stage_softmax_loss(ctx, {f64_leaf({0, 3}, 1, "h"), w, Var(), ids_tensor({})}, {});
  EXPECT_EQ(value_of(loss), 0);
  tape.backward(ctx, loss);
  EXPECT_TRUE(w.grad().empty());
}

std::string error_of(const std::vector<int32_t>& targets, const TwoStageRows& rows) {
  return message([&](Context& ctx) {
    two_stage_softmax_loss(ctx, {f64_leaf({1, 3}, 1, "h"), f64_leaf({4, 3}, 2, "w"), Var(), ids_tensor(targets)}, rows);
  });
}

TEST(TwoStageSoftmax, Errors) {
  EXPECT_EQ(error_of({2}, {{0, 3, 2}, 2, false}),
            "[two_stage_softmax_loss] target 0 = 2 is not among the 2 words that take gradients");
  EXPECT_THAT(error_of({0}, {{0, 4}, 2, false}), Names("word 1 = 4", "w (4, 3)", "[0, 4)"));
  EXPECT_THAT(error_of({0}, {{0, 3, 2}, 3, false}), Names("word 2 = 2"));
  EXPECT_THAT(error_of({0}, {{0, 1, 1}, 3, false}), Names("word 2 = 1"));
  EXPECT_EQ(error_of({0}, {{0, 2, 1, 2}, 2, false}), "[two_stage_softmax_loss] word 2 is in both parts");
  EXPECT_THAT(error_of({4}, {{0, 1}, 2, false}), Names("[two_stage_softmax_loss]"));
  EXPECT_THAT(error_of({0, 1}, {{0, 1}, 2, false}), Names("targets (2)", "(1)"));
}

}  // namespace
}  // namespace lmx::testing
