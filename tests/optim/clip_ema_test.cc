// Clipping by groups of parameters, and moving averages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lmx/optim.h"

namespace lmx {
namespace {

Node yaml(const std::string& text) {
  return parse_yaml(text, "r.yaml");
}
std::vector<ClipRule> rules(const std::string& text) {
  return read_clip(*yaml("clip: " + text).find("clip"), "clip");
}

// lstm.w (2) with gradient (3, 4); embedding (4, 2), rows 1 and 3 with gradient (6, 8), (0, 0); idle (1) without any.
struct Fixture {
  Fixture() {
    for (const auto& [name, shape] :
         std::vector<std::pair<std::string, Shape>>{{"lstm.w", {2}}, {"embedding", {4, 2}}, {"idle", {1}}}) {
      params.add(ctx, {name, shape, {"ones", 0}, false}, RandomKey(1));
    }
    params.at("lstm.w").grad().dense = tensor({2}, {3, 4});
    params.at("embedding").grad().pieces = {{{1, 3}, tensor({2, 2}, {6, 8, 0, 0}), true}};
  }
  static Tensor tensor(Shape s, const std::vector<float>& v) { return Tensor::from<float>(Allocator::cpu(), s, v); }
  std::vector<float> dense() const {
    const auto v = params.at("lstm.w").grad().dense.values<float>();
    return {v.begin(), v.end()};
  }
  std::vector<float> rows() const {
    const auto v = params.at("embedding").grad().pieces[0].rows.values<float>();
    return {v.begin(), v.end()};
  }
  Context ctx;
  ParameterStore params;
};

TEST(Clip, OneNumberIsTheGlobalNorm) {
  Fixture f;
  const ClipResult r = clip_gradients(f.ctx, f.params, rules("1"));
  EXPECT_DOUBLE_EQ(r.norm, std::sqrt(125.0));
  EXPECT_TRUE(r.finite);
  const auto scaled = [](double x) { return static_cast<float>(x) * static_cast<float>(1 / std::sqrt(125.0)); };
  EXPECT_EQ(f.dense(), (std::vector<float>{scaled(3), scaled(4)}));
  EXPECT_EQ(f.rows(), (std::vector<float>{scaled(6), scaled(8), 0, 0}));
  EXPECT_NEAR(clip_gradients(f.ctx, f.params, {}).norm, 1, 1e-6);
}

TEST(Clip, GroupsAreClippedApartAndTheFirstMatchCounts) {
  Fixture f;
  const ClipResult r =
      clip_gradients(f.ctx, f.params, rules("[{params: 'lstm\\..*', norm: 2.5}, {params: .*, norm: 20}]"));
  EXPECT_DOUBLE_EQ(r.norm, std::sqrt(125.0));  // of all, before clipping
  EXPECT_EQ(f.dense(), (std::vector<float>{1.5, 2}));
  EXPECT_EQ(f.rows(), (std::vector<float>{6, 8, 0, 0}));
  EXPECT_EQ(r.factor("lstm.w"), 0.5);
  EXPECT_EQ(r.factor("embedding"), 1);
}

TEST(Clip, PatternMatchesTheWholeNameAndZeroIsOff) {
  Fixture f;
  clip_gradients(f.ctx, f.params, rules("[{params: lstm, norm: 0.1}, {params: embed, norm: 0.1}]"));
  clip_gradients(f.ctx, f.params, rules("0"));
  clip_gradients(f.ctx, f.params, rules("null"));
  clip_gradients(f.ctx, f.params, rules("[]"));
  EXPECT_EQ(f.dense(), (std::vector<float>{3, 4}));
  EXPECT_EQ(f.rows(), (std::vector<float>{6, 8, 0, 0}));
}

TEST(Clip, MeasuringChangesNothing) {
  Fixture f;
  const ClipResult r = measure_gradients(f.ctx, f.params, rules("1"));
  EXPECT_DOUBLE_EQ(r.factor("lstm.w"), 1 / std::sqrt(125.0));
  EXPECT_EQ(f.dense(), (std::vector<float>{3, 4}));
}

TEST(Clip, NotFiniteIsReportedAndNotScaled) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Fixture f;
    f.params.at("embedding").grad().pieces[0].rows.data<float>()[3] = bad;
    const ClipResult r = clip_gradients(f.ctx, f.params, rules("1"));
    EXPECT_FALSE(r.finite);
    EXPECT_EQ(f.dense(), (std::vector<float>{3, 4}));
  }
}

TEST(Clip, Errors) {
  const auto message = [](const std::string& text) {
    try {
      rules(text);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("-1"), "r.yaml:1:7: clip: expected a norm >= 0 or a list of {params, norm}, got '-1'");
  EXPECT_EQ(message("{norm: 1}"), "r.yaml:1:7: clip: expected a norm >= 0 or a list of {params, norm}, got a map");
  EXPECT_EQ(message(".nan").substr(0, 35), "r.yaml:1:7: clip: expected a norm >");
  EXPECT_THAT(message("[{params: '[', norm: 1}]"), ::testing::HasSubstr("clip.0.params: '[' is no regular expression"));
  EXPECT_THAT(message("[{norm: 1}]"), ::testing::HasSubstr("clip.0.params: required"));
  EXPECT_THAT(message("[{params: .*, norm: -2}]"), ::testing::HasSubstr("clip.0.norm: must be >= 0, got -2"));
}

TEST(Ema, AveragesDenseAndTouchedRows) {
  Fixture f;
  Ema ema(f.ctx, f.params, 0.75, ".*");
  for (const char* name : {"lstm.w", "embedding", "idle"}) {
    Var& v = f.params.at(name);
    for (float& x : v.value().values<float>()) x = 5;
    ema.update(f.ctx, v);
  }
  const auto values = [](const Tensor& t) {
    return std::vector<float>(t.values<float>().begin(), t.values<float>().end());
  };
  const StateDict s = ema.state();
  EXPECT_EQ(values(s.at("lstm.w")), (std::vector<float>{2, 2}));
  EXPECT_EQ(values(s.at("embedding")), (std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2}));
  EXPECT_EQ(values(s.at("idle")), (std::vector<float>{1}));
}

TEST(Ema, SwapTwiceRestoresAndDropsCachedForms) {
  Fixture f;
  Ema ema(f.ctx, f.params, 0.5, "lstm.*");
  Var& w = f.params.at("lstm.w");
  w.value().data<float>()[0] = 9;
  const uint64_t version = w.version();
  ema.swap(f.params);
  EXPECT_EQ(w.value().data<float>()[0], 1);
  EXPECT_GT(w.version(), version);
  ema.swap(f.params);
  EXPECT_EQ(w.value().data<float>()[0], 9);
  EXPECT_EQ(f.params.at("embedding").version(), 0u);  // outside the pattern
}

TEST(Ema, StateRoundTripAndErrors) {
  Fixture f;
  Ema a(f.ctx, f.params, 0.5, "lstm.*"), b(f.ctx, f.params, 0.5, "lstm.*");
  f.params.at("lstm.w").value().data<float>()[1] = 4;
  a.update(f.ctx, f.params.at("lstm.w"));
  b.load(a.state());
  EXPECT_EQ(b.state().at("lstm.w").data<float>()[1], 2.5f);
  const auto message = [&](const StateDict& s) {
    try {
      b.load(s);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const Tensor good = Fixture::tensor({2}, {7, 7});
  EXPECT_EQ(message({}), "[ema] average of 'lstm.w' is missing");
  EXPECT_EQ(message({{"lstm.w", Fixture::tensor({1}, {0})}}),
            "[ema] average of 'lstm.w' is (1) f32, the parameter (2) f32");
  EXPECT_EQ(message({{"lstm.w", good}, {"lstm.v", good}}),
            "[ema] average of 'lstm.v', which is not averaged (did you mean 'lstm.w'?)");
  EXPECT_EQ(b.state().at("lstm.w").data<float>()[1], 2.5f);  // a refused state leaves everything as it was
  EXPECT_THROW(Ema(f.ctx, f.params, 1.0, ".*"), UserError);
  EXPECT_THROW(Ema(f.ctx, f.params, 0.5, "["), UserError);
  EXPECT_THROW(Ema(f.ctx, f.params, 0.5, "nothing"), UserError);
}

}  // namespace
}  // namespace lmx
