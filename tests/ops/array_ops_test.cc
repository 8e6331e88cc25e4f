// Every op of lmx/array_ops.h and lmx/ops.h against central differences in f64 and against PyTorch in f32.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "device.h"
#include "lmx/parallel.h"
#include "ops/array_op_cases.h"
#include "runfiles/checkpoint.h"
#include "test.h"

namespace lmx::testing {
namespace {

// sum(y * fixed random weights): the gradient differs from element to element.
Var weighted(Context& ctx, const Var& y, const Tensor& weights) {
  return sum(ctx, multiply(ctx, y, Var(weights)));
}

Tensor input(const OpCase& c, size_t i) {
  Tensor t = f64_tensor(c.inputs[i], i + 1);
  if (c.positive) {
    for (double& x : t.values<double>()) x = 0.5 + std::abs(x);
  }
  return t;
}

void check_all_cases(const GradcheckOptions& options) {
  const int before = num_threads();
  set_num_threads(1);  // the operands are too small to share
  for (const OpCase& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Vars leaves;
    for (size_t i = 0; i < c.inputs.size(); ++i) leaves.emplace_back(input(c, i), true, str("input ", i));
    gradcheck(
        [&](Context& ctx, const Vars& v) {
          const Var y = c.result(ctx, v);
          return weighted(ctx, y, ctx.upload(f64_tensor(y.shape(), 99)));
        },
        leaves, options);
  }
  set_num_threads(before);
}

TEST(ArrayOps, GradientsEqualDifferences) {
  check_all_cases({});
}

TEST(DeviceArrayOps, GradientsEqualDifferences) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  check_all_cases({.per_leaf = 6, .context = lmx_test::context_on(Device::Kind::cuda, DType::f64)});
}

// The golden file holds, for each case, inputs "NAME.x0", ..., the result "NAME.y", the loss's weights "NAME.w" and
// PyTorch's gradients "NAME.d0", ... of sum(y w).
TEST(ArrayOps, ValuesAndGradientsEqualPyTorchs) {
  const StateDict golden =
      load_safetensors(lmx_test::source_path("/tests/ops/golden/array_ops.safetensors"), Allocator::cpu());
  size_t compared = 0;
  for (const OpCase& c : all_cases()) {
    SCOPED_TRACE(c.name);
    if (c.name == "slice_empty") continue;
    Tape tape;
    Context ctx;
    ctx.tape = &tape;
    Vars leaves;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      ASSERT_TRUE(golden.contains(str(c.name, ".x", i)));
      leaves.emplace_back(golden.at(str(c.name, ".x", i)).clone(), true, str("input ", i));
      ASSERT_EQ(leaves.back().shape(), c.inputs[i]);
    }
    const Var y = c.result(ctx, leaves);
    EXPECT_LE(difference(y.value().values<float>(), golden.at(c.name + ".y").values<float>()), 2e-6);
    tape.backward(ctx, weighted(ctx, y, golden.at(c.name + ".w").reshape(y.shape())));
    for (size_t i = 0; i < leaves.size(); ++i) {
      const std::vector<double> gradient = dense_gradient(leaves[i]);
      EXPECT_LE(difference(gradient, golden.at(str(c.name, ".d", i)).values<float>()), 5e-6) << "input " << i;
    }
    ++compared;
  }
  EXPECT_GT(compared, 100u);
  EXPECT_EQ(std::count_if(golden.begin(), golden.end(), [](const auto& t) { return t.first.ends_with(".y"); }),
            static_cast<std::ptrdiff_t>(compared));
}

TEST(ArrayOps, EveryOpOfTheHeaderHasACase) {
  std::set<std::string> declared, tested;
  const std::string content = lmx_test::read_file(lmx_test::source_path("/core/include/lmx/array_ops.h"));
  for (const lmx_test::Match& found : lmx_test::all_matches(content, "LMX_API (?:Var|std::vector<Var>) (\\w+)\\("))
    declared.insert(found[1]);
  for (const OpCase& c : all_cases()) tested.insert(c.op);
  tested.insert("stop_gradient");  // differences ignore the stop, so it has a separate test
  EXPECT_GE(declared.size(), 25u);
  for (const std::string& op : declared) EXPECT_TRUE(tested.contains(op)) << op << " has no case";
}

TEST(ArrayOps, NoGradientFlowsThroughStopGradient) {
  Tape tape;
  Context ctx = f64_context(&tape);
  const Var x = f64_leaf({2, 3}, 1, "x");
  const Var y = multiply(ctx, x, stop_gradient(ctx, x));  // x^2 whose slope is x, not 2 x
  tape.backward(ctx, sum(ctx, y));
  const std::vector<double> gradient = dense_gradient(x);
  for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], x.value().data<double>()[i]);
}

// If a place is repeated, the last element stays, and it alone takes the gradient.
TEST(ArrayOps, ScatterKeepsTheLastOfRepeatedElements) {
  const Tensor index = i32_tensor({1, 3}, {1, 1, 0});
  const auto result = [&](Context& c, const Vars& v) { return scatter(c, v[0], 1, index, v[1]); };
  const Vars leaves{f64_leaf({1, 4}, 1, "x"), f64_leaf({1, 3}, 2, "source")};
  Context ctx = f64_context();
  const Tensor y = result(ctx, leaves).value();
  EXPECT_EQ(y.data<double>()[1], leaves[1].value().data<double>()[1]);
  EXPECT_EQ(y.data<double>()[0], leaves[1].value().data<double>()[2]);
  EXPECT_EQ(y.data<double>()[3], leaves[0].value().data<double>()[3]);
  gradcheck([&](Context& c, const Vars& v) { return weighted(c, result(c, v), f64_tensor({1, 4}, 9)); }, leaves);
}

TEST(ArrayOps, MaxTakesTheFirstOfEqualsAndPassesNan) {
  Tape tape;
  Context ctx;
  ctx.tape = &tape;
  const std::vector<float> values{1, 3, 3, 0, NAN, 5};
  const Var x(Tensor::from<float>(Allocator::cpu(), {2, 3}, std::span<const float>(values)), true, "x");
  const Var y = max(ctx, x, 1);
  EXPECT_EQ(y.value().data<float>()[0], 3);
  EXPECT_TRUE(std::isnan(y.value().data<float>()[1]));
  tape.backward(ctx, sum(ctx, slice(ctx, y, 0, 0, 1)));
  EXPECT_THAT(dense_gradient(x), ::testing::ElementsAre(0, 1, 0, 0, 0, 0));
}

// A query that sees no key has the result 0 and gives no gradient.
TEST(ArrayOps, AttentionHidesKeysByBias) {
  Tape tape;
  Context ctx = f64_context(&tape);
  const Segments s = Segments::of(std::vector<int64_t>{3});
  Tensor bias = Tensor::zeros(Allocator::cpu(), {3, 3}, DType::f64);
  for (const int hidden : {1, 3, 4, 5}) bias.data<double>()[hidden] = -INFINITY;
  AttentionOptions options;
  options.heads = 2;
  options.bias = Var(bias);
  const Var q = f64_leaf({3, 4}, 1, "q"), k = f64_leaf({3, 4}, 2, "k"), v = f64_leaf({3, 4}, 3, "v");
  const Var y = attention(ctx, {q, k, v, s, s}, options);
  for (int i = 4; i < 8; ++i) EXPECT_EQ(y.value().data<double>()[i], 0);
  tape.backward(ctx, weighted(ctx, slice(ctx, y, 0, 0, 2), f64_tensor({2, 4}, 9)));
  const std::vector<double> dq = dense_gradient(q), dv = dense_gradient(v);
  for (size_t i = 4; i < 12; ++i) EXPECT_EQ(dq[i], 0);  // rows 1 (sees nothing) and 2 (not in the loss)
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(dv[i], 0);   // key 1, which is hidden from query 0
  EXPECT_NE(dv[0], 0);
}

TEST(ArrayOps, HalfPrecisionsRoundInProductsAlone) {
  const Tensor a = f64_tensor({2, 3, 64}, 1).to(DType::f32), b = f64_tensor({2, 64, 5}, 2).to(DType::f32);
  const auto product = [&](DType compute) {
    Context ctx;
    ctx.compute = compute;
    return matmul(ctx, Var(a), Var(b)).value();
  };
  const Tensor exact = product(DType::f32);
  for (const auto& [type, limit] : std::vector<std::pair<DType, double>>{{DType::bf16, 2e-2}, {DType::f16, 3e-3}}) {
    const double error = difference(product(type).values<float>(), exact.values<float>());
    EXPECT_LE(error, limit);
    EXPECT_GT(error, limit / 1000);
  }
  Context ctx;
  ctx.compute = DType::bf16;
  EXPECT_EQ(sum(ctx, Var(a), {2}).value().dtype(), DType::f32);
}

// Without products: oneDNN divides the inner dimension between threads on CPUs without AVX-512.
TEST(ArrayOps, SameBitsForAnyNumberOfThreads) {
  const auto results = [](int threads) {
    set_num_threads(threads);
    Tape tape;
    Context ctx;
    ctx.tape = &tape;
    const Var x(f64_tensor({3, 130, 170}, 1).to(DType::f32), true, "x"),
        b(f64_tensor({170}, 2).to(DType::f32), true, "b");
    const Var y = softmax(ctx, gelu(ctx, multiply(ctx, x, b)), 1);
    const Var z = transpose(ctx, y, 1, 2);
    tape.backward(ctx, sum(ctx, multiply(ctx, mean(ctx, z, {0, 1}), Var(f64_tensor({130}, 3).to(DType::f32)))));
    std::vector<double> all = dense_gradient(x);
    for (const double g : dense_gradient(b)) all.push_back(g);
    return all;
  };
  const int before = num_threads();
  const std::vector<double> one = results(1), three = results(3);
  set_num_threads(before);
  EXPECT_EQ(one, three);
}

}  // namespace
}  // namespace lmx::testing
