// The sampled softmax against an independent dense reference in f64 with the same candidates: every proposal, with and
// without the logQ correction, with and without accidental hits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lmx/loss.h"
#include "ops/gradcheck.h"

namespace lmx::testing {
namespace {

constexpr int64_t kN = 7, kD = 5, kV = 23, kS = 12;

Vocabulary vocabulary() {
  std::vector<Vocabulary::Entry> entries;
  for (int64_t k = 0; k < kV; ++k) entries.push_back({"w" + std::to_string(k), k == 1 ? 0 : 1000 / (k + 1)});
  return Vocabulary(std::move(entries));
}

struct Problem {
  std::string proposal;
  bool logq, remove_hits, bias, weighted;
};

// P(k) from the definitions, not from the sampler.
double proposal_probability(const std::string& proposal, int64_t k) {
  const double v = static_cast<double>(kV), id = static_cast<double>(k);
  if (proposal == "uniform") return 1 / v;
  if (proposal == "log_uniform") return std::log((id + 2) / (id + 1)) / std::log(v + 1);
  const Vocabulary words = vocabulary();
  const auto mass = [&](int64_t w) {
    return std::pow(static_cast<double>(std::max<int64_t>(words.count(static_cast<int32_t>(w)), 1)), 0.75);
  };
  double sum = 0;
  for (int64_t w = 0; w < kV; ++w) sum += mass(w);
  return mass(k) / sum;
}

struct Dense {
  double loss = 0;
  std::vector<double> h = std::vector<double>(kN * kD), w = std::vector<double>(kV * kD), b = std::vector<double>(kV);
};

// Loss and gradients from a table of all V words: word k takes part in target i's sum as often as it was drawn.
Dense reference(const std::vector<Var>& v, const std::vector<int32_t>& targets, const std::vector<int32_t>& drawn,
                const Problem& p) {
  const double *h = v[0].value().data<double>(), *w = v[1].value().data<double>(), *b = v[2].value().data<double>();
  Dense out;
  for (int64_t i = 0; i < kN; ++i) {
    const int64_t t = targets[static_cast<size_t>(i)];
    std::vector<double> multiplicity(kV), logit(kV), mass(kV);
    for (const int32_t c : drawn) multiplicity[static_cast<size_t>(c)] += p.remove_hits && c == t ? 0 : 1;
    multiplicity[static_cast<size_t>(t)] += 1;
    double z = 0;
    for (int64_t k = 0; k < kV; ++k) {
      const auto at = static_cast<size_t>(k);
      logit[at] = p.bias ? b[k] : 0;
      for (int64_t d = 0; d < kD; ++d) logit[at] += h[i * kD + d] * w[k * kD + d];
      if (p.logq) logit[at] -= std::log(static_cast<double>(kS) * proposal_probability(p.proposal, k));
      z += mass[at] = multiplicity[at] * std::exp(logit[at]);
    }
    const double weight = p.weighted ? 0.5 * static_cast<double>(i) : 1;
    out.loss += weight * (std::log(z) - logit[static_cast<size_t>(t)]);
    for (int64_t k = 0; k < kV; ++k) {
      const double g = weight * (mass[static_cast<size_t>(k)] / z - (k == t ? 1 : 0));
      out.b[static_cast<size_t>(k)] += g;
      for (int64_t d = 0; d < kD; ++d) {
        out.h[static_cast<size_t>(i * kD + d)] += g * w[k * kD + d];
        out.w[static_cast<size_t>(k * kD + d)] += g * h[i * kD + d];
      }
    }
  }
  return out;
}

void check(const Problem& p, DType type) {
  const Vocabulary words = vocabulary();
  const auto sampler = make_sampler(p.proposal, kV, 0.75, &words);
  std::vector<Var> exact{f64_leaf({kN, kD}, 1, "h"), f64_leaf({kV, kD}, 2, "w"), f64_leaf({kV}, 3, "b")};
  std::vector<int32_t> targets;
  Candidates c;
  c.logq = p.logq;
  c.remove_accidental_hits = p.remove_hits;
  for (int64_t s = 0; s < kS; ++s) c.ids.push_back(sampler->draw(RandomKey(3), static_cast<uint64_t>(s)));
  for (int64_t i = 0; i < kN; ++i)
    targets.push_back(i == 2 ? c.ids[0] : static_cast<int32_t>((5 * i + 1) % kV));  // one hit
  const auto log_expected = [&](int32_t id) {
    return static_cast<float>(std::log(static_cast<double>(kS) * sampler->probability(id)));
  };
  for (const int32_t id : c.ids) c.log_expected.push_back(log_expected(id));
  for (const int32_t id : targets) c.target_log_expected.push_back(log_expected(id));
  std::vector<float> row_weights;
  for (int64_t i = 0; i < kN; ++i) row_weights.push_back(0.5f * static_cast<float>(i));
  const Tensor weights = p.weighted ? Tensor::from<float>(Allocator::cpu(), {kN}, row_weights) : Tensor();

  std::vector<Var> v;
  for (const Var& e : exact) v.emplace_back(e.value().to(type), true, e.name());
  Tape tape;
  Context ctx;
  ctx.compute = type;
  ctx.tape = &tape;
  const Var loss = sampled_softmax_loss(ctx, {v[0], v[1], p.bias ? v[2] : Var(), ids_tensor(targets), weights}, c);
  const double value =
      type == DType::f64 ? *loss.value().data<double>() : static_cast<double>(*loss.value().data<float>());
  tape.backward(ctx, loss);

  const Dense r = reference(exact, targets, c.ids, p);
  const double tolerance = type == DType::f64 ? 2e-6 : 2e-5;  // expected counts are floats
  EXPECT_NEAR(value, r.loss, tolerance * 10);
  expect_near(dense_gradient(v[0]), r.h, tolerance, "dh");
  expect_near(dense_gradient(v[1]), r.w, tolerance, "dw");
  expect_near(dense_gradient(v[2]), p.bias ? r.b : std::vector<double>(kV), tolerance, "db");
  EXPECT_FALSE(v[1].grad().dense.defined());
  EXPECT_TRUE(v[1].grad().sparse());
}

TEST(SampledSoftmax, MatchesTheDenseReference) {
  for (const char* proposal : {"uniform", "log_uniform", "unigram"}) {
    for (int options = 0; options < 16; ++options) {
      const Problem p{proposal, (options & 1) != 0, (options & 2) != 0, (options & 4) != 0, (options & 8) != 0};
      SCOPED_TRACE(::testing::Message() << proposal << " logq " << p.logq << " remove " << p.remove_hits << " bias "
                                        << p.bias << " weighted " << p.weighted);
      check(p, DType::f64);
      check(p, DType::f32);
    }
  }
}

// With every word a candidate once and hits removed, the sampled softmax is the full one.
TEST(SampledSoftmax, AllWordsAsCandidatesGiveTheFullSoftmax) {
  const std::vector<Var> v{f64_leaf({kN, kD}, 1, "h"), f64_leaf({kV, kD}, 2, "w"), f64_leaf({kV}, 3, "b")};
  Candidates all;
  all.logq = false;
  for (int32_t k = 0; k < kV; ++k) all.ids.push_back(k);
  const Tensor targets = ids_tensor({0, 1, 2, 3, 22, 22, 0});
  Context ctx = f64_context();
  const double sampled = *sampled_softmax_loss(ctx, {v[0], v[1], v[2], targets}, all).value().data<double>();
  const double full = *full_softmax_loss(ctx, {v[0], v[1], v[2], targets}).loss.value().data<double>();
  EXPECT_NEAR(sampled, full, 1e-10);
}

TEST(SampledSoftmax, LargeLogitsStayFinite) {
  Context ctx;
  Tape tape;
  ctx.tape = &tape;
  const auto filled = [](Shape s, float x) {
    Tensor t = Tensor::empty(Allocator::cpu(), s, DType::f32);
    for (float& e : t.values<float>()) e = x;
    return t;
  };
  const Var h(filled({2, 4}, 100), true, "h"), w(filled({6, 4}, 100), true, "w");
  Candidates c{{1, 2, 2}, {}, {}, false, true};
  const Var loss = sampled_softmax_loss(ctx, {h, w, Var(), ids_tensor({0, 2})}, c);
  EXPECT_NEAR(*loss.value().data<float>(), std::log(4.0) + std::log(2.0), 1e-5);  // equal logits; two of three are hits
  tape.backward(ctx, loss);
  for (const double g : dense_gradient(w)) EXPECT_TRUE(std::isfinite(g));
}

TEST(SampledSoftmax, NoTargetsIsZeroWithoutGradients) {
  Tape tape;
  Context ctx = f64_context(&tape);
  const Var w = f64_leaf({4, 3}, 2, "w");
  const Var loss =
      sampled_softmax_loss(ctx, {f64_leaf({0, 3}, 1, "h"), w, Var(), ids_tensor({})}, {{1, 2}, {}, {}, false, true});
  EXPECT_EQ(*loss.value().data<double>(), 0);
  tape.backward(ctx, loss);
  EXPECT_TRUE(w.grad().empty());
}

}  // namespace
}  // namespace lmx::testing
