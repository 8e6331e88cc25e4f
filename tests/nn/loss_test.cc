// `loss:` of a recipe: parameters, candidates, evaluation under the full softmax, messages; and the samplers'
// distributions.
#include <cmath>

#include "lmx/loss.h"
#include "ops/device_values.h"
#include "test.h"
#include "yaml.h"

namespace lmx {
namespace {

using namespace lmx_test;

constexpr int64_t kV = 40, kD = 6;

Vocabulary vocabulary(int64_t v = kV) {
  std::vector<Vocabulary::Entry> entries;
  for (int64_t k = 0; k < v; ++k) entries.push_back({"w" + std::to_string(k), k == 1 ? 0 : 5000 / (k + 1)});
  return Vocabulary(std::move(entries));
}

LossEnv env(const Vocabulary* words = nullptr) {
  return {kV, kD, words};
}

std::string message(const std::string& text) {
  return lmx_test::user_error([&] { make_loss(yaml(text), "loss", env()); });
}

struct Fixture {
  explicit Fixture(const std::string& text) : loss(make_loss(yaml(text), "loss", env(&words))) {
    for (const ParameterSpec& spec : loss->parameters()) params.add(ctx, spec, RandomKey(5));
    features = Var(Tensor::empty(ctx.allocator, {4, kD}, DType::f32), true, "features");
    for (int64_t i = 0; i < 4 * kD; ++i) features.value().data<float>()[i] = 0.1f * static_cast<float>(i % 11);
    targets = Tensor::from<int32_t>(ctx.allocator, {4}, std::vector<int32_t>{3, 0, 39, 3});
  }
  float value(uint64_t key) {
    return *loss->forward(ctx, params, features, targets, {.sampler_key = RandomKey(key)}).loss.value().data<float>();
  }

  Vocabulary words = vocabulary();
  std::unique_ptr<Loss> loss;
  Context ctx;
  ParameterStore params;
  Var features;
  Tensor targets;
};

TEST(Loss, Parameters) {
  const Fixture full("{name: full_softmax, init: {kind: normal, scale: 0.3}}"),
      sampled("{name: sampled_softmax, bias: false}");
  ASSERT_EQ(full.params.names(), (std::vector<std::string>{"softmax.weight", "softmax.bias"}));
  EXPECT_EQ(full.params.spec("softmax.weight").shape, (Shape{kV, kD}));
  EXPECT_EQ(full.params.spec("softmax.weight").init.kind, "normal");
  EXPECT_FALSE(full.params.spec("softmax.weight").sparse);
  for (const float b : full.params.at("softmax.bias").value().values<float>()) EXPECT_EQ(b, 0);
  ASSERT_EQ(sampled.params.names(), (std::vector<std::string>{"softmax.weight"}));
  EXPECT_TRUE(sampled.params.spec("softmax.weight").sparse);
}

TEST(Loss, FullSoftmaxIsWhatEvaluationSays) {
  Fixture f("name: full_softmax");
  const Tensor nll = f.loss->evaluate(f.ctx, f.params, f.features.value(), f.targets);
  float sum = 0;
  for (const float x : nll.values<float>()) sum += x;
  EXPECT_NEAR(f.value(1), sum, 1e-5);
  EXPECT_EQ(f.loss->logits(f.ctx, f.params, f.features.value()).shape(), (Shape{4, kV}));
}

TEST(Loss, CandidatesAreAFunctionOfTheKey) {
  for (const char* proposal : {"uniform", "log_uniform", "unigram"}) {
    Fixture f(std::string("{name: sampled_softmax, samples: 8, proposal: ") + proposal + "}");
    EXPECT_EQ(f.value(1), f.value(1)) << proposal;
    EXPECT_NE(f.value(1), f.value(2)) << proposal;
  }
}

// With expected counts the candidates' sum estimates the full one, and for many samples every word is nearly surely
// among the candidates, so that the target counts once.
TEST(Loss, ManyCorrectedSamplesApproachTheFullSoftmax) {
  for (const char* proposal : {"uniform", "log_uniform", "unigram"}) {
    Fixture f(std::string("{name: sampled_softmax, samples: 60000, init: {scale: 1}, proposal: ") + proposal + "}");
    const Tensor nll = f.loss->evaluate(f.ctx, f.params, f.features.value(), f.targets);
    float full = 0;
    for (const float x : nll.values<float>()) full += x;
    EXPECT_NEAR(f.value(3), full, 0.01 * full) << proposal;
  }
}

// Kullback-Leibler divergence (nats) from a known distribution to what a bare table of logits learns from its samples.
double learned_divergence(const std::string& config) {
  constexpr int64_t kTokens = 64, kSteps = 3000;
  const Vocabulary words = vocabulary();
  const auto loss = make_loss(yaml(config), "loss", {kV, 1, &words});
  const auto source = make_sampler("unigram", kV, 1.0, &words);
  Context ctx;
  ParameterStore params;
  for (const ParameterSpec& spec : loss->parameters()) params.add(ctx, spec, RandomKey(5));
  Tape tape;
  ctx.tape = &tape;
  Tensor ones = Tensor::empty(ctx.allocator, {kTokens, 1}, DType::f32),
         targets = Tensor::empty(ctx.allocator, {kTokens}, DType::i32);
  for (float& x : ones.values<float>()) x = 1;
  Var& w = params.at("softmax.weight");
  std::vector<double> mean(kV);
  for (int64_t step = 0; step < kSteps; ++step) {
    const RandomKey key = RandomKey(17).fold(static_cast<uint64_t>(step));
    for (int64_t i = 0; i < kTokens; ++i)
      targets.data<int32_t>()[i] = source->draw(key.fold("data"), static_cast<uint64_t>(i));
    tape.backward(ctx, loss->forward(ctx, params, Var(ones), targets, {.sampler_key = key.fold("candidates")}).loss,
                  1.0 / kTokens);
    w.grad().coalesce(ctx);
    const RowSparse& g = w.grad().pieces[0];
    const float lr = step < kSteps / 2 ? 2.0f : 0.5f;
    for (size_t r = 0; r < g.indices.size(); ++r) w.value().data<float>()[g.indices[r]] -= lr * g.rows.data<float>()[r];
    w.changed();
    w.grad().clear();
    for (int64_t k = 0; k < kV && step >= kSteps / 2; ++k)
      mean[static_cast<size_t>(k)] += static_cast<double>(w.value().data<float>()[k]) / (kSteps / 2);
  }
  double z = 0, divergence = 0;
  for (const double logit : mean) z += std::exp(logit);
  for (int32_t k = 0; k < kV; ++k) {
    const double p = source->probability(k);
    divergence += p * (std::log(p) - (mean[static_cast<size_t>(k)] - std::log(z)));
  }
  return divergence;
}

// The reason for the correction: what is learned is the distribution of words, also where frequent words are expected
// several times among the candidates.
TEST(Loss, TheCorrectedSampledSoftmaxLearnsTheTrueDistribution) {
  for (const char* proposal : {"uniform", "log_uniform", "unigram"}) {
    for (const char* hits : {"true", "false"}) {
      const std::string config =
          std::string("{name: sampled_softmax, bias: false, samples: 64, init: {kind: zeros}, proposal: ") + proposal +
          ", remove_accidental_hits: " + hits;
      EXPECT_LT(learned_divergence(config + "}"), 0.002) << config;
    }
  }
  EXPECT_GT(learned_divergence("{name: sampled_softmax, bias: false, samples: 64, init: {kind: zeros}, logq: false}"),
            0.2);
}

TEST(Loss, SampledGradientsAreRowSparse) {
  Fixture f("{name: sampled_softmax, samples: 8}");
  Tape tape;
  f.ctx.tape = &tape;
  const Var loss = f.loss->forward(f.ctx, f.params, f.features, f.targets, {.sampler_key = RandomKey(1)}).loss;
  tape.backward(f.ctx, loss);
  for (const char* name : {"softmax.weight", "softmax.bias"}) {
    Gradient& g = f.params.at(name).grad();
    ASSERT_TRUE(g.sparse()) << name;
    g.coalesce(f.ctx);
    EXPECT_LE(g.pieces[0].indices.size(), 8u + 3u);
    EXPECT_THAT(g.pieces[0].indices, ::testing::IsSupersetOf({0, 3, 39}));  // targets are always there
  }
}

TEST(Loss, Normalisation) {
  const Fixture full("name: full_softmax"), sampled("{name: sampled_softmax, samples: 8, normalize: sequence}");
  EXPECT_EQ(full.loss->normalize(), "token");
  EXPECT_EQ(sampled.loss->normalize(), "sequence");
}

TEST(Loss, DryRunNeedsNoVocabulary) {
  const auto loss = make_loss(yaml("{name: sampled_softmax, proposal: unigram}"), "loss", env());
  EXPECT_EQ(loss->parameters().size(), 2u);
}

TEST(Loss, FullConfig) {
  const Node full = full_loss_config(yaml("{samples: 16, name: sampled_softmax}"), "loss");
  EXPECT_EQ(full.keys()[0], "name");
  EXPECT_EQ(full.at_path("samples")->text, "16");
  EXPECT_EQ(full.at_path("proposal")->text, "log_uniform");
  EXPECT_EQ(full.at_path("init.kind")->text, "uniform");
  EXPECT_NO_THROW(make_loss(full, "loss", env()));
  EXPECT_EQ(full_loss_config(Node(), "loss").at_path("name")->text, "full_softmax");
}

TEST(Loss, Errors) {
  EXPECT_EQ(message("name: sampled_sofmax"),
            "r.yaml:1:7: loss.name: expected one of full_softmax, sampled_softmax, two_stage_softmax, got "
            "'sampled_sofmax' (did you mean 'sampled_softmax'?)");
  EXPECT_EQ(message("{name: sampled_softmax, samples: 0}"), "r.yaml:1:34: loss.samples: must be in [1, 262144], got 0");
  EXPECT_EQ(message("{name: full_softmax, samples: 3}").substr(0, 43), "r.yaml:1:22: unknown key loss.samples (allo");
  EXPECT_THAT(message("{name: sampled_softmax, proposal: log_unifrom}"), Names("'log_uniform'?"));
  EXPECT_THAT(message("{name: full_softmax, normalize: word}"), Names("token, sequence"));
}

TEST(Sampler, ProbabilitiesSumToOneAndDrawsFollowThem) {
  const Vocabulary words = vocabulary();
  for (const char* proposal : {"uniform", "log_uniform", "unigram"}) {
    const auto s = make_sampler(proposal, kV, 0.75, &words);
    constexpr int64_t kDraws = 400'000;
    std::vector<int64_t> counts(kV);
    for (int64_t i = 0; i < kDraws; ++i) {
      const int32_t id = s->draw(RandomKey(9), static_cast<uint64_t>(i));
      ASSERT_TRUE(id >= 0 && id < kV);
      ++counts[static_cast<size_t>(id)];
    }
    double total = 0;
    for (int32_t k = 0; k < kV; ++k) {
      const double p = s->probability(k), expected = p * kDraws;
      total += p;
      // Six standard deviations of a binomial count: with a fixed key this either always holds or never.
      EXPECT_NEAR(static_cast<double>(counts[static_cast<size_t>(k)]), expected, 6 * std::sqrt(expected))
          << proposal << ' ' << k;
    }
    EXPECT_NEAR(total, 1, 1e-12) << proposal;
  }
}

TEST(Sampler, UnigramFollowsCountsToThePowerBeta) {
  const Vocabulary words = vocabulary();
  const auto s = make_sampler("unigram", kV, 0.5, &words);
  EXPECT_NEAR(s->probability(0) / s->probability(24), std::sqrt(5000.0 / 200.0), 1e-9);
  EXPECT_GT(s->probability(1), 0);  // never occurred, counts as once
  const auto flat = make_sampler("unigram", kV, 0, &words);
  EXPECT_NEAR(flat->probability(0), 1.0 / kV, 1e-15);
}

TEST(Sampler, OneWordAndErrors) {
  const Vocabulary words = vocabulary(1);
  for (const char* proposal : {"uniform", "log_uniform", "unigram"}) {
    const auto s = make_sampler(proposal, 1, 0.75, &words);
    for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(s->draw(RandomKey(1), i), 0);
    EXPECT_NEAR(s->probability(0), 1, 1e-15);
  }
  EXPECT_THROW(make_sampler("zipf", 10, 1, nullptr), UserError);
  EXPECT_THROW(make_sampler("uniform", 0, 1, nullptr), UserError);
}

// `loss:` of a recipe on a CUDA device against the CPU: initial parameters, one forward and backward pass, the
// evaluation and the logits.

using testing::Place;
using testing::Values;

class DeviceLoss : public testing::OnDevice {};

std::vector<Values> run(const std::string& config, Device device, DType compute) {
  constexpr int64_t kWords = 90, kWidth = 7;
  std::vector<Vocabulary::Entry> entries;
  for (int64_t k = 0; k < kWords; ++k) entries.push_back({"w" + std::to_string(k), 5000 / (k + 1)});
  const Vocabulary words(std::move(entries));
  const auto loss = make_loss(parse_yaml(config, "r.yaml"), "loss", {kWords, kWidth, &words});
  Place p(device, compute);
  ParameterStore params;
  for (const ParameterSpec& spec : loss->parameters()) params.add(p.ctx, spec, RandomKey(5));
  const Var features = p.leaf(testing::f64_tensor({5, kWidth}, 1));
  const Tensor targets = p.host(testing::ids_tensor({3, 0, 89, 3, 44}));
  const LossValue value = loss->forward(p.ctx, params, features, targets, {.sampler_key = RandomKey(7)});
  p.tape.backward(p.ctx, value.loss, 0.2);
  std::vector<Values> all{p.values(value.loss.value()), p.values(value.nats), p.gradient(features)};
  for (const std::string& name : params.names()) {
    all.push_back(p.values(params.at(name).value()));
    all.push_back(p.gradient(params.at(name)));
    params.at(name).grad().coalesce(p.ctx);
    all.push_back(p.gradient(params.at(name)));
    all.push_back(p.values(params.copy(p.ctx).at(name).value()));
  }
  all.push_back(p.values(loss->evaluate(p.ctx, params, features.value(), targets)));
  all.push_back(p.values(loss->logits(p.ctx, params, features.value())));
  return all;
}

TEST_F(DeviceLoss, EqualsTheCpu) {
  for (const char* config :
       {"{name: full_softmax, init: {kind: normal, scale: 0.5}}",
        "{name: full_softmax, label_smoothing: 0.1, bias: false, init: {kind: xavier_uniform, scale: 1}}",
        "{name: sampled_softmax, samples: 20, proposal: unigram, init: {kind: uniform, scale: 1}}",
        "{name: sampled_softmax, samples: 20, logq: false, remove_accidental_hits: false, bias: false}",
        "{name: two_stage_softmax, p: 10, q: 10, mu: 20, dx_set: forward, init: {kind: normal, scale: 0.5}}",
        "{name: two_stage_softmax, p: 10, q: 10, mu: 0}"}) {
    SCOPED_TRACE(config);
    testing::expect_close(run(config, testing::kDevice, DType::f64), run(config, {}, DType::f64), 1e-12);
    testing::expect_close(run(config, testing::kDevice, DType::f32), run(config, {}, DType::f32), 1e-5);
  }
}

}  // namespace
}  // namespace lmx
