// Every differentiable op of lmx/ops.h against central differences: several rows, one row, size-1 dimensions.
#include "ops/gradcheck.h"

#include <gtest/gtest-spi.h>

#include <set>
#include <sstream>

#include "device.h"
#include "lmx/error.h"
#include "lmx/ops.h"
#include "test.h"

namespace lmx::testing {
namespace {

using namespace lmx_test;

struct Row {
  std::string op, label;
  ScalarFunction loss;
  std::vector<Var> leaves;
};

Tensor weights_tensor(const std::vector<float>& w) {
  return Tensor::from<float>(Allocator::cpu(), {static_cast<int64_t>(w.size())}, w);
}

// sum(y * fixed random weights): a loss whose gradient with respect to y differs from element to element.
Var weighted(Context& ctx, const Var& y, uint64_t seed = 99) {
  return sum(ctx, multiply(ctx, y, Var(ctx.upload(f64_tensor(y.shape(), seed)))));
}

using Vars = std::vector<Var>;

void add_pointwise(std::vector<Row>& rows, const Shape& s) {
  const std::string label = str(s);
  rows.push_back({"add",
                  label,
                  [](Context& c, const Vars& v) { return weighted(c, add(c, v[0], v[1])); },
                  {f64_leaf(s, 1, "a"), f64_leaf(s, 2, "b")}});
  rows.push_back({"add",
                  label + " with itself",
                  [](Context& c, const Vars& v) { return weighted(c, add(c, v[0], v[0])); },
                  {f64_leaf(s, 1, "a")}});
  rows.push_back({"multiply",
                  label,
                  [](Context& c, const Vars& v) { return weighted(c, multiply(c, v[0], v[1])); },
                  {f64_leaf(s, 1, "a"), f64_leaf(s, 2, "b")}});
  rows.push_back({"multiply",
                  label + " with itself",
                  [](Context& c, const Vars& v) { return weighted(c, multiply(c, v[0], v[0])); },
                  {f64_leaf(s, 1, "a")}});
  rows.push_back({"scale",
                  label,
                  [](Context& c, const Vars& v) { return weighted(c, scale(c, v[0], -1.7)); },
                  {f64_leaf(s, 1, "x")}});
  rows.push_back(
      {"tanh", label, [](Context& c, const Vars& v) { return weighted(c, tanh(c, v[0])); }, {f64_leaf(s, 1, "x")}});
  rows.push_back({"sigmoid",
                  label,
                  [](Context& c, const Vars& v) { return weighted(c, sigmoid(c, v[0])); },
                  {f64_leaf(s, 1, "x")}});
  rows.push_back(
      {"relu", label, [](Context& c, const Vars& v) { return weighted(c, relu(c, v[0])); }, {f64_leaf(s, 1, "x")}});
  rows.push_back(
      {"sum", label, [](Context& c, const Vars& v) { return sum(c, tanh(c, v[0])); }, {f64_leaf(s, 1, "x")}});
  rows.push_back({"reshape",
                  label,
                  [](Context& c, const Vars& v) {
                    return weighted(c, reshape(c, v[0], {-1, 1}));
                  },
                  {f64_leaf(s, 1, "x")}});
  rows.push_back({"dropout",
                  label,
                  [](Context& c, const Vars& v) { return weighted(c, dropout(c, v[0], 0.4, RandomKey(5))); },
                  {f64_leaf(s, 1, "x")}});
  std::vector<uint64_t> ids;
  for (int64_t r = 0; r < s.numel() / s[s.rank() - 1]; ++r) ids.push_back(RandomKey(6).bits(static_cast<uint64_t>(r)));
  rows.push_back({"dropout",
                  label + " by rows",
                  [ids](Context& c, const Vars& v) { return weighted(c, dropout(c, v[0], 0.4, RandomKey(5), ids)); },
                  {f64_leaf(s, 1, "x")}});
  const Shape last{s[s.rank() - 1]};
  rows.push_back({"layer_norm",
                  label,
                  [](Context& c, const Vars& v) { return weighted(c, layer_norm(c, v[0], v[1], v[2], 1e-2)); },
                  {f64_leaf(s, 1, "x"), f64_leaf(last, 2, "gain"), f64_leaf(last, 3, "bias")}});
}

void add_linear(std::vector<Row>& rows, const Shape& x, int64_t n) {
  const int64_t k = x[x.rank() - 1];
  const std::string label = str(x, " to ", n);
  rows.push_back({"linear",
                  label,
                  [](Context& c, const Vars& v) { return weighted(c, linear(c, v[0], v[1], v[2])); },
                  {f64_leaf(x, 1, "x"), f64_leaf({n, k}, 2, "w"), f64_leaf({n}, 3, "b")}});
  rows.push_back({"linear",
                  label + " without bias",
                  [](Context& c, const Vars& v) { return weighted(c, linear(c, v[0], v[1], Var())); },
                  {f64_leaf(x, 1, "x"), f64_leaf({n, k}, 2, "w")}});
  rows.push_back({"linear",
                  label + " twice through one weight",
                  [](Context& c, const Vars& v) {
                    return add(c, weighted(c, linear(c, v[0], v[1], v[2])),
                               weighted(c, linear(c, v[0], v[1], v[2]), 7));
                  },
                  {f64_leaf(x, 1, "x"), f64_leaf({n, k}, 2, "w"), f64_leaf({n}, 3, "b")}});
}

// Each activation with and without biases, and dropout of the units of relu.
void add_feed_forward(std::vector<Row>& rows, const Shape& x, int64_t units, int64_t n) {
  const int64_t k = x[x.rank() - 1];
  std::vector<uint64_t> ids;
  for (int64_t r = 0; r < x.numel() / k; ++r) ids.push_back(RandomKey(6).bits(static_cast<uint64_t>(r)));
  const auto add = [&](const std::string& name, Activation activation, double p) {
    const int64_t columns = activation == Activation::swiglu ? 2 * units : units;
    const Vars leaves{f64_leaf(x, 1, "x"), f64_leaf({columns, k}, 2, "up"), f64_leaf({n, units}, 3, "down"),
                      f64_leaf({columns}, 4, "up_bias"), f64_leaf({n}, 5, "down_bias")};
    const std::string label = str(name, ' ', x, " by ", units, " to ", n, ", p ", p);
    rows.push_back({"feed_forward", label,
                    [=](Context& c, const Vars& v) {
                      const FeedForwardWeights w{v[1], v[3], v[2], v[4], activation};
                      return weighted(c, feed_forward(c, v[0], w, p, RandomKey(5), ids));
                    },
                    leaves});
    rows.push_back({"feed_forward",
                    label + " without biases",
                    [=](Context& c, const Vars& v) {
                      const FeedForwardWeights w{v[1], {}, v[2], {}, activation};
                      return weighted(c, feed_forward(c, v[0], w, p, RandomKey(5), ids));
                    },
                    {leaves[0], leaves[1], leaves[2]}});
  };
  for (const double p : {0.0, 0.3}) add("relu", Activation::relu, p);
  add("gelu_tanh", Activation::gelu_tanh, 0);
  add("swiglu", Activation::swiglu, 0);
}

// Around a linear layer and around a feed-forward layer of x itself.
void add_residual(std::vector<Row>& rows, const Shape& x) {
  const int64_t d = x[x.rank() - 1];
  std::vector<uint64_t> ids;
  for (int64_t r = 0; r < x.numel() / d; ++r) ids.push_back(RandomKey(6).bits(static_cast<uint64_t>(r)));
  const Vars leaves{f64_leaf(x, 1, "x"),        f64_leaf({d, d}, 2, "w"), f64_leaf({d}, 3, "gain"),
                    f64_leaf({d}, 4, "bias"),   f64_leaf({d}, 5, "b"),    f64_leaf({d, d}, 6, "up"),
                    f64_leaf({d}, 7, "up_bias")};
  for (const double p : {0.0, 0.3}) {
    const auto of = [=](Context& c, const Vars& v, const Branch& branch) {
      return weighted(c, residual_norm(c, {v[0], branch, v[2], v[3], 1e-2}, p, RandomKey(5), ids));
    };
    rows.push_back({"residual_norm",
                    str(x, ", p ", p),
                    [=](Context& c, const Vars& v) { return of(c, v, linear_branch(c, v[0], v[1], v[4])); },
                    {leaves.begin(), leaves.begin() + 5}});
    rows.push_back({"residual_norm",
                    str(x, " without a bias of the branch, p ", p),
                    [=](Context& c, const Vars& v) { return of(c, v, linear_branch(c, v[0], v[1], {})); },
                    {leaves.begin(), leaves.begin() + 4}});
    rows.push_back({"residual_norm",
                    str(x, " with a bias that is still to be added, p ", p),
                    [=](Context& c, const Vars& v) {
                      return of(c, v, {linear(c, v[0], v[1], {}), v[4]});
                    },
                    {leaves.begin(), leaves.begin() + 5}});
    for (const bool rms : {false, true}) {
      rows.push_back({"residual_sum",
                      str(x, rms ? ", rms" : "", ", p ", p),
                      [=](Context& c, const Vars& v) {
                        const ResidualInputs in{v[0], linear_branch(c, v[0], v[1], v[4]), v[2], rms ? Var() : v[3]};
                        const NormedSum out = residual_sum(c, in, true, p, RandomKey(5), ids);
                        return add(c, weighted(c, out.sum), weighted(c, out.norm));
                      },
                      {leaves.begin(), leaves.begin() + 5}});
    }
    rows.push_back({"residual_norm", str(x, " of a feed-forward layer, p ", p),
                    [=](Context& c, const Vars& v) {
                      return of(c, v, feed_forward_branch(c, v[0], {v[5], v[6], v[1], v[4]}, p, RandomKey(7), ids));
                    },
                    leaves});
  }
}

void add_embedding(std::vector<Row>& rows, const Shape& ids_shape, int64_t v, int64_t d) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < ids_shape.numel(); ++i) ids.push_back(static_cast<int32_t>((i * i + 1) % v));  // some repeat
  const Tensor t = ids_tensor(ids).reshape(ids_shape);
  rows.push_back({"embedding",
                  str(ids_shape, " of ", v),
                  [t](Context& c, const Vars& x) { return weighted(c, embedding(c, x[0], t)); },
                  {f64_leaf({v, d}, 1, "table")}});
  rows.push_back({"embedding",
                  str(ids_shape, " of ", v, " beside a dense use"),
                  [t](Context& c, const Vars& x) {
                    return add(c, weighted(c, embedding(c, x[0], t)), weighted(c, tanh(c, x[0])));
                  },
                  {f64_leaf({v, d}, 1, "table")}});
}

struct SoftmaxSize {
  int64_t n, d, v;
};

void add_softmaxes(std::vector<Row>& rows, const SoftmaxSize& size, bool weighted_rows) {
  std::vector<int32_t> ids;
  std::vector<float> w;
  for (int64_t i = 0; i < size.n; ++i) {
    ids.push_back(static_cast<int32_t>((3 * i + 1) % size.v));
    w.push_back(i == 1 ? 0.0f : 0.25f * static_cast<float>(i + 1));
  }
  const Tensor targets = ids_tensor(ids), weights = weighted_rows ? weights_tensor(w) : Tensor();
  const std::string label = str('(', size.n, ", ", size.d, ") of ", size.v, weighted_rows ? " weighted" : "");
  const Vars leaves{f64_leaf({size.n, size.d}, 1, "h"), f64_leaf({size.v, size.d}, 2, "w"), f64_leaf({size.v}, 3, "b")};
  rows.push_back({"cross_entropy",
                  label,
                  [=](Context& c, const Vars& v) { return cross_entropy(c, v[0], targets, weights); },
                  {f64_leaf({size.n, size.v}, 4, "logits", 3.0)}});
  rows.push_back({"full_softmax_loss", label,
                  [=](Context& c, const Vars& v) {
                    return full_softmax_loss(c, {v[0], v[1], v[2], targets, weights}).loss;
                  },
                  leaves});
  rows.push_back({"full_softmax_loss",
                  label + " no bias",
                  [=](Context& c, const Vars& v) {
                    return full_softmax_loss(c, {v[0], v[1], Var(), targets, weights}).loss;
                  },
                  {leaves[0], leaves[1]}});
  rows.push_back({"full_softmax_loss", label + " smoothed",
                  [=](Context& c, const Vars& v) {
                    return full_softmax_loss(c, {v[0], v[1], v[2], targets, weights}, 0.3).loss;
                  },
                  leaves});
  Candidates candidates;
  for (int i = 0; i < 5; ++i) {
    candidates.ids.push_back(static_cast<int32_t>((2 * i + 1) % size.v));  // repeats, and hits targets
    candidates.log_expected.push_back(-0.3f * static_cast<float>(i));
  }
  for (int64_t i = 0; i < size.n; ++i) candidates.target_log_expected.push_back(0.2f * static_cast<float>(i) - 1);
  for (int options = 0; options < 4; ++options) {
    candidates.logq = (options & 1) != 0;
    candidates.remove_accidental_hits = (options & 2) != 0;
    const std::string text =
        str(label, candidates.logq ? " logq" : "", candidates.remove_accidental_hits ? " no hits" : "");
    rows.push_back({"sampled_softmax_loss", text,
                    [=](Context& c, const Vars& v) {
                      return sampled_softmax_loss(c, {v[0], v[1], v[2], targets, weights}, candidates);
                    },
                    leaves});
  }
  rows.push_back({"sampled_softmax_loss",
                  label + " no bias",
                  [=](Context& c, const Vars& v) {
                    return sampled_softmax_loss(c, {v[0], v[1], Var(), targets, weights}, candidates);
                  },
                  {leaves[0], leaves[1]}});
}

// With gradients for every word of the forward the two-stage softmax has the gradients of its own loss; what V_gamma
// changes is held to a reference in two_stage_softmax_test.cc.
void add_two_stage(std::vector<Row>& rows, const SoftmaxSize& size, bool weighted_rows) {
  std::vector<int32_t> targets;
  std::vector<float> w;
  TwoStageRows all;
  for (int64_t k = 0; k < size.v; k += k % 3 == 0 ? 1 : 2)
    all.ids.push_back(static_cast<int32_t>(k));  // 0 1 3 4 6 7 ...
  all.trained = static_cast<int64_t>(all.ids.size());
  for (int64_t i = 0; i < size.n; ++i) {
    targets.push_back(all.ids[static_cast<size_t>(2 * i) % all.ids.size()]);
    w.push_back(i == 1 ? 0.0f : 0.25f * static_cast<float>(i + 1));
  }
  const Tensor t = ids_tensor(targets), weights = weighted_rows ? weights_tensor(w) : Tensor();
  const std::string label = str('(', size.n, ", ", size.d, ") of ", size.v, weighted_rows ? " weighted" : "");
  const Vars leaves{f64_leaf({size.n, size.d}, 1, "h"), f64_leaf({size.v, size.d}, 2, "w"), f64_leaf({size.v}, 3, "b")};
  const auto loss = [=](Context& c, const Vars& v) {
    return two_stage_softmax_loss(c, {v[0], v[1], v.size() > 2 ? v[2] : Var(), t, weights}, all);
  };
  rows.push_back({"two_stage_softmax_loss", label, loss, leaves});
  rows.push_back({"two_stage_softmax_loss", label + " no bias", loss, {leaves[0], leaves[1]}});
  TwoStageRows noisy = all;  // the last words as V_gamma: their rows take no gradients, that of h is whole
  noisy.dh_forward = true;
  noisy.trained = std::max<int64_t>(1, all.trained / 2);
  const Tensor first = ids_tensor(std::vector<int32_t>(targets.size(), all.ids[0]));
  rows.push_back({"two_stage_softmax_loss",
                  label + " noise",
                  [=](Context& c, const Vars& v) {
                    const Var table(c.upload(leaves[1].value())), bias(c.upload(leaves[2].value()));
                    return two_stage_softmax_loss(c, {v[0], table, bias, first, weights}, noisy);
                  },
                  {leaves[0]}});
}

// Attention over packed sequences: apart, side by side in one variable, and one variable as queries, keys and values.
void add_attention(std::vector<Row>& rows, const std::vector<int64_t>& queries, const std::vector<int64_t>& keys,
                   int64_t heads, int64_t d) {
  const Segments sq = Segments::of(queries), sk = Segments::of(keys);
  const int64_t n = sq.begin.back(), m = sk.begin.back();
  std::vector<uint64_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(RandomKey(8).bits(static_cast<uint64_t>(i)));
  for (const double p : {0.0, 0.3}) {
    const std::string label = str(n, " over ", m, " rows, ", heads, " heads of ", d / heads, ", p ", p);
    const auto options = [ids, heads, p](bool causal) {
      AttentionOptions o;
      o.heads = heads;
      o.causal = causal;
      o.dropout = p;
      o.key = RandomKey(9);
      o.row_ids = ids;
      return o;
    };
    rows.push_back({"attention",
                    label,
                    [=](Context& c, const Vars& v) {
                      return weighted(c, attention(c, {v[0], v[1], v[2], sq, sk}, options(false)));
                    },
                    {f64_leaf({n, d}, 1, "q"), f64_leaf({m, d}, 2, "k"), f64_leaf({m, d}, 3, "v")}});
    rows.push_back(
        {"attention",
         label + ", k and v in one",
         [=](Context& c, const Vars& v) { return weighted(c, attention(c, v[0], v[1], sq, sk, options(false))); },
         {f64_leaf({n, d}, 1, "q"), f64_leaf({m, 2 * d}, 2, "kv")}});
    for (const bool causal : {false, true}) {
      rows.push_back({"attention",
                      label + (causal ? ", causal, all in one" : ", all in one"),
                      [=](Context& c, const Vars& v) { return weighted(c, attention(c, v[0], sq, options(causal))); },
                      {f64_leaf({n, 3 * d}, 1, "qkv")}});
      rows.push_back({"attention",
                      label + (causal ? ", causal, of itself" : ", of itself"),
                      [=](Context& c, const Vars& v) {
                        return weighted(c, attention(c, {v[0], v[0], v[0], sq, sq}, options(causal)));
                      },
                      {f64_leaf({n, d}, 1, "x")}});
    }
  }
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_attention(rows, {3, 1, 4}, {2, 5, 1}, 2, 6);
  add_attention(rows, {0, 2}, {3, 1}, 1, 1);
  add_attention(rows, {17}, {19}, 1, 2);
  for (const Shape& s : {Shape{3, 5}, Shape{2, 3, 4}, Shape{1, 6}, Shape{4, 1}, Shape{1, 1}}) add_pointwise(rows, s);
  add_linear(rows, {3, 5}, 4);
  add_linear(rows, {2, 3, 4}, 5);
  add_linear(rows, {1, 3}, 1);
  add_linear(rows, {1, 1, 1}, 2);
  add_feed_forward(rows, {3, 5}, 7, 4);
  add_feed_forward(rows, {2, 2, 3}, 64, 2);
  add_feed_forward(rows, {1, 1}, 1, 1);
  add_residual(rows, {3, 5});
  add_residual(rows, {2, 2, 3});
  add_embedding(rows, {5}, 4, 3);
  add_embedding(rows, {2, 3}, 5, 1);
  add_embedding(rows, {1, 1}, 1, 2);
  for (const bool w : {false, true}) {
    add_softmaxes(rows, {4, 3, 7}, w);
    add_softmaxes(rows, {1, 5, 4}, w);
    add_softmaxes(rows, {3, 1, 2}, w);
    add_softmaxes(rows, {2, 2, 1}, w);
    for (const SoftmaxSize& size : {SoftmaxSize{4, 3, 7}, {1, 5, 4}, {3, 1, 2}, {2, 2, 1}})
      add_two_stage(rows, size, w);
  }
  return rows;
}

TEST(Gradcheck, EveryRow) {
  for (const Row& row : table()) {
    SCOPED_TRACE(str(row.op, ' ', row.label));
    gradcheck(row.loss, row.leaves);
  }
}

// With fewer elements of each leaf, since the device may be emulated.
TEST(DeviceGradcheck, EveryRow) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  GradcheckOptions options{.per_leaf = 6, .context = lmx_test::context_on(Device::Kind::cuda, DType::f64)};
  for (const Row& row : table()) {
    SCOPED_TRACE(str(row.op, ' ', row.label));
    gradcheck(row.loss, row.leaves, options);
  }
}

TEST(Gradcheck, EveryOpOfTheHeaderHasARow) {
  const std::string header = lmx_test::read_file(lmx_test::source_path("/core/include/lmx/ops.h"));
  std::set<std::string> declared, tested;
  for (const lmx_test::Match& found : lmx_test::all_matches(header, "LMX_API (?:Var|LossValue|NormedSum) (\\w+)\\("))
    declared.insert(found[1]);
  for (const Row& row : table()) tested.insert(row.op);
  EXPECT_GE(declared.size(), 14u);
  // Checked in weight_norm_test.cc, in array_op_cases.h, and with the cells of tests/models.
  tested.insert({"weight_norm", "rope", "sequence_layer"});
  EXPECT_EQ(declared, tested);
}

TEST(Gradcheck, InputsWithoutGradientsGetNone) {
  const Tensor targets = ids_tensor({0, 2});
  gradcheck(
      [&](Context& c, const Vars& v) {
        return full_softmax_loss(c, {v[0], v[1], v[2], targets}).loss;
      },
      {f64_leaf({2, 3}, 1, "h"), Var(f64_tensor({4, 3}, 2), false, "w"), Var(f64_tensor({4}, 3), false, "b")});
  gradcheck([&](Context& c, const Vars& v) { return sum(c, linear(c, v[0], v[1], v[2])); },
            {Var(f64_tensor({2, 3}, 1), false, "x"), f64_leaf({4, 3}, 2, "w"), Var(f64_tensor({4}, 3), false, "b")});
}

// The checker itself must notice a wrong gradient: here x^2 / 2 claims the slope 2 x.
TEST(Gradcheck, NoticesAWrongGradient) {
  const auto broken = [](Context& c, const Vars& v) {
    Var y(scale(c, multiply(c, v[0], v[0]), 0.5).value());
    if (c.tape) {
      c.tape->record("broken", {v[0]}, {y}, [&c, x = v[0]](Tape&) {
        Tensor dx = x.value().clone();
        for (double& value : dx.values<double>()) value *= 2;
        Tape::accumulate(c, x, dx);
      });
    }
    return sum(c, y);
  };
  ::testing::TestPartResultArray results;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    gradcheck(broken, {f64_leaf({3}, 1, "x")});
  }
  ASSERT_GT(results.size(), 0);
  EXPECT_THAT(results.GetTestPartResult(0).message(), Names("x[0]", "(3)"));
}

}  // namespace
}  // namespace lmx::testing
