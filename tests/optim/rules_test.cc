// Optimizers in rules: which parameters each one updates, with which learning rate, and what a wrong `optimizer:` says.
#include "lmx/error.h"
#include "lmx/optim.h"
#include "recipe/choices.h"
#include "recipe/optimizer.h"
#include "test.h"
#include "yaml.h"

namespace lmx {
namespace {

using namespace lmx_test;

std::vector<ParameterSpec> rule_specs() {
  return {{"embedding.weight", {6, 2}, {"ones", 0}, true},
          {"layer.0.in", {4, 2}, {"ones", 0}},
          {"layer.0.bias", {4}, {"ones", 0}},
          {"softmax.weight", {6, 2}, {"ones", 0}, false, true}};
}

struct RuleModel {
  RuleModel() {
    for (const ParameterSpec& spec : rule_specs()) params.add(ctx, spec, RandomKey(1));
  }
  // The same gradient of 1 for all elements.
  void update(Optimizer& own, double lr, int64_t number) {
    std::vector<ParameterUpdate> updates;
    for (const std::string& name : params.names()) {
      Var& param = params.at(name);
      param.grad().dense = Tensor::zeros(Allocator::cpu(), param.shape(), DType::f32);
      for (float& g : param.grad().dense.values<float>()) g = 1;
      updates.push_back({&param});
    }
    own.update_all(ctx, updates, lr, number);
  }
  float first(const std::string& name) const { return params.at(name).value().values<float>()[0]; }
  std::map<std::string, float> all() const {
    std::map<std::string, float> values;
    for (const std::string& name : params.names()) values[name] = first(name);
    return values;
  }

  Context ctx;
  ParameterStore params;
};

std::unique_ptr<Optimizer> by_rules(const std::string& text) {
  return make_optimizer(yaml(text), "optimizer", rule_specs());
}

constexpr const char* kRules =
    "{tables: {params: embedding|softmax, name: sgd, lr: 0.5, momentum: 0.9},\n"
    " layers: {params: '^layer.*in$', name: sgd, lr: 0.25},\n"
    " rest: {params: '.*', name: adam}}";

TEST(OptimizerRules, TheFirstRuleThatMatchesUpdatesWithItsRate) {
  RuleModel model;
  const auto own =
      by_rules("{tables: {params: embedding, name: sgd, lr: 0.5}, rest: {params: '.*', name: sgd, lr: 0.25}}");
  model.update(*own, 0.125, 1);  // a quarter of the first rule's rate
  EXPECT_EQ(model.all(), (std::map<std::string, float>{{"embedding.weight", 0.875f},
                                                       {"layer.0.bias", 0.9375f},
                                                       {"layer.0.in", 0.9375f},
                                                       {"softmax.weight", 0.9375f}}));
}

TEST(OptimizerRules, EachParameterIsUpdatedAsByItsOptimizerAlone) {
  constexpr const char* kAlone = "{name: adamw, lr: 0.01, weight_decay: 0.1}";
  RuleModel together, alone;
  const auto mixed = by_rules(
      "{layers: {params: '^layer', name: adamw, lr: 0.01, weight_decay: 0.1}, rest: {params: '.*', name: sgd, lr: 1}}");
  const auto own = make_optimizer(yaml(kAlone), "optimizer");
  for (int64_t t = 1; t <= 3; ++t) {
    together.update(*mixed, 0.01, t);
    alone.update(*own, 0.01, t);
  }
  for (const char* name : {"layer.0.in", "layer.0.bias"}) EXPECT_EQ(together.first(name), alone.first(name)) << name;
  EXPECT_NE(together.first("softmax.weight"), alone.first("softmax.weight"));
}

TEST(OptimizerRules, SlotsHaveTheNamesOfOneOptimizerAndAreLoadedByTheirRule) {
  constexpr const char* kMixed =
      "{tables: {params: embedding|softmax, name: sgd, lr: 0.5, momentum: 0.9},\n"
      " rest: {params: '.*', name: adam, lr: 0.25}}";
  RuleModel whole, resumed;
  const auto first = by_rules(kMixed), second = by_rules(kMixed);
  whole.update(*first, 0.5, 1);
  const StateDict saved = first->state();
  std::vector<std::string> names;
  for (const auto& [name, t] : saved) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"embedding.weight.momentum", "layer.0.bias.exp_avg", "layer.0.bias.exp_avg_sq",
                                      "layer.0.in.exp_avg", "layer.0.in.exp_avg_sq", "softmax.weight.momentum"}));
  for (const std::string& name : whole.params.names())
    resumed.params.at(name).value().copy_from(whole.params.at(name).value());
  second->load(resumed.ctx, resumed.params, saved);
  whole.update(*first, 0.5, 2);
  resumed.update(*second, 0.5, 2);
  EXPECT_EQ(resumed.all(), whole.all());
  // A slot of another rule's optimizer, and one of no parameter.
  StateDict other{{"layer.0.in.momentum", saved.at("layer.0.in.exp_avg")}};
  EXPECT_THAT(lmx_test::user_error([&] { second->load(resumed.ctx, resumed.params, other); }),
              Names("[adam]", "layer.0.in.momentum"));
  other = {{"nothing.momentum", saved.at("layer.0.in.exp_avg")}};
  EXPECT_THAT(lmx_test::user_error([&] { second->load(resumed.ctx, resumed.params, other); }),
              Names("nothing.momentum"));
}

TEST(OptimizerRules, TheScheduleStartsFromTheFirstRulesRate) {
  const Node node = yaml(kRules);
  EXPECT_EQ(learning_rate(node, "optimizer"), 0.5);
  const std::vector<RuleRate> rates = rule_rates(node, "optimizer");
  ASSERT_EQ(rates.size(), 3u);
  EXPECT_EQ(rates[0].factor, 1);
  EXPECT_EQ(rates[1].rule, "layers");
  EXPECT_EQ(rates[1].factor, 0.5);
  EXPECT_EQ(rates[2].factor, 0.002);
  EXPECT_TRUE(rule_rates(yaml("{name: sgd}"), "optimizer").empty());
}

TEST(OptimizerRules, TheFullConfigHasEveryDefaultOfEachRule) {
  const Node full = full_optimizer_config(yaml(kRules), "optimizer");
  EXPECT_EQ(to_yaml(*full.find("layers")),
            "params: ^layer.*in$\nname: sgd\nlr: 0.25\nmomentum: 0.0\nnesterov: false\nweight_decay: 0.0\n");
  EXPECT_EQ(full.at_path("rest.lr")->text, "0.001");
  EXPECT_NO_THROW(make_optimizer(full, "optimizer", rule_specs()));
}

TEST(OptimizerRules, AParameterIsNeededAsAWholeIfItsRuleNeedsIt) {
  const auto rules = by_rules("{layers: {params: 'layer.0.in', name: muon}, rest: {params: '.*', name: adamw}}");
  EXPECT_EQ(rules->grain("layer.0.in"), Grain::parameter);
  EXPECT_EQ(rules->grain("layer.0.bias"), Grain::element);
}

TEST(OptimizerRules, FrozenParametersOfARuleAreNotItsOptimizersConcern) {
  std::vector<ParameterSpec> frozen = rule_specs();
  frozen[0].frozen = true;  // muon refuses a table
  EXPECT_NO_THROW(make_optimizer(yaml("{hidden: {params: 'embedding|layer.0.in', name: muon}, rest: {params: '.*', "
                                      "name: adamw}}"),
                                 "optimizer", frozen));
}

TEST(OptimizerRules, Mistakes) {
  const auto message = [](const std::string& text) { return lmx_test::user_error([&] { by_rules(text); }); };
  const auto full = [](const std::string& text) {
    return lmx_test::user_error([&] { full_optimizer_config(yaml(text), "optimizer"); });
  };
  EXPECT_THAT(message("{tables: {params: embedding, name: sgd}, layers: {params: '^layer', name: sgd}}"),
              Names("[optimizer] no rule of optimizer covers softmax.weight", "{params: \".*\", name: adamw}"));
  EXPECT_THAT(message("{rest: {params: '.*', name: sgd}, layers: {params: '^layer', name: sgd}}"),
              Names("r.yaml:1:52: optimizer.layers.params", "'^layer'", "optimizer.rest (r.yaml:1:8)"));
  EXPECT_THAT(message("{rnn: {params: '^rnn', name: sgd}, rest: {params: '.*', name: sgd}}"),
              Names("optimizer.rnn.params", "'^rnn' matches no parameter", "layer.0.in"));
  EXPECT_THAT(message("{rest: {params: '[', name: sgd}}"), Names("optimizer.rest.params", "'['"));
  EXPECT_THAT(full("{rest: {name: sgd}}"), Names("r.yaml:1:8: optimizer.rest", "`params`"));
  EXPECT_THAT(full("{rest: {params: '.*'}}"), Names("r.yaml:1:8: optimizer.rest", "`name`"));
  EXPECT_THAT(full("{rest: {params: '.*', name: sdg}}"), Names("optimizer.rest.name", "'sdg'", "did you mean 'sgd'?"));
  EXPECT_THAT(full("{rest: {params: '.*', name: sgd, rate: 1}}"),
              Names("r.yaml:1:34: unknown key optimizer.rest.rate"));
  EXPECT_THAT(full("{rest: {params: '.*', name: sgd, lr: -1}}"), Names("r.yaml:1:38: optimizer.rest.lr", ">= 0"));
  EXPECT_THAT(full("{rest: {params: '.*', name: sgd}, lr: 0.1}"),
              Names("r.yaml:1:39: optimizer.lr", "expected a rule", "~optimizer.lr leaves"));
  EXPECT_THAT(full("{1st: {params: '.*', name: sgd}}"), Names("'1st' is no name of a rule"));
  EXPECT_THAT(full("{name: adam, rest: {params: '.*', name: sgd}}"),
              Names("r.yaml:1:20: optimizer.rest", "r.yaml:1:8", "adam", "- override optimizer: null"));
  EXPECT_THAT(full("{a: {params: x, name: sgd, lr: 0}, b: {params: '.*', name: sgd, lr: 0.1}}"),
              Names("r.yaml:1:39: optimizer.b", "0.1", "optimizer.a"));
  EXPECT_EQ(full("{a: {params: x, name: sgd, lr: 0}, b: {params: '.*', name: sgd, lr: 0}}"), "no error");
}

TEST(OptimizerRules, MuonNamesTheParametersThatItCannotUpdate) {
  const auto message = [](const std::string& text) { return lmx_test::user_error([&] { by_rules(text); }); };
  EXPECT_THAT(message("name: muon"), Names("r.yaml:1:7: optimizer.name: ", "embedding.weight (a table)",
                                           "layer.0.bias (a vector)", "softmax.weight (the output layer)", "rules"));
  EXPECT_THAT(message("{tables: {params: embedding, name: sgd}, rest: {params: '.*', name: muon}}"),
              Names("optimizer.rest.params", "layer.0.bias (a vector)", "softmax.weight (the output layer)"));
  EXPECT_THAT(message("name: schedule_free"), Names("optimizer.name: ", "embedding.weight"));
}

TEST(OptimizerRules, WholeParametersAndAveragesDoNotFitServers) {
  const auto message = [](const std::string& text) {
    return lmx_test::user_error([&] { check_optimizer_of_ranks(yaml(text), "optimizer", ApartRanks::servers); });
  };
  EXPECT_EQ(message(kRules), "no error");
  EXPECT_EQ(message("name: lion"), "no error");
  for (const char* name : {"muon", "lamb", "lars", "adafactor"})
    EXPECT_THAT(message(str("{a: {params: x, name: sgd}, b: {params: y, name: ", name, "}}")),
                Names("r.yaml:1:50: optimizer.b.name", name, "as a whole", "sync"));
  EXPECT_THAT(message("name: schedule_free"), Names("r.yaml:1:7: optimizer.name", "averages"));
}

TEST(OptimizerRules, AveragesNeedAConstantScheduleAndNoSecondAverage) {
  const auto message = [](const std::string& schedule, double ema) {
    return lmx_test::user_error([&] {
      check_averages(yaml("{a: {params: x, name: sgd}, b: {params: y, name: schedule_free}}"), "optimizer",
                     yaml(schedule), ema);
    });
  };
  EXPECT_EQ(message("{name: constant, warmup: 10}", 0), "no error");
  EXPECT_THAT(message("name: cosine", 0), Names("r.yaml:1:50: optimizer.b.name", "constant", "cosine"));
  EXPECT_THAT(message("name: constant", 0.9), Names("train.ema", "0.9"));
  EXPECT_EQ(lmx_test::user_error([] { check_averages(yaml("name: adam"), "optimizer", yaml("name: cosine"), 0.9); }),
            "no error");
}

}  // namespace
}  // namespace lmx
