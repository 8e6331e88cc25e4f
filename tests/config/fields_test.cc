// Typed configs: what is read, refused, written and described from one list of fields.
#include <chrono>

#include "config/error_collector.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;

struct Inner {
  int64_t every = 10;
  double decay = 0.5;
  void fields(Fields& f) {
    f.field("every", every, "steps between two", kPositive);
    f.field("decay", decay, "factor", {0, 1, true});
  }
};

struct Sample {
  int64_t cells = 1024;
  double rate = 0.1;
  bool tied = false;
  std::string label = "none";
  std::string kind = "adam";
  std::vector<int64_t> sizes{1, 2};
  std::vector<double> betas{0.9, 0.999};
  std::vector<std::string> langs{"de"};
  Inner inner;
  Node rest;
  void fields(Fields& f) {
    f.field("cells", cells, "cells of a layer", kPositive);
    f.field("rate", rate, "learning rate", {0, 10, false});
    f.field("tied", tied, "share the tables");
    f.field("label", label, "free text");
    f.choice("kind", kind, {"adam", "sgd", "adagrad"}, "the optimizer");
    f.field("sizes", sizes, "sizes", kPositive);
    f.field("betas", betas, "betas", kFraction);
    f.field("langs", langs, "languages");
    f.group("inner", inner, "a group");
    f.subtree("rest", rest, "another component's");
  }
};

Sample read(const std::string& yaml) {
  return read_config<Sample>(parse_yaml(yaml, "x.yaml"), "model");
}
std::string read_error(const std::string& yaml) {
  return user_error([&] { read(yaml); });
}

TEST(ConfigReader, DefaultsStayWhereNothingIsGiven) {
  for (const char* yaml : {"", "{}", "name: sample\n", "inner:\n", "inner: {}\n"}) {
    const Sample s = read(yaml);
    EXPECT_EQ(s.cells, 1024);
    EXPECT_EQ(s.inner.every, 10);
    EXPECT_EQ(s.sizes, (std::vector<int64_t>{1, 2}));
  }
}

TEST(ConfigReader, ReadsEveryType) {
  const Sample s = read(
      "cells: 1_000\nrate: 2\ntied: true\nlabel: 12\nkind: sgd\nsizes: [3]\nbetas: [0, 1e-1]\nlangs: [en, 'no']\n"
      "inner: {every: 7, decay: 1.0}\nrest: {deep: [1]}\n");
  EXPECT_EQ(s.cells, 1000);
  EXPECT_EQ(s.rate, 2.0);
  EXPECT_TRUE(s.tied);
  EXPECT_EQ(s.label, "12");
  EXPECT_EQ(s.kind, "sgd");
  EXPECT_EQ(s.sizes, std::vector<int64_t>{3});
  EXPECT_EQ(s.betas, (std::vector<double>{0, 0.1}));
  EXPECT_EQ(s.langs, (std::vector<std::string>{"en", "no"}));
  EXPECT_EQ(s.inner.every, 7);
  EXPECT_EQ(s.rest.at_path("deep.0")->text, "1");
}

struct Bad {
  const char* yaml;
  const char* message;
};

TEST(ConfigReader, EachMistakeHasItsMessage) {
  const Bad cases[] = {
      {"celsl: 3", "x.yaml:1:1: unknown key model.celsl (did you mean 'cells'?)"},
      {"inner:\n  evry: 3", "x.yaml:2:3: unknown key model.inner.evry (did you mean 'every'?)"},
      {"inner: {whatever: 3}", "x.yaml:1:9: unknown key model.inner.whatever (allowed: every, decay)"},
      {"inner: {name: x}", "x.yaml:1:9: unknown key model.inner.name (allowed: every, decay)"},
      {"cells: abc", "x.yaml:1:8: model.cells: expected an integer, got 'abc'"},
      {"cells: '3'",
       "x.yaml:1:8: model.cells: expected an integer, got '3', a text; remove its quotes (an environment variable is a "
       "number as ${oc.decode:${oc.env:NAME}})"},
      {"cells: 1e3", "x.yaml:1:8: model.cells: expected an integer, got '1e3'; write it without point and exponent"},
      {"cells: 010",
       "x.yaml:1:8: '010' is octal to some readers of YAML and decimal to others; leave out the leading zero, or put "
       "it "
       "in quotes if it is a text"},
      {"cells: 99999999999999999999", "x.yaml:1:8: model.cells: 99999999999999999999 does not fit into 64 bits"},
      {"cells: 0", "x.yaml:1:8: model.cells: must be >= 1, got 0"},
      {"cells: [1]", "x.yaml:1:8: model.cells: expected an integer, got a list"},
      {"cells:", "x.yaml:1:1: model.cells: expected an integer, got null"},
      {"rate: fast", "x.yaml:1:7: model.rate: expected a number, got 'fast'"},
      {"rate: 0,5", "x.yaml:1:7: model.rate: expected a number, got '0,5'; the decimal point is written '.', as 0.5"},
      {"rate: '1'",
       "x.yaml:1:7: model.rate: expected a number, got '1', a text; remove its quotes (an environment variable is a "
       "number as ${oc.decode:${oc.env:NAME}})"},
      {"rate: 11", "x.yaml:1:7: model.rate: must be in [0, 10], got 11"},
      {"rate: .nan", "x.yaml:1:7: model.rate: expected a number, got '.nan'"},
      {"rate: '.inf'", "x.yaml:1:7: model.rate: expected a number, got '.inf'"},
      {"inner: {decay: 0}", "x.yaml:1:16: model.inner.decay: must be in (0, 1], got 0"},
      {"tied: yes",
       "x.yaml:1:7: 'yes' is true to some readers of YAML and a text to others; write true, or put it in quotes if it "
       "is a text"},
      {"tied: [true]", "x.yaml:1:7: model.tied: expected true or false, got a list"},
      {"tied: maybe", "x.yaml:1:7: model.tied: expected true or false, got 'maybe'"},
      {"label: ~", "x.yaml:1:8: model.label: expected a text, got null; write '' for an empty one"},
      {"label: {a: 1}", "x.yaml:1:8: model.label: expected a text, got a map"},
      {"kind: adm", "x.yaml:1:7: model.kind: expected one of adam, sgd, adagrad, got 'adm' (did you mean 'adam'?)"},
      {"kind: [sgd]", "x.yaml:1:7: model.kind: expected one of adam, sgd, adagrad, got a list"},
      {"sizes: 3", "x.yaml:1:8: model.sizes: expected a list of integers such as [1, 2], got '3'"},
      {"sizes: [1, x]", "x.yaml:1:12: model.sizes.1: expected an integer, got 'x'"},
      {"betas: [0.9, 2]", "x.yaml:1:14: model.betas.1: must be in [0, 1], got 2"},
      {"langs: de", "x.yaml:1:8: model.langs: expected a list of texts such as [a, b], got 'de'"},
      {"inner: 3", "x.yaml:1:8: model.inner: expected a map (key: value lines), got '3'"},
      {"- a", "x.yaml:1:1: model: expected a map (key: value lines), got a list"},
  };
  for (const Bad& c : cases) EXPECT_EQ(read_error(c.yaml), c.message) << c.yaml;
}

TEST(ConfigReader, TheRootHasNoNameToSkip) {
  EXPECT_EQ(user_error([] { read_config<Inner>(parse_yaml("name: x", "x.yaml"), ""); }),
            "x.yaml:1:1: unknown key name (allowed: every, decay)");
}

TEST(ConfigReader, AKeyOfAnotherPartIsFoundThere) {
  const auto whole = [](const std::string& yaml) {
    return user_error([&] { read_config<Sample>(parse_yaml(yaml, "x.yaml"), ""); });
  };
  EXPECT_EQ(whole("cells: 3\nevery: 3"), "x.yaml:2:1: unknown key every (did you mean 'inner.every'?)");
  EXPECT_EQ(whole("inner: {cells: 3}"), "x.yaml:1:9: unknown key inner.cells (did you mean 'cells'?)");
  EXPECT_EQ(whole("rest: {lr: 1}\nlr: 3"), "x.yaml:2:1: unknown key lr (did you mean 'rest.lr'?)");
  EXPECT_EQ(whole("rest: {a: {every: 1}}\nevery: 3"),
            "x.yaml:2:1: unknown key every (did you mean 'inner.every' or 'rest.a.every'?)");
  EXPECT_EQ(whole("rest: {a: {x: 1}, b: {x: 1}, c: {x: 1}, d: {x: 1}}\nx: 3").find("did you mean"), std::string::npos);
  EXPECT_EQ(whole("inner: {evry: 3}"), "x.yaml:1:9: unknown key inner.evry (did you mean 'every'?)");
}

// A key's own line, not that of what stands below it.
TEST(ConfigReader, UnknownKeysAreListedTogetherAtTheirKeys) {
  EXPECT_EQ(read_error("optimzer:\n  lr: 1\ninner: {evry: 3, decay: 1}\ncelsl: 3"),
            "3 unknown keys:\n"
            "  x.yaml:3:9: unknown key model.inner.evry (did you mean 'every'?)\n"
            "  x.yaml:1:1: unknown key model.optimzer (allowed: cells, rate, tied, label, kind, sizes, betas, langs, "
            "inner, rest)\n"
            "  x.yaml:4:1: unknown key model.celsl (did you mean 'cells'?)");
}

struct Needs {
  std::string path;
  int64_t size = 0;
  Inner inner;
  void fields(Fields& f) {
    f.required("path", path, "where the corpus lies");
    f.required("size", size, "words of the vocabulary", kPositive);
    f.group("inner", inner, "a group");
  }
};

TEST(ConfigReader, MissingValuesAreListedTogether) {
  const auto error = [](const std::string& yaml) {
    return user_error([&] { read_config<Needs>(parse_yaml(yaml, "x.yaml"), "data"); });
  };
  EXPECT_EQ(error("path: a\nsize: 3"), "no error");
  EXPECT_EQ(error("path: a\nsize: 0"), "x.yaml:2:7: data.size: must be >= 1, got 0");
  EXPECT_EQ(error("path: \?\?\?\nsize: 1"),
            "x.yaml:1:7: data.path: required, but not given (where the corpus lies); set data.path=...");
  EXPECT_EQ(error("size: '\?\?\?'\ninner: {every: '\?\?\?'}"),
            "3 required values are not given:\n"
            "  x.yaml:1:1: data.path: required, but not given (where the corpus lies); set data.path=...\n"
            "  x.yaml:1:7: data.size: required, but not given (words of the vocabulary); set data.size=...\n"
            "  x.yaml:2:16: data.inner.every: required, but not given; set data.inner.every=...");
  EXPECT_EQ(error("pth: a\nsize: 1"), "x.yaml:1:1: unknown key data.pth (did you mean 'path'?)");
}

TEST(CheckMissing, ListsTheWholeTree) {
  EXPECT_NO_THROW(check_missing(parse_yaml("a: 1", "x.yaml")));
  EXPECT_EQ(user_error([] { check_missing(parse_yaml("a: {b: '\?\?\?'}\nc: [1, '\?\?\?']", "x.yaml")); }),
            "2 required values are not given:\n"
            "  x.yaml:1:8: a.b: required, but not given; set a.b=...\n"
            "  x.yaml:2:8: c.1: required, but not given; set c.1=...");
}

TEST(ConfigWriter, WritesEveryFieldInDeclaredOrder) {
  Sample s;
  s.label = "12";
  s.rate = 1;
  s.rest = parse_yaml("name: other\nk: 1\n", "x.yaml");
  EXPECT_EQ(
      to_yaml(write_config(s)),
      "cells: 1024\nrate: 1.0\ntied: false\nlabel: '12'\nkind: adam\nsizes: [1, 2]\nbetas: [0.9, 0.999]\nlangs: [de]\n"
      "inner:\n  every: 10\n  decay: 0.5\nrest:\n  name: other\n  k: 1\n");
}

TEST(ConfigWriter, WhatIsWrittenReadsBackExactly) {
  Sample s;
  for (const double rate : {0.1, 1.0 / 3, 1e-300, 5e-324, 1.5, 0.0, 9.999999999999998}) {
    s.rate = rate;
    s.label = "- a: 'b' # \n\t\"${x}\"";
    s.langs = {"no", "12", "", "a, b"};
    const Sample back = read(to_yaml(write_config(s)));
    EXPECT_EQ(back.rate, rate);
    EXPECT_EQ(back.label, s.label);
    EXPECT_EQ(back.langs, s.langs);
    EXPECT_EQ(to_yaml(write_config(back)), to_yaml(write_config(s)));
  }
}

TEST(ConfigDescriber, OneRowPerField) {
  const std::vector<FieldInfo> rows = describe_config<Sample>();
  ASSERT_EQ(rows.size(), 11u);
  EXPECT_EQ(rows[0].name, "cells");
  EXPECT_EQ(rows[0].type, "int");
  EXPECT_EQ(rows[0].default_text, "1024");
  EXPECT_EQ(rows[0].range, ">= 1");
  EXPECT_EQ(rows[0].help, "cells of a layer");
  EXPECT_EQ(rows[4].range, "one of adam, sgd, adagrad");
  EXPECT_EQ(rows[6].default_text, "[0.9, 0.999]");
  EXPECT_EQ(rows[9].name, "inner.decay");
  EXPECT_EQ(rows[9].range, "in (0, 1]");
  EXPECT_EQ(describe_config<Needs>()[0].default_text, "\?\?\?");
}

// Errors of independent checks are reported together.

TEST(TogetherTest, OneMistakeStaysWhatItIs) {
  ErrorCollector errors;
  errors.throw_any();
  EXPECT_TRUE(errors.keep([] {}));
  EXPECT_FALSE(errors.keep([] { throw UserError("a"); }));
  EXPECT_EQ(user_error([&] { errors.throw_any(); }), "a");
  EXPECT_EQ(user_error([&] { fail_together({"b"}, "unknown keys"); }), "b");
  ErrorCollector keys;
  EXPECT_FALSE(keys.keep([] { fail_together({"c", "d"}, "unknown keys"); }));
  EXPECT_EQ(user_error([&] { keys.throw_any(); }), "2 unknown keys:\n  c\n  d");
}

TEST(TogetherTest, SeveralAreOneList) {
  ErrorCollector errors;
  errors.keep([] { fail_together({"a", "b"}, "unknown keys"); });
  errors.keep([] { throw UserError("c"); });
  EXPECT_EQ(user_error([&] { errors.throw_any(); }), "3 mistakes:\n  a\n  b\n  c");
  try {
    errors.throw_any();
  } catch (const UserError& e) {
    EXPECT_THAT(messages_of(e), ElementsAre("a", "b", "c"));
  }
  EXPECT_THAT(messages_of(UserError("d")), ElementsAre("d"));
}

// Only a user's mistakes wait for others.
TEST(TogetherTest, OtherErrorsAreThrownAtOnce) {
  ErrorCollector errors;
  EXPECT_THROW(errors.keep([] { throw RunError("a"); }), RunError);
}

// Patterns of parameter names: what they mean, and that no pattern takes the stack or the time of a run.

const std::vector<std::string> kNames{"embedding.weight", "lstm.0.bias", "mlstm.0.weight_mx", "softmax.weight"};

std::string refused(const std::string& text) {
  try {
    static_cast<void>(ParamPattern(text, "r.yaml:3:9: clip.0.params: ").select(kNames));
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(ParamPattern, IsSearchedForInTheName) {
  const auto found = [](const std::string& text) { return ParamPattern(text).select(kNames); };
  EXPECT_THAT(found("lstm"), ElementsAre("lstm.0.bias", "mlstm.0.weight_mx"));
  EXPECT_THAT(found("^lstm"), ElementsAre("lstm.0.bias"));
  EXPECT_THAT(found("embedding|softmax"), ElementsAre("embedding.weight", "softmax.weight"));
  EXPECT_THAT(found("\\.weight$"), ElementsAre("embedding.weight", "softmax.weight"));
  EXPECT_THAT(found(".*"), testing::ElementsAreArray(kNames));
  EXPECT_THAT(found(""), testing::ElementsAreArray(kNames));
  EXPECT_FALSE(ParamPattern("Softmax").matches("softmax.weight"));
}

TEST(ParamPattern, ErrorsBeginWithThePlace) {
  EXPECT_THAT(refused("sofmax"),
              AllOf(Names("'sofmax'", "embedding.weight, lstm.0.bias, mlstm.0.weight_mx, softmax.weight"),
                    StartsWith("r.yaml:3:9: clip.0.params: ")));
  for (const char* wrong : {"[", "(", "a{2,1}", "*", "(?!softmax)", "(a)\\1"})
    EXPECT_THAT(refused(wrong), AllOf(Names("regular expression"), StartsWith("r.yaml:3:9: clip.0.params: "))) << wrong;
}

// std::regex overflows its stack on the first and takes hours for the last.
TEST(ParamPattern, DepthAndLengthAndTimeAreBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '(') + "softmax" + std::string(depth, ')'); };
  EXPECT_EQ(refused(nested(2000)), "");
  const std::string longest = refused(nested(200'000));
  EXPECT_THAT(longest, Names("400007", "4096"));
  EXPECT_LT(longest.size(), 300u);
  EXPECT_THAT(refused("((a{900}){900}){900}"), Names("clip.0.params"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(ParamPattern("^(a+)+$").matches(std::string(10'000, 'a') + "b"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace

}  // namespace lmx
