// Softmax and its losses on a CUDA device against the CPU: values and gradients, in f64 and f32. The widths are chosen
// for the ways to divide a row: a warp up to 512 columns, a block of 256 threads below 4,096, a block of 1,024.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "lmx/array_ops.h"
#include "ops/device_values.h"

namespace lmx::testing {
namespace {

class DeviceSoftmax : public OnDevice {};
class DeviceLosses : public OnDevice {};

using Run = std::function<std::vector<Values>(Place&)>;

void expect_equal(const Run& run, DType compute, double tolerance) {
  Place cpu({}, compute), device(kDevice, compute);
  expect_close(run(device), run(cpu), tolerance);
}
void expect_equal(const std::string& name, const Run& run) {
  SCOPED_TRACE(name);
  expect_equal(run, DType::f64, 1e-12);
  expect_equal(run, DType::f32, 1e-5);
}

std::vector<int32_t> some_ids(int64_t n, int64_t below, int64_t factor = 7919) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((factor * i + 3) % below));
  return ids;
}
Tensor some_weights(int64_t n) {
  std::vector<float> weights;
  for (int64_t i = 0; i < n; ++i) weights.push_back(0.5f * static_cast<float>(i % 4));
  return Tensor::from<float>(Allocator::cpu(), {n}, weights);
}

// ---- softmax, log_softmax and cross_entropy

std::vector<Shape> matrices() {
  return {{1, 1}, {9, 1}, {0, 5}, {20, 31}, {5, 128}, {3, 512}, {3, 513}, {2, 1111}, {1, 4095}, {2, 4097}, {1, 9000}};
}

Values softmax_of(Place& p, const Tensor& x, bool logarithm) {
  return p.values((logarithm ? log_softmax(p.ctx, p.leaf(x), -1) : softmax(p.ctx, p.leaf(x), -1)).value());
}

TEST_F(DeviceSoftmax, EqualsTheCpu) {
  for (const Shape& shape : matrices()) {
    for (const bool logarithm : {false, true}) {
      expect_equal(str("softmax ", shape, logarithm ? " log" : ""), [&](Place& p) {
        const Var x = p.leaf(f64_tensor(shape, 1, 3));
        const Var y = logarithm ? log_softmax(p.ctx, x, -1) : softmax(p.ctx, x, -1);
        p.tape.backward(p.ctx, sum(p.ctx, multiply(p.ctx, y, p.leaf(f64_tensor(shape, 2), false))));
        return std::vector{p.values(y.value()), p.gradient(x)};
      });
      if (HasFatalFailure()) return;
    }
  }
}

// -Inf hides a column. A NaN or an infinite logit makes the row NaN, and the other rows are unchanged.
TEST_F(DeviceSoftmax, SpecialValues) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t cols : {40, 600}) {
    Tensor x = f64_tensor({5, cols}, 1);
    double* rows = x.data<double>();
    for (int64_t j = 0; j < cols; ++j) {
      if (j % 32 < 20) rows[j] = -kInf;
      rows[cols + j] = -kInf;
    }
    rows[2 * cols + 7] = kNan;
    rows[3 * cols + 33] = kInf;
    rows[4 * cols + 5] = 1e30;
    expect_equal(str("columns ", cols), [&](Place& p) {
      std::vector<Values> both{softmax_of(p, x, false), softmax_of(p, x, true)};
      for (int64_t r : {1, 2, 3}) {  // some NaN is enough, the CPU has more of them
        const auto at = static_cast<size_t>(r * cols);
        for (Values& values : both) {
          bool any = false;
          for (int64_t j = 0; j < cols; ++j) any |= std::isnan(values[at + static_cast<size_t>(j)]);
          EXPECT_TRUE(any) << "row " << r;
          for (int64_t j = 0; j < cols; ++j) values[at + static_cast<size_t>(j)] = 0;
        }
      }
      return both;
    });
  }
}

TEST_F(DeviceLosses, CrossEntropyEqualsTheCpu) {
  for (const Shape& shape : matrices()) {
    for (const bool weighted : {false, true}) {
      expect_equal(str("cross_entropy ", shape, weighted ? " weighted" : ""), [&](Place& p) {
        const Var z = p.leaf(f64_tensor(shape, 1, 3));
        const Tensor targets = p.host(ids_tensor(some_ids(shape[0], shape[1])));
        const Var loss = cross_entropy(p.ctx, z, targets, weighted ? p.host(some_weights(shape[0])) : Tensor());
        p.tape.backward(p.ctx, loss, 0.3);
        return std::vector{p.values(loss.value()), p.gradient(z)};
      });
      if (HasFatalFailure()) return;
    }
  }
}

// ---- losses of an output layer

struct Layer {
  int64_t n, width, words;
  bool bias = true, weighted = false;
  bool trains_h = true, trains_w = true;
};

std::ostream& operator<<(std::ostream& out, const Layer& z) {
  return out << z.n << " x " << z.width << " x " << z.words << (z.bias ? " bias" : "")
             << (z.weighted ? " weighted" : "") << (z.trains_h ? "" : " frozen h") << (z.trains_w ? "" : " frozen w");
}

SoftmaxInputs inputs(Place& p, const Layer& z, const std::vector<int32_t>& targets) {
  return {p.leaf(f64_tensor({z.n, z.width}, 1, 0.7), z.trains_h), p.leaf(f64_tensor({z.words, z.width}, 2), z.trains_w),
          z.bias ? p.leaf(f64_tensor({z.words}, 3), z.trains_w) : Var(), p.host(ids_tensor(targets)),
          z.weighted ? p.host(some_weights(z.n)) : Tensor()};
}

std::vector<Values> gradients(Place& p, const SoftmaxInputs& in, const Var& loss, double seed) {
  p.tape.backward(p.ctx, loss, seed);
  std::vector<Values> all{p.values(loss.value()), p.gradient(in.h), p.gradient(in.w)};
  if (in.b.defined()) all.push_back(p.gradient(in.b));
  return all;
}

Run full_softmax(const Layer& z, double smoothing, double seed) {
  return [=](Place& p) {
    const SoftmaxInputs in = inputs(p, z, some_ids(z.n, z.words));
    const LossValue value = full_softmax_loss(p.ctx, in, smoothing);
    std::vector<Values> all = gradients(p, in, value.loss, seed);
    all.push_back(p.values(value.nats));
    return all;
  };
}

TEST_F(DeviceLosses, FullSoftmaxEqualsTheCpu) {
  const Layer layers[] = {{0, 3, 4},
                          {1, 3, 1},
                          {9, 4, 33, false, true},
                          {70, 5, 130, true, true},
                          {5, 2, 513, false},
                          {3, 2, 700, true, true},
                          {2, 3, 4100},
                          {2, 3, 5001, false},
                          {7, 3, 50, true, false, false},
                          {7, 3, 50, true, false, true, false}};
  for (const Layer& z : layers) {
    for (const double smoothing : {0.0, 0.1})
      expect_equal(str(z, " smoothing ", smoothing), full_softmax(z, smoothing, 0.7));
    if (HasFatalFailure()) return;
  }
  expect_equal("seed 1", full_softmax({9, 4, 33}, 0, 1));
}

// 90 rows of 100,000 logits are two blocks of at most 32 MB. The gradient of h is a float sum of 100,000 products.
TEST_F(DeviceLosses, FullSoftmaxInBlocks) {
  expect_equal(full_softmax({90, 1, 100'000, true, true}, 0, 1), DType::f32, 1e-4);
}

TEST_F(DeviceLosses, FullSoftmaxInHalfPrecision) {
  for (const int64_t words : {600, 601, 604, 3000, 20000}) {
    // The device rounds scores of up to 16, so probabilities differ by 2^-5 in bf16 and 2^-8 in f16.
    expect_equal(full_softmax({16, 32, words, true, true}, 0.1, 1.0 / 16), DType::bf16, 4e-3);
    expect_equal(full_softmax({16, 32, words, true, true}, 0.1, 1.0 / 16), DType::f16, 1e-3);
  }
}

// The scores and their gradient share 2 bytes for each word, and nothing is converted but h and w.
TEST_F(DeviceLosses, FullSoftmaxStoresItsScoresOnce) {
  for (const auto& [compute, bytes] : {std::pair{DType::f32, 4}, {DType::bf16, 2}, {DType::f16, 2}}) {
    Place p(kDevice, compute);
    p.ctx.allocator = Allocator::counting(p.ctx.allocator);
    const SoftmaxInputs in = inputs(p, {16, 2, 6000, false}, some_ids(16, 6000));
    const int64_t before = p.ctx.allocator->stats().total;
    const DeviceCounts counted = cuda_device(0).counts();
    (void)full_softmax_loss(p.ctx, in, 0.1);
    const auto launches = cuda_device(0).counts().since(counted).launches;
    const int64_t scores = 16 * 6000, others = 6000 * 2 * (4 + 2) + 2000;
    EXPECT_GE(p.ctx.allocator->stats().total_peak - before, scores * bytes) << name_of(compute);
    EXPECT_LE(p.ctx.allocator->stats().total_peak - before, scores * bytes + others) << name_of(compute);
    EXPECT_EQ(launches.count("convert"), bytes == 2 ? 1u : 0u);
    if (bytes == 2) {
      EXPECT_EQ(launches.at("convert"), 2);
    }
  }
}

// Without gradients the scores are not rounded: the nll is that of the rounded h and w.
TEST_F(DeviceLosses, AnEvaluationDoesNotRoundScores) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    const auto nll = [](Place& p) {
      const SoftmaxInputs in = inputs(p, {16, 32, 600}, some_ids(16, 600));
      p.ctx.tape = nullptr;
      return std::vector{p.values(full_softmax_loss(p.ctx, in).loss.value()),
                         p.values(full_softmax_nll(p.ctx, in.h.value(), in.w.value(), in.b.value(), in.targets))};
    };
    expect_equal(nll, compute, 1e-5);
  }
}

TEST_F(DeviceLosses, EvaluationEqualsTheCpu) {
  const Layer layers[] = {{0, 3, 4}, {1, 3, 40}, {6, 4, 700}, {200, 4, 65, false}};
  for (const Layer& z : layers) {
    expect_equal(str(z), [&](Place& p) {
      const SoftmaxInputs in = inputs(p, z, some_ids(z.n, z.words));
      const Tensor &h = in.h.value(), &w = in.w.value(), b = z.bias ? in.b.value() : Tensor();
      return std::vector{p.values(full_softmax_nll(p.ctx, h, w, b, in.targets)),
                         p.values(full_softmax_logits(p.ctx, h, w, b))};
    });
    if (HasFatalFailure()) return;
  }
}

Candidates candidates(const Layer& z, int64_t samples, const std::vector<int32_t>& targets, int options) {
  Candidates c;
  c.logq = (options & 1) != 0;
  c.remove_accidental_hits = (options & 2) != 0;
  c.ids = some_ids(samples, z.words, 31);
  c.ids[0] = targets.empty() ? 0 : targets.back();  // one hit
  if (!c.logq) return c;
  for (const int32_t id : c.ids) c.log_expected.push_back(0.01f * static_cast<float>(id % 100));
  for (const int32_t id : targets) c.target_log_expected.push_back(-0.02f * static_cast<float>(id % 50));
  return c;
}

TEST_F(DeviceLosses, SampledSoftmaxEqualsTheCpu) {
  struct {
    Layer layer;
    int64_t samples;
  } const cases[] = {{{0, 3, 9}, 4},
                     {{1, 1, 2}, 1},
                     {{9, 33, 40, true, true}, 31},
                     {{40, 8, 300}, 40},
                     {{3, 600, 50, false, true}, 5},
                     {{3, 4, 900, true, true}, 700},
                     {{2, 4, 900, false}, 5000},
                     {{5, 6, 20, true, true, false, true}, 12},
                     {{5, 6, 20, true, true, true, false}, 12}};
  for (const auto& c : cases) {
    for (int options = 0; options < 4; ++options) {
      expect_equal(str(c.layer, " samples ", c.samples, " options ", options), [&](Place& p) {
        const std::vector<int32_t> targets = some_ids(c.layer.n, c.layer.words);
        const SoftmaxInputs in = inputs(p, c.layer, targets);
        return gradients(p, in, sampled_softmax_loss(p.ctx, in, candidates(c.layer, c.samples, targets, options)), 0.7);
      });
      if (HasFatalFailure()) return;
    }
  }
}

// The even words get gradients; the odd ones take part in the forward pass alone, or not at all.
TwoStageRows rows_of(const Layer& z, bool odd, bool dh_forward) {
  TwoStageRows rows;
  for (int32_t k = 0; k < z.words; k += 2) rows.ids.push_back(k);
  rows.trained = static_cast<int64_t>(rows.ids.size());
  for (int32_t k = 1; k < z.words && odd; k += 2) rows.ids.push_back(k);
  rows.dh_forward = dh_forward;
  return rows;
}

TEST_F(DeviceLosses, TwoStageSoftmaxEqualsTheCpu) {
  const Layer layers[] = {{0, 3, 9},
                          {1, 1, 1},
                          {9, 5, 61, true, true},
                          {40, 4, 200, false},
                          {3, 4, 1300},
                          {2, 3, 9001, false, true},
                          {7, 3, 50, true, false, false}};
  for (const Layer& z : layers) {
    for (const int options : {0, 2, 3}) {
      expect_equal(str(z, " options ", options), [&](Place& p) {
        std::vector<int32_t> targets = some_ids(z.n, (z.words + 1) / 2);
        for (int32_t& t : targets) t *= 2;
        const SoftmaxInputs in = inputs(p, z, targets);
        const Var loss = two_stage_softmax_loss(p.ctx, in, rows_of(z, (options & 2) != 0, (options & 1) != 0));
        return gradients(p, in, loss, 0.7);
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Without a tape the logits' gradients are not computed.
TEST_F(DeviceLosses, WithoutGradients) {
  const Layer z{6, 4, 700, true, true};
  expect_equal("losses", [&](Place& p) {
    p.ctx.tape = nullptr;
    std::vector<int32_t> targets = some_ids(z.n, z.words / 2);
    for (int32_t& t : targets) t *= 2;
    const SoftmaxInputs in = inputs(p, z, targets);
    return std::vector{p.values(full_softmax_loss(p.ctx, in, 0.1).loss.value()),
                       p.values(sampled_softmax_loss(p.ctx, in, candidates(z, 40, targets, 3)).value()),
                       p.values(two_stage_softmax_loss(p.ctx, in, rows_of(z, true, true)).value())};
  });
}

}  // namespace
}  // namespace lmx::testing
