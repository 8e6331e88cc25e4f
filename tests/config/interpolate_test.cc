// `${...}` in composed recipes.
#include <stdlib.h>

#include "app/compose/compose.h"
#include "lmx/config.h"
#include "test.h"

namespace lmx::app {
namespace {

Node resolved(const std::string& yaml) {
  const lmx_test::TempFolder folder;
  return compose(folder.write("x.yaml", yaml), {});
}
std::string value(const std::string& yaml) {
  return to_json(*resolved(yaml).find("v"));
}
std::string error(const std::string& yaml) {
  const lmx_test::TempFolder folder;
  const std::string file = folder.write("x.yaml", yaml);
  return folder.shorten(lmx_test::user_error([&] { compose(file, {}); }));
}

TEST(Interpolate, ReferencesKeepTheType) {
  EXPECT_EQ(value("a: {b: 512}\nv: ${a.b}\n"), "512");
  EXPECT_EQ(value("a: {b: '512'}\nv: ${a.b}\n"), "\"512\"");
  EXPECT_EQ(value("a: ~\nv: ${a}\n"), "null");
  EXPECT_EQ(value("a: [1, {x: 2}]\nv: ${a}\n"), R"([1, {"x": 2}])");
  EXPECT_EQ(value("a: [1, {x: 2}]\nv: ${a[1].x}\n"), "2");
  EXPECT_EQ(value("a: 1\nb: true\nv: d=${a}-${b}\n"), "\"d=1-true\"");
}

TEST(Interpolate, WhatIsNotWrittenHasItsDefault) {
  const lmx_test::TempFolder folder;
  const std::string file = folder.write("x.yaml", "v: ${seed}\nw: s${seed}\nx: ${oc.select:seed,5}\n");
  ComposeOptions options;
  EXPECT_EQ(folder.shorten(lmx_test::user_error([&] { compose(file, options); })),
            "x.yaml:1:4: v: ${seed}: no key 'seed'");
  options.default_of = [](const Node& tree, const std::string& path) {
    return path == "seed" && tree.find("v") ? std::optional(Node::scalar("1")) : std::nullopt;
  };
  EXPECT_EQ(to_json(compose(file, options)), R"({"v": 1, "w": "s1", "x": 5})");
  options.overrides = {"seed=3"};
  EXPECT_EQ(to_json(compose(file, options)), R"({"v": 3, "w": "s3", "x": 3, "seed": 3})");
}

TEST(Interpolate, ChainsNestingAndPathsThroughReferences) {
  EXPECT_EQ(value("a: ${b}\nb: ${c}\nc: 3\nv: ${a}\n"), "3");
  EXPECT_EQ(value("size: big\ndims: {big: 8, small: 2}\nv: ${dims.${size}}\n"), "8");
  EXPECT_EQ(value("base: {lr: {peak: 1}}\nuse: ${base}\nv: ${use.lr.peak}\n"), "1");
  EXPECT_EQ(value("v:\n  x: ${..y}\n  z:\n    w: ${..x}\ny: 5\n"), R"({"x": 5, "z": {"w": 5}})");
  EXPECT_EQ(value("v: [1, '${.0}']\n"), "[1, 1]");
}

TEST(Interpolate, FlowStyleNeedsQuotes) {
  EXPECT_NE(error("v: {x: ${y}, z: 1}\ny: 5\n").find("; inside [ ] or { } write '${...}' in quotes"),
            std::string::npos);
}

TEST(Interpolate, RelativeReferencesMeanTheirOwnPlaceWhenCopied) {
  EXPECT_EQ(value("a: {n: 1, m: '${.n}'}\nn: 9\nv: ${a}\n"), R"({"n": 1, "m": 1})");
}

TEST(Interpolate, Escapes) {
  EXPECT_EQ(value("v: \\${a}\n"), R"("${a}")");
  EXPECT_EQ(value("a: 1\nv: \\\\${a}\n"), R"("\\1")");
  EXPECT_EQ(value("v: 'cost $5 {x} \\ end'\n"), R"("cost $5 {x} \\ end")");
}

TEST(Interpolate, Environment) {
  setenv("LMX_TEST_SIZE", "4", 1);
  unsetenv("LMX_TEST_NONE");
  EXPECT_EQ(value("v: ${oc.env:LMX_TEST_SIZE}\n"), "\"4\"");
  EXPECT_EQ(value("v: ${oc.decode:${oc.env:LMX_TEST_SIZE}}\n"), "4");
  EXPECT_EQ(value("v: ${oc.env:LMX_TEST_NONE,7}\n"), "\"7\"");
  EXPECT_EQ(value("v: ${oc.env:LMX_TEST_NONE,null}\n"), "null");
  EXPECT_EQ(value("v: '${oc.env:LMX_TEST_NONE,\"a, b\"}/x'\n"), "\"a, b/x\"");
  EXPECT_EQ(value("home: /d\nv: ${oc.env:LMX_TEST_NONE,${home}/data}\n"), "\"/d/data\"");
  EXPECT_EQ(error("v: ${oc.env:LMX_TEST_NONE}\n"),
            "x.yaml:1:4: v: ${oc.env:LMX_TEST_NONE}: the environment variable LMX_TEST_NONE is not set; set it, or "
            "give a default: "
            "${oc.env:LMX_TEST_NONE,default}");
}

TEST(Interpolate, SelectKeysValuesAndNow) {
  EXPECT_EQ(value("v: ${oc.select:no.such,fallback}\n"), "\"fallback\"");
  EXPECT_EQ(value("a: 3\nv: ${oc.select:a,fallback}\n"), "3");
  EXPECT_EQ(value("v: ${oc.select:none}\n"), "null");
  EXPECT_EQ(value("a: {x: 1, y: 2}\nv: ${oc.dict.keys:a}\n"), R"(["x", "y"])");
  EXPECT_EQ(value("a: {x: 1, y: 2}\nv: ${oc.dict.values:a}\n"), "[1, 2]");
  EXPECT_FALSE(
      lmx_test::first_match(value("v: ${now:%Y-%m-%d}/${now:%H,%M}\n"), "^\"\\d{4}-\\d\\d-\\d\\d/\\d\\d,\\d\\d\"$")
          .empty());
}

TEST(Interpolate, OverridesAreSeen) {
  const lmx_test::TempFolder folder;
  ComposeOptions options;
  options.overrides = {"a=5", "w=${a}"};
  EXPECT_EQ(to_json(compose(folder.write("x.yaml", "a: 1\nv: ${a}\n"), options)), R"({"a": 5, "v": 5, "w": 5})");
  options.resolve = false;
  EXPECT_EQ(to_json(compose(folder.path("x.yaml"), options)), R"({"a": 5, "v": "${a}", "w": "${a}"})");
}

TEST(Interpolate, MissingValuesStayUnlessTheyAreNeeded) {
  EXPECT_EQ(value("v: '\?\?\?'\n"), "\"\?\?\?\"");
  EXPECT_EQ(error("a: '\?\?\?'\nv: ${a}\n"), "x.yaml:2:4: v: ${a} needs 'a', which is not given; set a=...");
}

TEST(Interpolate, EachMistakeHasItsMessage) {
  const std::pair<const char*, const char*> cases[] = {
      {"train: {dim: '${modle.dim}'}\nmodel: {dim: 3}\n",
       "x.yaml:1:14: train.dim: ${modle.dim}: no key 'modle.dim' (did you mean 'model.dim'?)"},
      {"a: ${b}\nb: x${c}\nc: ${a}\n", "x.yaml:1:4: a: interpolations go round in a circle: a -> b -> c -> a"},
      {"a: ${a}\n", "x.yaml:1:4: a: interpolations go round in a circle: a -> a"},
      {"a: {b: '${a}'}\n", "x.yaml:1:8: a.b: refers to 'a', which holds it"},
      {"a: {x: '${b}'}\nb: {y: '${a}'}\n", "x.yaml:1:8: a.x: interpolations go round in a circle: a.x -> b.y -> a.x"},
      {"a: ${b\nb: 1\n", "x.yaml:1:4: a: '${b': '${' is never closed by '}'; write \\${ for the plain text"},
      {"a: ${}\n", "x.yaml:1:4: a: ${} is no reference; expected ${a.b} or ${resolver:argument}"},
      {"a: ${b c}\nb: 1\n", "x.yaml:1:4: a: ${b c} is no reference; expected ${a.b} or ${resolver:argument}"},
      {"a: ${...x}\n", "x.yaml:1:4: a: ${...x} goes above the root of the recipe"},
      {"a: {b: 1}\nc: x${a}\n", "x.yaml:2:4: c: ${a} is a map, which cannot be part of a text"},
      {"a: ${oc.evn:X}\n",
       "x.yaml:1:4: a: ${oc.evn:X}: unknown resolver 'oc.evn' (did you mean 'oc.env'?); there are lmx, now, oc.create, "
       "oc.decode, oc.deprecated, oc.dict.keys, oc.dict.values, oc.env, oc.select"},
      {"a: ${oc.env:X,1,2}\n", "x.yaml:1:4: a: ${oc.env:X,1,2}: oc.env takes 1 to 2 arguments, got 3"},
      {"a: ${oc.dict.keys:b}\nb: 1\n", "x.yaml:1:4: a: ${oc.dict.keys:b}: 'b' is '1', expected a map"},
      {"a: ${lmx:job.nmae}\n",
       "x.yaml:1:4: a: ${lmx:job.nmae}: a run has no 'job.nmae' (did you mean 'job.name'?); there are job.name, "
       "job.num, "
       "job.override_dirname, runtime.cwd, runtime.version"},
      {"a: ${now:}\n", "x.yaml:1:4: a: ${now:}: now takes 1 arguments, got 0"},
  };
  for (const auto& [yaml, message] : cases) EXPECT_EQ(error(yaml), message) << yaml;
}

TEST(Interpolate, AnEnvironmentThatIsNoText) {
  setenv("LMX_TEST_BYTES", "a\xff", 1);
  EXPECT_EQ(error("a: ${oc.env:LMX_TEST_BYTES}\n"),
            "x.yaml:1:4: a: ${oc.env:LMX_TEST_BYTES}: the environment variable LMX_TEST_BYTES is not UTF-8 text");
  unsetenv("LMX_TEST_BYTES");
}

TEST(Interpolate, GrowthIsBounded) {
  std::string doubling = "a0: xxxxxxxxxxxxxxxx\n", empty = "a0: ''\n", lists = "a0: []\n", maps = "a0: {}\n";
  for (int i = 1; i < 40; ++i) {
    const std::string name = "a" + std::to_string(i) + ": ", before = "${a" + std::to_string(i - 1) + "}";
    doubling += name + "x" + before + before + "\n";
    empty += name + before + before + "\n";
    lists += name + "['" + before + "', '" + before + "']\n";
    maps += name + "{b: '${oc.select:a" + std::to_string(i - 1) + "}', c: '" + before + "'}\n";
  }
  EXPECT_NE(error(doubling).find("x.yaml:"), std::string::npos);
  EXPECT_EQ(error(empty), "no error");  // each path is worked out once
  EXPECT_NE(error(lists).find("expand to more than 500000 values"), std::string::npos);
  EXPECT_NE(error(maps).find("expand to more than 500000 values"), std::string::npos);
  std::string wide = "a: " + std::string(500'000, 'x') + "\nb:\n";
  for (int i = 0; i < 200; ++i) wide += "  - ${a}\n";
  EXPECT_NE(error(wide).find("expand to more than 64 MiB of text"), std::string::npos);
  std::string chain = "a0: 1\n";
  for (int i = 1; i < 1000; ++i) chain = "a" + std::to_string(i) + ": ${a" + std::to_string(i - 1) + "}\n" + chain;
  EXPECT_NE(error(chain).find("nested deeper than 100 levels"), std::string::npos);
}

}  // namespace
}  // namespace lmx::app
