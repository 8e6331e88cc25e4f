// The points of a sweep, the names of its runs, and values that are written as overrides.
#include "app/compose/compose.h"
#include "app/compose/override.h"
#include "app/sweep/grid.h"
#include "lmx/random.h"
#include "test.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Sweeps : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("recipes/model/lstm.yaml", "cells: 16\n");
    folder_.write("recipes/model/rhn.yaml", "cells: 32\n");
    recipe_ =
        folder_.write("recipes/x.yaml", "defaults: [{model: lstm}]\nseed: 7\nname: ${lmx:job.name}-${lmx:job.num}\n");
  }
  std::vector<SweepAxis> axes(const std::vector<std::string>& overrides) const {
    return sweep_axes(recipe_, {overrides, {}, false, true});
  }
  lmx_test::TempFolder folder_;
  std::string recipe_;
};

TEST_F(Sweeps, TheLastAxisVariesFastest) {
  EXPECT_THAT(sweep_grid(axes({"model=glob(*)", "seed=range(2)", "~name"})),
              ElementsAre(ElementsAre("model=lstm", "seed=0", "~name"), ElementsAre("model=lstm", "seed=1", "~name"),
                          ElementsAre("model=rhn", "seed=0", "~name"), ElementsAre("model=rhn", "seed=1", "~name")));
}

TEST_F(Sweeps, ARecipesOwnParamsComeFirstAndGiveWay) {
  folder_.write("recipes/x.yaml", "seed: 7\nlr: 1\nsweep: {params: {seed: [1, 2], lr: '1e-3,3e-3'}}\n");
  EXPECT_THAT(sweep_grid(axes({"lr=5"})), ElementsAre(ElementsAre("seed=1", "lr=5"), ElementsAre("seed=2", "lr=5")));
  EXPECT_EQ(to_json(compose(recipe_, {})), R"({"seed": 7, "lr": 1})");  // one run has no sweep
}

// The options of groups bring theirs; of a group that is swept the first option does.
TEST_F(Sweeps, FilesOfGroupsHaveParamsToo) {
  folder_.write("recipes/scale/paper.yaml", "# @package _global_\nlr: 1\nsweep: {params: {lr: [1, 2]}}\n");
  folder_.write("recipes/scale/desk.yaml", "# @package _global_\nlr: 3\nsweep: {params: {lr: [3], seed: '1,2'}}\n");
  folder_.write("recipes/model/lstm.yaml", "cells: 16\nsweep: {params: {cells: [1, 2]}}\n");  // lands in model.sweep
  folder_.write(
      "recipes/x.yaml",
      "defaults: [_self_, {scale: paper}, {model: '?\?\?'}]\nlr: 0\nsweep: {seeds: 3, params: {model: [lstm, rhn]}}\n");
  const auto lines = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> points;
    for (const auto& point : sweep_grid(axes(overrides))) {
      std::string& line = points.emplace_back();
      for (const std::string& text : point) line += (line.empty() ? "" : " ") + text;
    }
    return points;
  };
  EXPECT_THAT(lines({}), ElementsAre("model=lstm lr=1", "model=lstm lr=2", "model=rhn lr=1", "model=rhn lr=2"));
  EXPECT_THAT(lines({"scale=desk", "model=rhn"}),
              ElementsAre("model=rhn lr=3 seed=1 scale=desk", "model=rhn lr=3 seed=2 scale=desk"));
  EXPECT_THAT(lines({"scale=desk,paper", "model=rhn", "seed=5"}),
              ElementsAre("model=rhn lr=3 seed=5 scale=desk", "model=rhn lr=3 seed=5 scale=paper"));
  EXPECT_EQ(to_json(sweep_section(recipe_, {{"scale=desk"}, {}, false, true})),
            R"({"seeds": 3, "params": {"model": ["lstm", "rhn"], "lr": [3], "seed": "1,2"}})");
  EXPECT_EQ(sweep_section(folder_.write("recipes/y.yaml", "seed: 1\n"), {}).kind, Node::Kind::null);
  EXPECT_EQ(to_json(compose(recipe_, {{"model=rhn"}, {}, false, true})), R"({"lr": 1, "model": {"cells": 32}})");
}

TEST_F(Sweeps, AnIntervalIsForRandomSearch) {
  const std::vector<SweepAxis> all = axes({"seed=tag(log,interval(1e-4,1))"});
  ASSERT_TRUE(all[0].interval.has_value());
  EXPECT_EQ(all[0].interval->first, 1e-4);
  EXPECT_THAT(all[0].tags, ElementsAre("log"));
  EXPECT_THAT(user_error([&] { sweep_grid(all); }), Names("interval()"));
}

TEST_F(Sweeps, Mistakes) {
  EXPECT_THAT(user_error([&] { axes({"modle=glob(*)"}); }), Names("'modle'", "'model'?"));
  EXPECT_THAT(user_error([&] { axes({"model=glob(x*)"}); }), Names("'model'", "lstm, rhn"));
  EXPECT_THAT(user_error([&] { axes({"~seed=1,2"}); }), Names("deletion", "'seed'"));
  EXPECT_THAT(user_error([&] {
                sweep_grid(axes({"seed=range(1000)", "lr=range(1000)"}));
              }),
              Names("100000 runs", "lr", "1000 values"));
}

TEST_F(Sweeps, ARunKnowsItsPlace) {
  ComposeOptions options;
  EXPECT_EQ(compose_run(recipe_, options, {"grid", 3}).find("name")->text, "grid-3");
  EXPECT_EQ(compose(recipe_, options).find("name")->text, "x-0");
}

TEST(OverrideDirname, IsSortedShortAndOneFolder) {
  EXPECT_EQ(override_dirname({"seed=3", "+a.b=x", "~c", "data.path=/x/y"}), "+a.b=x,data.path=_x_y,seed=3,~c");
  EXPECT_EQ(override_dirname({"seed=3", "lr=1"}, {{"seed"}, ";", "-"}), "lr-1");
  const std::string a = override_dirname({"name=" + std::string(500, 'a')}),
                    b = override_dirname({"name=" + std::string(501, 'a')});
  EXPECT_EQ(a.size(), 200u);
  EXPECT_NE(a, b);
}

TEST(ValueText, ReadsBackToTheSameValue) {
  const std::vector<std::string> bits{"a",   "1",     "2.5", ",",  "[",    "]",    "{",      "}",     "(",
                                      ")",   ":",     "'",   "\"", "\\",   " ",    "choice", "range", "sort",
                                      "str", "float", "$",   "${", "1e-3", "null", "true",   "ü",     "="};
  size_t read = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const RandomKey key = RandomKey(1).fold(i);
    std::string text = "k=";
    for (uint64_t n = key.below(0, 9), j = 1; j <= n; ++j) text += bits[key.below(j, bits.size())];
    try {
      const Override o = parse_override(text);
      std::vector<Term> terms;
      if (o.value) terms.push_back({*o.value, value_text(*o.value)});
      if (o.sweep) terms.insert(terms.end(), o.sweep->terms.begin(), o.sweep->terms.end());
      for (const Term& term : terms) {
        const Override again = parse_override("k=" + term.text);
        ASSERT_TRUE(again.value.has_value()) << text << " gives " << term.text;
        EXPECT_EQ(to_json(*again.value), to_json(term.value)) << text << " gives " << term.text;
      }
      ++read;
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(read, 3000u);
}

// Four kilobytes could hold ranges of three million values.
TEST(SweepValues, AreBoundedOverAllFunctions) {
  std::string text = "a=tag(";
  for (int i = 0; i < 40; ++i) text += "b=range(3333),";
  const std::string error = lmx_test::user_error([&] { parse_override(text + "1)"); });
  EXPECT_NE(error.find("more than 100000 values, all functions together"), std::string::npos) << error;
  parse_override("a=shuffle(range(9999))");
}

TEST(Overrides, AreText) {
  EXPECT_EQ(lmx_test::user_error([] { parse_override("a=b\xf5"); }), "override 'a=b\xf5': column 4: not UTF-8 text");
  EXPECT_EQ(parse_override("a=\xc3\xa9").value->text, "\xc3\xa9");
  const std::string longest(200, 'k');
  EXPECT_EQ(parse_override(longest + "." + longest + "=1").key.size(), 401u);
  EXPECT_THAT(lmx_test::user_error([&] { parse_override(longest + "k=1"); }), Names("201 bytes"));
  EXPECT_THAT(lmx_test::user_error([&] { parse_override("a={" + longest + "k: 1}"); }), Names("201 bytes"));
}

TEST(ReplacedValues, NewestFirstWithTheirPlaces) {
  const lmx_test::TempFolder folder;
  folder.write("model/small.yaml", "cells: 256\nname: lstm\n");
  folder.write("base.yaml", "model: {cells: 384, dropout: [0.1]}\nseed: ???\nsweep: {params: {seed: 1}}\n");
  const std::string recipe =
      folder.write("recipe.yaml", "defaults: [{model: small}, base, _self_]\nmodel: {cells: 512}\nunits: {a: 1}\n");
  ComposeOptions options;
  options.overrides = {"model.cells=1024", "model.dropout.0=0.2", "units=none", "seed=3"};
  const auto all = replaced_values(recipe, options);
  const auto text = [&](const std::string& path) {
    std::string values;
    for (const ReplacedValue& v : all.at(path))
      values += (values.empty() ? "" : ", ") + v.value + " at " + folder.shorten(to_string(v.mark));
    return values;
  };
  EXPECT_EQ(text("model.cells"), "512 at recipe.yaml:2:16, 384 at base.yaml:1:16, 256 at model/small.yaml:1:8");
  EXPECT_EQ(text("model.dropout"), "[0.1] at base.yaml:1:30");
  EXPECT_EQ(text("units"), "{\"a\": 1} at recipe.yaml:3:8");
  EXPECT_EQ(text("seed"), "??? at base.yaml:2:7");
  EXPECT_FALSE(all.contains("model.name"));
  EXPECT_FALSE(all.contains("sweep"));
  options.overrides = {};
  EXPECT_EQ(replaced_values(recipe, options).count("seed"), 0u);
}

}  // namespace
}  // namespace lmx::app
