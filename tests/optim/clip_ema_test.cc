// Clipping by groups of parameters, and moving averages.
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "lmx/optim.h"
#include "optim/configs.h"
#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;
using lmx_test::rules;

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
  Context ctx;
  ParameterStore params;
};

TEST(Clip, OneNumberIsTheGlobalNorm) {
  Fixture f;
  const ClipResult r = measure_gradients(f.ctx, f.params, rules("1"));
  EXPECT_DOUBLE_EQ(r.norm, std::sqrt(125.0));
  EXPECT_TRUE(r.finite);
  for (const char* name : {"lstm.w", "embedding"}) EXPECT_DOUBLE_EQ(r.factor(name), 1 / std::sqrt(125.0));
}

TEST(Clip, GroupsAreClippedApartAndTheFirstMatchCounts) {
  Fixture f;
  const ClipResult r =
      measure_gradients(f.ctx, f.params, rules("[{params: 'lstm\\..*', norm: 2.5}, {params: .*, norm: 20}]"));
  EXPECT_DOUBLE_EQ(r.norm, std::sqrt(125.0));  // of all, before clipping
  EXPECT_EQ(r.factor("lstm.w"), 0.5);
  EXPECT_EQ(r.factor("embedding"), 1);
}

// Gradients of a scaled loss: the norms, and what the rules compare with them, are those of the loss itself.
TEST(Clip, NormsAreThoseOfTheUnscaledLoss) {
  Fixture f;
  const double scale = 1 / 4.0, norm = std::sqrt(125.0) * scale;
  const ClipResult r = measure_gradients(f.ctx, f.params, rules("1"), scale);
  EXPECT_DOUBLE_EQ(r.norm, norm);
  EXPECT_DOUBLE_EQ(r.factor("lstm.w"), scale / norm);
  // 3.5 is above the norm of the loss's gradients, but below that of the scaled ones.
  EXPECT_DOUBLE_EQ(measure_gradients(f.ctx, f.params, rules("3.5"), scale).factor("lstm.w"), scale);
}

TEST(Clip, PatternsAreSearchedForInNames) {
  Fixture f;
  const ClipResult r =
      measure_gradients(f.ctx, f.params, rules("[{params: '^embed', norm: 2.5}, {params: m.w, norm: 0.5}]"));
  EXPECT_EQ(r.factor("embedding"), 0.25);
  EXPECT_EQ(r.factor("lstm.w"), 0.1);
}

// An update with these factors is one with clipped gradients.
TEST(Clip, AnUpdateClipsWithoutChangingGradients) {
  Fixture f;
  const auto clip = rules("[{params: '^embed', norm: 2.5}, {params: m.w, norm: 0.5}]");
  const GradientMeasure measure(f.ctx, f.params, clip, 0.5);
  for (const char* name : {"lstm.w", "embedding"}) {
    const GradScale scale = measure.scale(name);
    EXPECT_EQ(scale.number, 0.5);
    EXPECT_EQ(scale.number * scale.factor.data<double>()[0], measure.result().factor(name)) << name;
  }
  EXPECT_EQ(measure.result().factor("embedding"), 0.25);
  EXPECT_EQ(measure.result().factor("lstm.w"), 0.1);
  EXPECT_EQ(f.dense(), (std::vector<float>{3, 4}));
}

TEST(Clip, ZeroIsOff) {
  Fixture f;
  for (const char* off : {"0", "null", "[]"})
    EXPECT_TRUE(measure_gradients(f.ctx, f.params, rules(off)).factors.empty()) << off;
}

// A rule that clips nothing is a mistake: nothing of the name, or an earlier rule that takes everything.
TEST(Clip, RulesWithoutParametersAreRefused) {
  const auto message = [](const std::string& text) {
    return user_error([&] { check_clip(rules(text), {"lstm.w", "lstm.b", "embedding"}); });
  };
  EXPECT_EQ(message("1"), "no error");
  EXPECT_EQ(message("[]"), "no error");
  EXPECT_EQ(message("[{params: lstm, norm: 1}, {params: .*, norm: 20}]"), "no error");
  EXPECT_THAT(message("[{params: lstm, norm: 1}, {params: '^rnn', norm: 2}]"),
              AllOf(Names("'^rnn'", "lstm.w, lstm.b, embedding"), StartsWith("r.yaml:1:42: clip.1.params: ")));
  EXPECT_THAT(message("[{params: .*, norm: 20}, {params: lstm, norm: 1}]"),
              AllOf(Names("'.*'", "lstm.w"), StartsWith("r.yaml:1:41: clip.1.params: ")));
}

TEST(Clip, NotFiniteIsReportedAndHasNoFactor) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Fixture f;
    f.params.at("embedding").grad().pieces[0].rows.data<float>()[3] = bad;
    const ClipResult r = measure_gradients(f.ctx, f.params, rules("1"));
    EXPECT_FALSE(r.finite);
    EXPECT_TRUE(r.factors.empty());
  }
}

TEST(Clip, Errors) {
  const auto message = [](const std::string& text) { return lmx_test::user_error([&] { rules(text); }); };
  EXPECT_EQ(message("-1"), "r.yaml:1:7: clip: expected a norm >= 0 or a list of {params, norm}, got '-1'");
  EXPECT_EQ(message("{norm: 1}"), "r.yaml:1:7: clip: expected a norm >= 0 or a list of {params, norm}, got a map");
  EXPECT_EQ(message("'1.0'"),
            "r.yaml:1:7: clip: expected a norm >= 0 or a list of {params, norm}, got '1.0', a text; remove its quotes");
  EXPECT_EQ(message(".nan").substr(0, 35), "r.yaml:1:7: clip: expected a norm >");
  EXPECT_THAT(message("[{params: '[', norm: 1}]"), Names("clip.0.params: '['"));
  EXPECT_THAT(message("[{norm: 1}]"), Names("clip.0.params:", "required"));
  EXPECT_THAT(message("[{params: .*, norm: -2}]"), Names("clip.0.norm:", ">= 0", "-2"));
}

std::vector<float> floats_of(const Tensor& t) {
  return {t.values<float>().begin(), t.values<float>().end()};
}

TEST(Ema, AveragesTouchedRowsAndRowsThatStoodStill) {
  Fixture f;
  Ema ema(f.params, 0.75, ParamPattern(".*"));
  // Rows 1 and 3 of the table move to 5 in the first update; the second and third leave them alone.
  ema.before_update(f.ctx, std::array<const Var*, 2>{&f.params.at("lstm.w"), &f.params.at("embedding")});
  for (const char* name : {"lstm.w", "embedding"}) {
    Var& v = f.params.at(name);
    const std::vector<int64_t> moved =
        v.shape().rank() == 2 ? std::vector<int64_t>{2, 3, 6, 7} : std::vector<int64_t>{0, 1};
    for (const int64_t i : moved) v.value().data<float>()[i] = 5;
  }
  ema.count_update();
  const StateDict once = ema.state(f.ctx, f.params);
  EXPECT_EQ(floats_of(once.at("lstm.w")), (std::vector<float>{2, 2}));
  EXPECT_EQ(floats_of(once.at("embedding")), (std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2}));
  EXPECT_EQ(floats_of(once.at("idle")), (std::vector<float>{1}));
  ema.count_update();
  ema.count_update();
  EXPECT_EQ(floats_of(ema.state(f.ctx, f.params).at("embedding")),
            (std::vector<float>{1, 1, 3.3125, 3.3125, 1, 1, 3.3125, 3.3125}));
}

// A run over a table (7, width): in each update some rows move by their gradient. `sparse`: the gradient is row-sparse;
// `looks`: the average is used and saved on the way.
template <class T>
std::vector<T> averaged_run(int64_t width, bool sparse, bool looks) {
  constexpr int64_t kRows = 7, kUpdates = 300;
  constexpr bool kDouble = std::is_same_v<T, double>;
  Context ctx;
  if (kDouble) ctx.compute = DType::f64;
  ParameterStore params;
  Var& table = params.add(ctx, {"table", {kRows, width}, {"normal", 1}, true}, RandomKey(3));
  if (kDouble) table.value() = table.value().to(DType::f64);
  Ema ema(params, 0.98, ParamPattern("^table$"));
  for (int64_t u = 0; u < kUpdates; ++u) {
    const RandomKey key = RandomKey(5).fold(static_cast<uint64_t>(u));
    std::vector<int32_t> rows;
    for (int32_t r = 0; r < kRows - 1; ++r)  // the last row never moves; row r about once in r + 1 updates
      if (key.uniform(static_cast<uint64_t>(r)) * (r * 20 + 1) < 1) rows.push_back(r);
    if (sparse && !rows.empty())
      table.grad().pieces = {{rows,
                              Tensor::from<T>(Allocator::cpu(), {static_cast<int64_t>(rows.size()), width},
                                              std::vector<T>(rows.size() * static_cast<size_t>(width), T(1))),
                              true}};
    else
      table.grad().dense = table.value();
    ema.before_update(ctx, std::array<const Var*, 1>{&table});
    for (const int32_t r : rows)
      for (int64_t i = 0; i < width; ++i)
        table.value().template data<T>()[r * width + i] +=
            static_cast<T>(key.uniform(static_cast<uint64_t>(100 + i))) - T(0.5);
    ema.count_update();
    table.grad() = {};
    if (!looks || u % 37 != 5) continue;
    ema.swap(ctx, params);
    ema.swap(ctx, params);
    const StateDict saved = ema.state(ctx, params);
    Ema resumed(params, 0.98, ParamPattern("^table$"));
    resumed.load(saved);
    ema = std::move(resumed);
  }
  ema.swap(ctx, params);
  const auto values = table.value().template values<T>();
  return {values.begin(), values.end()};
}

// Dense and row-sparse gradients, uses of the average on the way and a resume give the same bits.
TEST(Ema, RowSparseEqualsDenseToTheBit) {
  for (const int64_t width : {1, 5, 64, 200}) {
    const std::vector<float> dense = averaged_run<float>(width, false, false);
    EXPECT_EQ(averaged_run<float>(width, true, false), dense) << width;
    EXPECT_EQ(averaged_run<float>(width, true, true), dense) << width;
    EXPECT_EQ(averaged_run<float>(width, false, true), dense) << width;
  }
  EXPECT_EQ(averaged_run<double>(5, true, true), averaged_run<double>(5, false, false));
}

// A row that no update has touched for long: its average reaches the row's value, and waiting longer changes nothing.
TEST(Ema, LongWaitsEndAtTheValue) {
  const auto after = [](int64_t updates) {
    Fixture f;
    Ema ema(f.params, 0.9, ParamPattern("embedding"));
    ema.before_update(f.ctx, std::array<const Var*, 1>{&f.params.at("embedding")});
    for (int64_t i : {2, 3, 6, 7}) f.params.at("embedding").value().data<float>()[i] = 5;
    for (int64_t u = 0; u < updates; ++u) ema.count_update();
    return floats_of(ema.state(f.ctx, f.params).at("embedding"));
  };
  const std::vector<float> end = after(20'000'000);
  EXPECT_EQ(after(1000), end);
  for (const int64_t i : {2, 3, 6, 7}) EXPECT_NEAR(end[static_cast<size_t>(i)], 5, 5e-6);
  EXPECT_NE(after(20), end);
}

TEST(Ema, SwapTwiceRestoresAndDropsCachedForms) {
  Fixture f;
  Ema ema(f.params, 0.5, ParamPattern("lstm"));
  Var& w = f.params.at("lstm.w");
  w.value().data<float>()[0] = 9;
  const uint64_t version = w.version();
  ema.swap(f.ctx, f.params);
  EXPECT_EQ(w.value().data<float>()[0], 1);
  EXPECT_GT(w.version(), version);
  ema.swap(f.ctx, f.params);
  EXPECT_EQ(w.value().data<float>()[0], 9);
  EXPECT_EQ(f.params.at("embedding").version(), 0u);  // outside the pattern
}

TEST(Ema, StateRoundTripAndErrors) {
  Fixture f;
  Ema a(f.params, 0.5, ParamPattern("lstm")), b(f.params, 0.5, ParamPattern("lstm"));
  f.params.at("lstm.w").value().data<float>()[1] = 4;
  a.before_update(f.ctx, std::array<const Var*, 1>{&f.params.at("lstm.w")});
  a.count_update();
  b.load(a.state(f.ctx, f.params));
  EXPECT_EQ(b.state(f.ctx, f.params).at("lstm.w").data<float>()[1], 2.5f);
  const auto message = [&](const StateDict& s) { return lmx_test::user_error([&] { b.load(s); }); };
  const Tensor good = Fixture::tensor({2}, {7, 7});
  EXPECT_EQ(message({}), "[ema] average of 'lstm.w' is missing");
  EXPECT_EQ(message({{"lstm.w", Fixture::tensor({1}, {0})}}),
            "[ema] average of 'lstm.w' is (1) f32, the parameter (2) f32");
  EXPECT_EQ(message({{"lstm.w", good}, {"lstm.v", good}}),
            "[ema] average of 'lstm.v', which is not averaged (did you mean 'lstm.w'?)");
  EXPECT_EQ(b.state(f.ctx, f.params).at("lstm.w").data<float>()[1], 2.5f);  // a refused state changes nothing
  EXPECT_THROW(Ema(f.params, 1.0, ParamPattern(".*")), UserError);
  EXPECT_THROW(Ema(f.params, 0.5, ParamPattern("nothing")), UserError);
}

}  // namespace
}  // namespace lmx
