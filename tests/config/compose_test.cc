// Recipes composed from files: defaults lists, groups, packages, overrides, and the messages of what goes wrong.
#include "app/compose/compose.h"
#include "lmx/config.h"
#include "test.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Compose : public ::testing::Test {
 protected:
  Compose() {
    folder.write("recipes/model/lstm.yaml", "name: lstm\ncells: 8\n");
    folder.write("recipes/model/rhn.yaml", "name: rhn\ndepth: 3\n");
    folder.write("recipes/sync/allreduce.yaml", "rest: {strategy: allreduce}\n");
    folder.write("recipes/sync/unique.yaml", "tables: {strategy: unique}\n");
    recipe("defaults:\n  - model: lstm\n  - _self_\nseed: 7\nmodel:\n  cells: 16\n");
  }

  void recipe(const std::string& text) { folder.write("recipes/x.yaml", text); }
  Node composed(const std::vector<std::string>& overrides = {}, bool typed = true) const {
    ComposeOptions options;
    options.overrides = overrides;
    options.typed = typed;
    return compose(folder.path(file), options);
  }
  std::string json(const std::vector<std::string>& overrides = {}) const { return to_json(composed(overrides)); }
  std::string error(const std::vector<std::string>& overrides = {}, bool typed = true) const {
    return folder.shorten(user_error([&] { composed(overrides, typed); }));
  }

  TempFolder folder;
  std::string file = "recipes/x.yaml";
};

TEST_F(Compose, OwnValuesComeLastAndKeepTheirPlaces) {
  const Node root = composed();
  EXPECT_EQ(to_json(root), R"({"model": {"name": "lstm", "cells": 16}, "seed": 7})");
  EXPECT_EQ(folder.shorten(to_string(root.at_path("model.cells")->mark)), "recipes/x.yaml:6:10");
  EXPECT_EQ(folder.shorten(to_string(root.at_path("model.name")->mark)), "recipes/model/lstm.yaml:1:7");
}

TEST_F(Compose, AFileWithoutDefaultsAndAnEmptyFile) {
  recipe("a: 1\n");
  EXPECT_EQ(json(), R"({"a": 1})");
  recipe("");
  EXPECT_EQ(json(), "{}");
  EXPECT_EQ(json({"a.b=1"}), R"({"a": {"b": 1}})");
}

TEST_F(Compose, SubfoldersFindTheGroupsOfTheRecipesFolder) {
  folder.write("recipes/papers/y.yaml", "defaults: [{model: rhn}, {near: one}]\n");
  folder.write("recipes/papers/near/one.yaml", "v: 1\n");
  file = "recipes/papers/y.yaml";
  EXPECT_EQ(json(), R"({"model": {"name": "rhn", "depth": 3}, "near": {"v": 1}})");
}

TEST_F(Compose, TheSearchPathComesAfterTheRecipesOwnFolder) {
  folder.write("more/model/lstm.yaml", "name: other\n");
  folder.write("more/model/gpt.yaml", "name: gpt\n");
  ComposeOptions options;
  options.search_path = {folder.path("more")};
  EXPECT_EQ(compose(folder.path(file), options).at_path("model.name")->text, "lstm");
  options.overrides = {"model=gpt"};
  EXPECT_EQ(compose(folder.path(file), options).at_path("model.name")->text, "gpt");
}

TEST_F(Compose, AFolderOfGroupsHasToBeThere) {
  ComposeOptions options;
  options.search_path = {folder.path("none")};
  EXPECT_EQ(user_error([&] { compose(folder.path(file), options); }),
            "--config-dir " + folder.path("none") + ": there is no such folder");
}

TEST_F(Compose, AbsoluteGroupsFlowStyleAndPackages) {
  recipe("defaults: [ {/sync: allreduce}, {model@encoder: lstm}, {model@decoder: rhn}, _self_ ]\n");
  EXPECT_EQ(json(), R"({"sync": {"rest": {"strategy": "allreduce"}}, "encoder": {"name": "lstm", "cells": 8}, )"
                    R"("decoder": {"name": "rhn", "depth": 3}})");
  EXPECT_EQ(json({"model@decoder=lstm", "sync=unique"}),
            R"({"sync": {"tables": {"strategy": "unique"}}, "encoder": {"name": "lstm", "cells": 8}, )"
            R"("decoder": {"name": "lstm", "cells": 8}})");
  EXPECT_EQ(
      error({"model=rhn"}),
      "override 'model=rhn': no defaults list chooses the group 'model'; name one of model@decoder, model@encoder");
}

TEST_F(Compose, ADirectiveBelowOtherCommentsCounts) {
  folder.write("recipes/scale/desk.yaml",
               "# Small enough for a desk.\n\n# @package _global_\nseed: 1\nmodel: {cells: 4}\n");
  recipe("defaults: [{model: lstm}, {scale: desk}]\n");
  EXPECT_EQ(json(), R"({"model": {"name": "lstm", "cells": 4}, "seed": 1})");
}

TEST_F(Compose, AnExperimentReselectsGroups) {
  folder.write("recipes/experiment/deep.yaml", "# @package _global_\ndefaults:\n  - override /model: rhn\nseed: 9\n");
  EXPECT_EQ(json({"+experiment=deep"}), R"({"model": {"name": "rhn", "depth": 3, "cells": 16}, "seed": 9})");
  EXPECT_EQ(json({"+experiment=deep", "model=lstm"}), R"({"model": {"name": "lstm", "cells": 16}, "seed": 9})");
}

TEST_F(Compose, MistakesInDefaultsLists) {
  const std::pair<const char*, const char*> cases[] = {
      {"defaults:\n  - model: lstn\n",
       "recipes/x.yaml:2:5: group 'model' has no option 'lstn' (did you mean 'lstm'?) (options: lstm, rhn)"},
      {"defaults: {model: lstm}\n",
       "recipes/x.yaml:1:11: defaults must be a list (lines that start with `- `), got a map"},
      {"defaults:\n  - {model: lstm, sync: unique}\n",
       "recipes/x.yaml:2:5: an entry of a defaults list has one key, got model, sync; write them as two entries"},
      {"defaults: [_self_, _self_]\n", "recipes/x.yaml:1:20: _self_ is here twice; the first is at line 1"},
      {"defaults: [{override model: rhn}, {model: lstm}]\n",
       "recipes/x.yaml:1:12: override model must be at the end of the defaults list, after model"},
      {"defaults: [{model: lstm}, {override sync: unique}]\n",
       "recipes/x.yaml:1:27: no defaults list chooses the group 'sync' (override sync)"},
      {"defaults: [{model: 'lstm'}, {model: rhn}]\n",
       "recipes/x.yaml:1:12: group 'model' is chosen twice, also at recipes/x.yaml:1:29; to choose another option "
       "write "
       "`override model: option`, or model=option on the command line"},
      {"defaults: [{model: {a: 1}}]\n",
       "recipes/x.yaml:1:20: group 'model' takes the name of an option or a list of names, got a map"},
      {"defaults: [{model: '\?\?\?'}]\n",
       "recipes/x.yaml:1:12: group 'model' must be chosen: model=OPTION (options: lstm, rhn)"},
      {"defaults: [[a]]\n",
       "recipes/x.yaml:1:12: an entry of a defaults list is `group: option`, a file or _self_, got a list"},
      {"defaults: [{model: '${modle}'}]\n",
       "recipes/x.yaml:1:20: ${modle}: a defaults list can refer to chosen groups only (model) (did you mean "
       "'model'?)"},
      {"- a\n", "recipes/x.yaml:1:1: expected a map (key: value lines), got a list"},
  };
  for (const auto& [text, message] : cases) {
    recipe(text);
    EXPECT_EQ(error(), message) << text;
  }
  recipe("defaults: [{modle: lstm}]\n");
  EXPECT_EQ(error().substr(0, 66), "recipes/x.yaml:1:12: no group 'modle' (did you mean 'model'?); sea");
  recipe("defaults: [model/lstn]\n");
  EXPECT_EQ(error().substr(0, 68), "recipes/x.yaml:1:12: no file model/lstn.yaml (did you mean 'lstm'?);");
}

TEST_F(Compose, ADirectiveWithAColonANumberForAFileAndTomlAreMistakes) {
  folder.write("recipes/model/colon.yaml", "# @package: _global_\nname: x\n");
  recipe("defaults: [{model: colon}]\n");
  EXPECT_THAT(error(), Names("model/colon.yaml:1:3: ", "# @package _global_"));
  folder.write("recipes/12.yaml", "name: x\n");
  recipe("defaults:\n  - 12\n");
  EXPECT_THAT(error(), Names(":2:5: 12 ", "'12'"));
  recipe("defaults:\n  - '12'\n");
  EXPECT_EQ(json(), R"({"name": "x"})");
  EXPECT_THAT(user_error([&] { compose(folder.write("recipes/x.toml", "a = 1\n"), {}); }), Names("x.toml: "));
}

TEST_F(Compose, AFileThatIsIncludedTwiceIsNamedByWhatIncludesIt) {
  folder.write("recipes/base.yaml", "defaults: [{model: lstm}]\n");
  folder.write("recipes/other.yaml", "defaults: [base]\n");
  recipe("defaults:\n  - base\n  - other\n");
  EXPECT_THAT(error(), Names("group 'model'", "base.yaml:1:12", ":2:5", ":3:5"));
}

TEST_F(Compose, AFolderIsSearchedOnceHoweverOftenItIsNamed) {
  ComposeOptions options;
  options.search_path = {folder.path("recipes"), folder.path("recipes/../recipes")};
  recipe("defaults: [{modell: lstm}]\n");
  const std::string message = user_error([&] { compose(folder.path(file), options); });
  const std::string searched = message.substr(std::min(message.size(), message.find("searched: ")));
  EXPECT_THAT(searched, HasSubstr(folder.path("recipes")));
  EXPECT_EQ(searched.find(folder.path("recipes")), searched.rfind(folder.path("recipes"))) << message;
  EXPECT_THAT(message, Names("--config-dir"));
}

TEST_F(Compose, FilesThatIncludeEachOther) {
  folder.write("recipes/a.yaml", "defaults: [b]\n");
  folder.write("recipes/b.yaml", "defaults: [a]\n");
  recipe("defaults: [a]\n");
  EXPECT_EQ(
      error(),
      "recipes/a.yaml: its defaults lists include each other: recipes/a.yaml -> recipes/b.yaml -> recipes/a.yaml");
}

TEST_F(Compose, AMistakeInAnIncludedFileNamesThatFile) {
  folder.write("recipes/model/lstm.yaml", "name: lstm\ncells:8\n");
  EXPECT_EQ(error(), "recipes/model/lstm.yaml:2:1: key 'cells:8' has no value: write 'cells: 8'");
}

TEST_F(Compose, ADecimalCommaInAFlowMapIsNamed) {
  folder.write("recipes/model/lstm.yaml", "{name: lstm, cells: 0,5}\n");
  EXPECT_EQ(error(), "recipes/model/lstm.yaml:1:23: key '5' has no value: a decimal number has a point and no comma");
}

TEST_F(Compose, GroupsOnTheCommandLine) {
  EXPECT_EQ(json({"model=rhn"}), R"({"model": {"name": "rhn", "depth": 3, "cells": 16}, "seed": 7})");
  EXPECT_EQ(json({"+sync=unique", "model.cells=1"}),
            R"({"model": {"name": "lstm", "cells": 1}, "seed": 7, "sync": {"tables": {"strategy": "unique"}}})");
  EXPECT_EQ(json({"~model"}), R"({"seed": 7, "model": {"cells": 16}})");
  EXPECT_EQ(error({"model=lst"}),
            "override 'model=lst': group 'model' has no option 'lst' (did you mean 'lstm'?) (options: lstm, rhn)");
  EXPECT_EQ(error({"sync=unique"}),
            "override 'sync=unique': no defaults list chooses the group 'sync'; +sync=unique adds it");
  EXPECT_EQ(error({"++model=rhn"}),
            "override '++model=rhn': ++ does not choose groups; write model=rhn, or +model=rhn where no defaults list "
            "has it");
  EXPECT_EQ(error({"~model", "+model=rhn"}),
            "override '~model': removes the group that +model=... adds; choose another option with model=...");
  EXPECT_EQ(error({"~model=rhn"}), "override '~model=rhn': group 'model' has the option 'lstm', not 'rhn'");
  EXPECT_EQ(error({"model=null"}),
            "override 'model=null': a group needs an option (lstm, rhn); '~model' removes the group");
}

// `model=3` where the recipe writes `model` itself: the group is meant only if a defaults list chooses it.
TEST_F(Compose, AnIncludedFileWithoutTheGroupDoesNotChooseIt) {
  folder.write("recipes/base.yaml", "v: 1\n");
  recipe("defaults: [base, _self_]\nmodel: 2\n");
  EXPECT_EQ(json({"model=3"}), R"({"v": 1, "model": 3})");
  folder.write("recipes/base.yaml", "defaults: [{model: lstm}]\nv: 1\n");
  recipe("defaults: [base, _self_]\nmodel: {cells: 2}\n");
  EXPECT_EQ(json({"model=rhn"}), R"({"model": {"name": "rhn", "depth": 3, "cells": 2}, "v": 1})");
  // In the folder of a group, names are relative to that group.
  folder.write("recipes/papers/y.yaml", "defaults: [{model: small}]\n");
  folder.write("recipes/papers/model/small.yaml", "size: 1\n");
  recipe("defaults: [papers/y, _self_]\nmodel: 2\n");
  EXPECT_EQ(to_json(*composed({"model=3"}).find("model")), "3");
  folder.write("recipes/papers/y.yaml", "defaults: [{/model@_global_.model: lstm}]\n");
  recipe("defaults: [papers/y, _self_]\nmodel: {cells: 2}\n");
  EXPECT_EQ(to_json(*composed({"model=rhn"}).find("model")), R"({"name": "rhn", "depth": 3, "cells": 2})");
}

TEST_F(Compose, AChoiceThatIsTypedMustExistEvenWhereItIsOptional) {
  recipe("defaults: [{optional model: none}]\nseed: 1\n");
  EXPECT_EQ(json(), R"({"seed": 1})");
  EXPECT_EQ(error({"model=lst"}),
            "override 'model=lst': group 'model' has no option 'lst' (did you mean 'lstm'?) (options: lstm, rhn)");
}

TEST_F(Compose, ValuesOnTheCommandLine) {
  EXPECT_EQ(json({"seed=1_0", "model={tied: true}", "+model.sizes=[1,'a,b',{k: 2.5}]"}),
            R"({"model": {"name": "lstm", "cells": 16, "tied": true, "sizes": [1, "a,b", {"k": 2.5}]}, "seed": 10})");
  EXPECT_EQ(json({"seed=a b", "~model.name"}), R"({"model": {"cells": 16}, "seed": "a b"})");
}

TEST_F(Compose, MistakesInOverrides) {
  const std::pair<const char*, const char*> cases[] = {
      {"seed", "override 'seed': expected key=value without blanks, such as seed=1"},
      {"0.2", "override '0.2': expected key=value without blanks, such as optimizer.lr=0.1"},
      {"a/b.yaml", "override 'a/b.yaml': expected key=value without blanks, such as optimizer.lr=0.1"},
      {"=3", "override '=3': the key is missing: expected key=value"},
      {"seed =3", "override 'seed =3': the key contains a blank; expected key=value"},
      {"a..b=3", "override 'a..b=3': the key 'a..b' has an empty part"},
      {"seed=a=b", "override 'seed=a=b': column 7: a bare '=' in a value: quote the value or write \\="},
      {"seed=[1,2", "override 'seed=[1,2': column 6: '[' is never closed by ']'"},
      {"seed={a:1", "override 'seed={a:1': column 6: '{' is never closed by '}'"},
      {"seed={a}", "override 'seed={a}': column 8: expected ':' after the key 'a'"},
      {"seed={a:1,a:2}", "override 'seed={a:1,a:2}': column 13: key 'a' is here twice"},
      {"seed=[1,,2]", "override 'seed=[1,,2]': column 9: a value is missing"},
      {"seed=1]", "override 'seed=1]': column 7: ']' in a plain value: quote the value or write \\]"},
      {"seed='x", "override 'seed='x': column 6: this quote is never closed"},
      {"seed='x'y",
       "override 'seed='x'y': column 9: unexpected 'y' after the value; quote the value if it is one text"},
      {"seed=${a", "override 'seed=${a': column 6: '${' is never closed by '}'"},
      {"seed=1,2",
       "override 'seed=1,2': several values are a sweep (multirun), which is `lmx sweep`; a list is seed=[1,2], a text "
       "with commas seed='1,2'"},
      {"seed=range(1,3)", "override 'seed=range(1,3)': range() belongs to a sweep (multirun), which is `lmx sweep`"},
      {"seed=itn(3)",
       "override 'seed=itn(3)': column 6: unknown function 'itn' (did you mean 'int'?); quote the value if it is a "
       "text"},
      {"seed=int(x)", "override 'seed=int(x)': column 6: int(): cannot take 'x'"},
      {"seed=bool(yes)", "override 'seed=bool(yes)': column 6: bool(): cannot take 'yes'"},
      {"seed=[1,int(null)]", "override 'seed=[1,int(null)]': column 9: int(): cannot take null"},
      {"model.größe=größe=1",
       "override 'model.größe=größe=1': column 18: a bare '=' in a value: quote the value or write \\="},
      {"größe[0]=1",
       "override 'größe[0]=1': column 6: '[' in a key: expected key=value; an item of a list is key.0=value"},
      {"+++seed=1",
       "override '+++seed=1': column 3: '+' begins no key; expected key=value, +key=value, ++key=value or ~key"},
      {"~~seed", "override '~~seed': column 2: '~' begins no key; expected key=value, +key=value, ++key=value or ~key"},
      {"seed.x=1", "override 'seed.x=1': no key 'seed.x'; seed is '7' (recipes/x.yaml:4:7)"},
      {"+seed=1",
       "override '+seed=1': 'seed' is there already (recipes/x.yaml:4:7); write seed=1 without +, or ++seed=1, which "
       "adds or overrides"},
      {"~sed", "override '~sed': no key 'sed' (did you mean 'seed'?); keys of the recipe: model, seed"},
      {"~seed=8", "override '~seed=8': 'seed' is 7, not 8"},
  };
  for (const auto& [override_text, message] : cases) EXPECT_EQ(error({override_text}), message);
}

// A key that contains a dot is none that an override or a reference can name, so no message proposes it.
TEST_F(Compose, AProposedKeyWorks) {
  recipe("notes: {a.b: 1, b.c: {d: 2}, words: {x: 3}}\nn: ${notes.a.c}\n");
  EXPECT_THAT(error(), testing::AllOf(testing::HasSubstr("no key 'notes.a.c'"), Not(testing::HasSubstr("a.b"))));
  recipe("notes: {a.b: 1, b.c: {d: 2}, words: {x: 3}}\n");
  EXPECT_EQ(error({"~notes.a.c"}), "override '~notes.a.c': no key 'notes.a.c'; keys of notes: words");
  EXPECT_EQ(error({"~notes.b.c.d"}), "override '~notes.b.c.d': no key 'notes.b.c.d'; keys of notes: words");
  EXPECT_EQ(error({"~notes.wordz"}),
            "override '~notes.wordz': no key 'notes.wordz' (did you mean 'notes.words'?); keys of "
            "notes: words");
  EXPECT_EQ(error({"~notes.words"}), "no error");
}

TEST_F(Compose, EnvironmentVariablesOfARecipe) {
  ASSERT_EQ(setenv("LMX_TEST_A", "secret", 1), 0);
  ASSERT_EQ(unsetenv("LMX_TEST_B"), 0);
  recipe("a: ${oc.env:LMX_TEST_A}\nb: [x, '${oc.env:LMX_TEST_A,1}/${oc.env:LMX_TEST_B,2}']\nc: 3\n");
  EXPECT_THAT(environment_values(folder.path(file), {}), testing::ElementsAre("LMX_TEST_A (a, b.1)"));
  ComposeOptions without;
  without.overrides = {"a=1", "~b"};
  EXPECT_THAT(environment_values(folder.path(file), without), testing::IsEmpty());
  unsetenv("LMX_TEST_A");
}

TEST_F(Compose, WithoutTypedConfigsANewKeyNeedsAPlus) {
  EXPECT_EQ(error({"sed=1"}, false),
            "override 'sed=1': no key 'sed' (did you mean 'seed'?); keys of the recipe: model, seed; +sed=1 adds it");
  EXPECT_EQ(error({"model.celsl=1"}, false),
            "override 'model.celsl=1': no key 'model.celsl' (did you mean 'model.cells'?); keys of model: name, cells; "
            "+model.celsl=1 adds it");
  EXPECT_EQ(
      error({"snyc=rhn"}, false),
      "override 'snyc=rhn': no key 'snyc' (did you mean 'sync'?); keys of the recipe: model, seed; +snyc=rhn adds it");
  EXPECT_EQ(error({"model.celsl=1"}, true), "no error");  // the typed config says it, with all its keys
}

TEST_F(Compose, ListsByIndex) {
  recipe("stages: [{lr: 1}, {lr: 2}]\n");
  EXPECT_EQ(json({"stages.1.lr=3"}), R"({"stages": [{"lr": 1}, {"lr": 3}]})");
  EXPECT_EQ(error({"stages.2.lr=3"}),
            "override 'stages.2.lr=3': no key 'stages.2.lr'; stages has 2 items, counted from 0");
}

struct Cells {
  int64_t cells = 1;
  void fields(Fields& f) { f.field("cells", cells, "cells of a layer", kPositive); }
};

// An override that a file holds is told by its place there.
TEST_F(Compose, OverridesMayStandInAFile) {
  const auto told = [&](const std::string& text) {
    ComposeOptions options;
    options.overrides = {text};
    options.places = {{text, {{"s.yaml", 3, 5}, {"s.yaml", 3, 17}}}};
    return user_error([&] { read_config<Cells>(*compose(folder.path(file), options).find("model"), "model"); });
  };
  recipe("defaults: [{model: lstm}]\nmodel: {name: x}\n");
  EXPECT_EQ(told("model.cels=3"), "s.yaml:3:5: unknown key model.cels (did you mean 'cells'?)");
  EXPECT_EQ(told("model.cells=x"), "s.yaml:3:17: model.cells: expected an integer, got 'x'");
  EXPECT_EQ(told("model=adm"), "s.yaml:3:5: group 'model' has no option 'adm' (options: lstm, rhn)");
}

struct Pair {
  int64_t least = 1, most = 2;
  void fields(Fields& f) {
    f.field("least", least, "at least");
    f.field("most", most, "at most");
  }
  void check(const std::string& where) const {
    if (least > most) throw UserError(where + ".least: above most");
  }
};

// What came last has made the pair illegal, not the file that holds the rest of it.
TEST_F(Compose, AnIllegalPairNamesTheOverridesThatMadeIt) {
  recipe("pair: {least: 3, most: 4}\n");
  const auto told = [&](const std::vector<std::string>& overrides) {
    return folder.shorten(user_error([&] { read_config<Pair>(*composed(overrides).find("pair"), "pair"); }));
  };
  EXPECT_EQ(told({}), "no error");
  EXPECT_EQ(told({"pair.most=2"}), "override 'pair.most=2': pair.least: above most");
  EXPECT_EQ(told({"pair.most=7", "pair.least=8"}),
            "override 'pair.least=8', override 'pair.most=7': pair.least: above most");
  recipe("pair: {least: 5, most: 4}\n");
  EXPECT_EQ(told({}), "recipes/x.yaml:1:7: pair.least: above most");
}

TEST_F(Compose, ATypedMistakeNamesItsOverride) {
  const auto typed_error = [&](const std::string& text) {
    return user_error([&] {
      Node model = *composed({text}).find("model");
      read_config<Cells>(model, "model");
    });
  };
  EXPECT_EQ(typed_error("model.cells=abc"), "override 'model.cells=abc': expected an integer, got 'abc'");
  EXPECT_EQ(typed_error("model.cells=0"), "override 'model.cells=0': must be >= 1, got 0");
  EXPECT_EQ(typed_error("model.cels=3"), "override 'model.cels=3': unknown key model.cels (did you mean 'cells'?)");
  EXPECT_EQ(typed_error("model={cells: x}"), "override 'model={cells: x}': model.cells: expected an integer, got 'x'");
}

}  // namespace
}  // namespace lmx::app
