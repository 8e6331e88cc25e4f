// Logistic regression compared with scikit-learn, the choice of C, the strongest unit, files of features, and errors.
#include "app/probe/transfer.h"

#include <algorithm>
#include <cmath>

#include "lmx/random.h"
#include "process/text_fixtures.h"
#include "runfiles/checkpoint.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Folder : public testing::Test, protected lmx_test::TempFolder {};

TEST(Logistic, EqualsScikitLearn) {
  std::ifstream file(lmx_test::source_path("/tests/inference/golden/logistic.json"));
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 2U);
  for (const auto& c : cases) {
    FeatureMatrix f;
    f.rows = c.at("rows");
    f.columns = c.at("columns");
    f.values = c.at("features").get<std::vector<float>>();
    f.labels = c.at("labels").get<std::vector<int>>();
    for (const auto& golden : c.at("fits")) {
      const LinearModel m = fit_logistic(f, golden.at("penalty"), golden.at("c"));
      const std::string which = golden.at("penalty").get<std::string>() + " " + golden.at("c").dump();
      EXPECT_TRUE(m.converged) << which;
      const double wanted = golden.at("objective");
      EXPECT_NEAR(m.objective, wanted, 1e-5 * wanted) << which;
      EXPECT_NEAR(m.bias, golden.at("bias").get<double>(), 2e-3) << which;
      for (size_t j = 0; j < m.weights.size(); ++j)
        EXPECT_NEAR(m.weights[j], golden.at("weights")[j].get<double>(), 2e-3) << which << ", weight " << j;
    }
  }
}

// Two classes that unit 3 separates, among noise.
FeatureMatrix made_up(int64_t rows, uint64_t seed) {
  const RandomKey key(seed);
  FeatureMatrix f;
  f.rows = rows;
  f.columns = 10;
  for (int64_t r = 0; r < rows; ++r) {
    f.labels.push_back(static_cast<int>(r % 2));
    for (int64_t c = 0; c < 10; ++c) {
      const double noise = key.normal(static_cast<uint64_t>(r * 10 + c));
      f.values.push_back(static_cast<float>(c == 3 ? noise - (r % 2 ? 3.0 : -3.0) : noise));
    }
  }
  return f;
}

// Above 1,024 columns L-BFGS replaces Newton's method. Columns of zeros change nothing, so the solution must be equal.
TEST(Logistic, ManyColumnsHaveTheSolutionOfFew) {
  const FeatureMatrix few = made_up(400, 4);
  FeatureMatrix many = few;
  many.columns = 1100;
  many.values.assign(400 * 1100, 0);
  for (size_t r = 0; r < 400; ++r)
    std::copy_n(few.values.begin() + static_cast<std::ptrdiff_t>(r * 10), 10,
                many.values.begin() + static_cast<std::ptrdiff_t>(r * 1100 + 300));
  for (const double c : {0.01, 1.0}) {
    const LinearModel a = fit_logistic(few, "l2", c), b = fit_logistic(many, "l2", c);
    EXPECT_TRUE(a.converged && b.converged) << c;
    EXPECT_NEAR(b.objective, a.objective, 1e-6 * a.objective) << c;
    EXPECT_NEAR(b.bias, a.bias, 1e-3) << c;
    for (size_t j = 0; j < 1100; ++j)
      EXPECT_NEAR(b.weights[j], j >= 300 && j < 310 ? a.weights[j - 300] : 0.0, 1e-3) << c << ", weight " << j;
  }
}

// Units that saturate hardly differ from a large mean. The bias compensates it in about as many steps.
TEST(Logistic, FarFromZeroIsTheSameProblem) {
  FeatureMatrix near = made_up(300, 1);
  for (float& v : near.values) v = std::round(v * 64) / 512;  // so that sums with 100 are exact
  FeatureMatrix far = near;
  for (float& v : far.values) v += 100;
  for (const char* penalty : {"l1", "l2"}) {
    const LinearModel a = fit_logistic(near, penalty, 4), b = fit_logistic(far, penalty, 4);
    EXPECT_TRUE(a.converged && b.converged) << penalty;
    EXPECT_LE(b.iterations, a.iterations + 2) << penalty;
    EXPECT_NEAR(b.objective, a.objective, 1e-9 * a.objective) << penalty;
    double sum = 0;
    for (size_t j = 0; j < a.weights.size(); ++j) {
      EXPECT_NEAR(b.weights[j], a.weights[j], 1e-5) << penalty;
      sum += b.weights[j];
    }
    EXPECT_NEAR(b.bias, a.bias - 100 * sum, 1e-5) << penalty;
  }
}

TEST(Probe, FindsTheUnitThatTellsTheClassesApart) {
  const ProbeResult r = probe(made_up(300, 1), made_up(100, 2), made_up(200, 3), {});
  ASSERT_EQ(r.fits.size(), 2U);
  for (const ProbeFit& f : r.fits) {
    EXPECT_GT(f.test, 0.98) << f.penalty;
    EXPECT_EQ(std::log2(f.c), std::round(std::log2(f.c)));
    EXPECT_TRUE(f.c >= std::ldexp(1, -8) && f.c <= 1);
  }
  EXPECT_EQ(r.strongest.unit, 3);
  EXPECT_LT(r.strongest.weight, 0);
  EXPECT_NEAR(r.strongest.threshold, 0, 0.6);
  EXPECT_GT(r.strongest.test, 0.98);
  EXPECT_EQ(r.fits[1].used, 10) << "L2 must set no weight to 0";
}

TEST(Probe, ChoosesTheLeastOfEquallyGoodC) {
  ProbeOptions o;
  o.penalties = {"l2"};
  o.c = {8, 0.5, 4};
  const ProbeResult r = probe(made_up(300, 1), made_up(20, 2), {}, o);
  EXPECT_EQ(r.fits[0].valid, 1);
  EXPECT_EQ(r.fits[0].c, 0.5);
  EXPECT_EQ(r.fits[0].test, 0);
}

TEST(Probe, StandardisedUnitsAndConstantOnes) {
  FeatureMatrix train = made_up(300, 1), valid = made_up(100, 2), test = made_up(100, 3);
  for (FeatureMatrix* f : {&train, &valid, &test})
    for (size_t i = 0; i < f->values.size(); ++i)
      f->values[i] = i % 10 == 5 ? 7.0F : i % 10 == 3 ? 1000 + 0.001F * f->values[i] : f->values[i];
  ProbeOptions o;
  o.standardise = true;
  const ProbeResult r = probe(train, valid, test, o);
  EXPECT_GT(r.fits[0].test, 0.9);  // the remaining precision of unit 3 in f32
  EXPECT_EQ(r.strongest.unit, 3);
  EXPECT_EQ(r.fits[1].model.weights[5], 0) << "a constant unit must get no weight";
  EXPECT_NEAR(r.strongest.threshold, 1000, 0.01) << "the threshold must be on the scale of the features";
}

TEST(Probe, MistakesAreNamed) {
  const FeatureMatrix good = made_up(40, 1);
  FeatureMatrix one = good, narrow = good, bare = good, none = good;
  none.columns = 0;
  none.values.clear();
  EXPECT_THAT(user_error([&] { probe(none, none, {}, {}); }), Names("training features", "no units"));
  one.labels.assign(40, 1);
  narrow.columns = 5;
  narrow.values.resize(200);
  bare.labels.clear();
  EXPECT_THAT(user_error([&] { probe(one, good, {}, {}); }), Names("40", "label 1"));
  EXPECT_THAT(user_error([&] { probe(good, bare, {}, {}); }), Names("validation features", "labels"));
  EXPECT_THAT(user_error([&] { probe(good, narrow, {}, {}); }), Names("10 columns", "validation features 5"));
  EXPECT_THAT(user_error([&] { probe(good, {}, {}, {}); }), Names("validation features", "no text"));
  ProbeOptions o;
  o.penalties = {"l3"};
  EXPECT_THAT(user_error([&] { probe(good, good, {}, o); }), Names("'l3'"));
  o.penalties = {"l1"};
  o.c = {0};
  EXPECT_THAT(user_error([&] { probe(good, good, {}, o); }), Names("[probe] C"));
}

using FeatureFile = Folder;

TEST_F(FeatureFile, BothFormatsReadBackToTheSameBits) {
  FeatureMatrix f = made_up(7, 5);
  f.values[3] = 1e-30F;
  for (const char* name : {"f.csv", "f.safetensors"}) {
    for (const bool labelled : {true, false}) {
      FeatureMatrix wanted = f;
      if (!labelled) wanted.labels.clear();
      save_features(wanted, path(name));
      const FeatureMatrix back = load_features(path(name));
      EXPECT_EQ(back.values, wanted.values) << name;
      EXPECT_EQ(back.labels, wanted.labels) << name;
      EXPECT_EQ(back.columns, 10);
      EXPECT_EQ(back.rows, 7);
    }
  }
}

TEST_F(FeatureFile, DamagedOnesAreNamed) {
  EXPECT_THAT(user_error([&] { load_features(write("a.csv", "label,f0\n1,0.5\n2,1\n")); }), Names("a.csv:3:", "'2'"));
  EXPECT_THAT(user_error([&] { load_features(write("a.csv", "f0,f1\n1,x\n")); }), Names("a.csv:2:", "'x'"));
  EXPECT_THAT(user_error([&] { load_features(write("a.csv", "f0,f1\n1\n")); }), Names("a.csv:2: 1 fields"));
}

TEST_F(FeatureFile, ValuesThatAreNone) {
  const auto error = [&](const Tensor& features, const Tensor& labels) {
    save_safetensors(path("x.safetensors"), {{"features", features}, {"labels", labels}}, {});
    return user_error([&] { load_features(path("x.safetensors")); });
  };
  const auto allocator = Allocator::cpu();
  const auto numbers = [&](float last) {
    return Tensor::from<float>(allocator, {2, 2}, std::vector<float>{1, 2, 3, last});
  };
  const auto labels = [&](int32_t last) {
    return Tensor::from<int32_t>(allocator, {2}, std::vector<int32_t>{0, last});
  };
  EXPECT_EQ(error(numbers(4), labels(1)), "no error");
  EXPECT_THAT(error(numbers(NAN), labels(1)), Names("x.safetensors, row 1: unit 1", "nan"));
  EXPECT_THAT(error(numbers(4), labels(2)), Names("labels: row 1 is 2"));
  EXPECT_THAT(error(numbers(4), numbers(4)), Names("labels:", "i32", "f32"));
  EXPECT_THAT(user_error([&] { load_features(write("a.csv", "f0,f1\n1,nan\n")); }), Names("'nan'"));
  EXPECT_THAT(user_error([&] { load_features(write("a.csv", "f0,f1\n1,-1e39\n")); }), Names("'-1e39'", "too large"));
}

using Labelled = Folder;

// All files of a probe use the same mapping of classes.
TEST_F(Labelled, ClassesOfAnotherFile) {
  const LabelledTexts train = read_labelled(write("a.csv", "t,l\nx,1\ny,2\n"), "t", "l");
  EXPECT_EQ(train.classes, (Words{"1", "2"}));
  const std::string test = write("b.csv", "t,l\nx,1\ny,1\n");
  EXPECT_EQ(read_labelled(test, "t", "l", train.classes).labels, (std::vector<int>{0, 0}));
  EXPECT_EQ(read_labelled(write("c.csv", "t,l\nx,2\n"), "t", "l", train.classes).labels, std::vector<int>{1});
  EXPECT_EQ(read_labelled(path("a.csv"), "t", "l", {"2", "1"}).labels, (std::vector<int>{1, 0}));
  EXPECT_THAT(user_error([&] { read_labelled(path("c.csv"), "t", "l"); }), Names("c.csv", "1 label (2)", "--classes"));
  EXPECT_THAT(user_error([&] {
                read_labelled(path("c.csv"), "t", "l", {"0", "1"});
              }),
              Names("c.csv:2:", "'2'", "'0'", "'1'"));
}

TEST_F(Labelled, FilesByTheirNames) {
  const std::string lines = "{\"t\": \"x\", \"l\": 1}\n{\"t\": \"y\", \"l\": 0}\n";
  for (const char* name : {"a.jsonl", "a.ndjson"})
    EXPECT_EQ(read_labelled(write(name, lines), "t", "l").labels, (std::vector<int>{1, 0})) << name;
  EXPECT_THAT(user_error([&] { read_labelled(write("b.jsonl", "{\"t\": \"\\ud800\"}\n"), "t", ""); }),
              Names("b.jsonl:1:", "JSON", "surrogate"));
  EXPECT_THAT(user_error([&] { read_labelled(write("c.csv", ""), "t", ""); }), Names("c.csv", "empty"));
}

TEST_F(Labelled, NumbersOrTwoWords) {
  const LabelledTexts a = read_labelled(write("a.csv", "label,text\n1,\"x, y\"\n0,z\n"), "text", "label");
  EXPECT_EQ(a.texts, (Words{"x, y", "z"}));
  EXPECT_EQ(a.labels, (std::vector<int>{1, 0}));
  const LabelledTexts b = read_labelled(write("b.csv", "t,l\nx,pos\ny,neg\nz,pos\n"), "t", "l");
  EXPECT_EQ(b.labels, (std::vector<int>{1, 0, 1}));
  EXPECT_TRUE(read_labelled(path("b.csv"), "t", "").labels.empty());
  EXPECT_THAT(user_error([&] { read_labelled(write("c.csv", "t,l\nx,1\ny,2\nz,3\n"), "t", "l"); }),
              Names("3 different labels (1, 2, 3)", "two classes"));
  EXPECT_THAT(user_error([&] { read_labelled(path("c.csv"), "text", "l"); }), Names("'text'", "t, l"));
  EXPECT_THAT(user_error([&] { read_labelled(write("d.csv", "t,l\n"), "t", "l"); }), Names("no text"));
  EXPECT_THAT(user_error([&] { read_labelled(write("e.csv", "t,l\nx\n"), "t", "l"); }),
              Names("e.csv:2: a record of 1"));
}

}  // namespace
}  // namespace lmx::app

// Probes over corpora of the registry, alone and as part of an experiment, and their plots.

namespace lmx_test {
namespace {

using Json = nlohmann::json;

class ProbeCorpus : public BytesRun {
 protected:
  ProbeCorpus() {
    fs::create_directories(folder_ / "data/sst2");
    fs::create_directories(folder_ / "data/movie-reviews");
    write("data/sst2/train.csv", texts(60, 0));
    write("data/sst2/val.csv", texts(20, 1));
    write("data/sst2/test.csv", texts(30, 2));
    write("data/movie-reviews/reviews.csv", texts(100, 3));
  }
  static std::string texts(int count, int seed) {
    std::string csv = "label,sentence\n";
    for (int i = 0; i < count; ++i)
      csv += std::to_string(i % 2) + (i % 2 ? ",a good film of the year " : ",a bad one and dull as ") +
             std::string(static_cast<size_t>((i * 5 + seed) % 7), 'x') + "\n";
    return csv;
  }
  Outcome with_data(Words words, int code = 0) const {
    auto settings = environment();
    settings["LMX_DATA_DIR"] = path("data");
    Outcome o = run_lmx(std::move(words), settings);
    EXPECT_EQ(o.code, code) << o.err;
    return o;
  }
};

TEST_F(ProbeCorpus, SplitsOfItsOwnOrDrawn) {
  ASSERT_THAT(run("a"), Succeeds());
  const Outcome sst = with_data({"probe", path("a"), "--corpus", "sst2", "--save", path("s")});
  EXPECT_THAT(sst.out, HasSubstr("texts train 60, valid 20, test 30; units 12\n"));
  // The same texts given as files give the same result.
  const Outcome files =
      with_data({"probe", path("a"), "--train", path("data/sst2/train.csv"), "--valid", path("data/sst2/val.csv"),
                 "--test", path("data/sst2/test.csv"), "--save", path("f")});
  EXPECT_EQ(number_behind(sst.out, "l2 test_accuracy_percent"), number_behind(files.out, "l2 test_accuracy_percent"));
  EXPECT_EQ(read_file(path("s-test.safetensors")), read_file(path("f-test.safetensors")));
  ASSERT_THAT(run_process({"/bin/bash", "-c", "gzip " + path("data/sst2/train.csv")}), Succeeds());
  with_data({"features", path("a"), path("data/sst2/train.csv.gz"), "--out", path("gz.safetensors")});
  EXPECT_EQ(read_file(path("gz.safetensors")), read_file(path("s-train.safetensors")));
  EXPECT_THAT(with_data({"probe", path("a"), "--corpus", "movie_reviews"}).out,
              HasSubstr("texts train 80, valid 10, test 10;"));
  EXPECT_THAT(with_data({"probe", path("a"), "--corpus", "gutenberg"}, 2).err,
              Names("'gutenberg'", "sst2", "movie_reviews"));
  EXPECT_THAT(with_data({"probe", path("a"), "--corpus", "sst2"}, 2).err, Names("'sst2'", "train.csv"));
}

// The bars of both classes together contain all training texts.
TEST_F(ProbeCorpus, AHistogramHasEveryText) {
  ASSERT_THAT(run("a"), Succeeds());
  with_data({"probe", path("a"), "--corpus", "sst2", "--histogram", path("u.svg"), "--c", "1000"});
  const std::string page = read_file(path("u.svg"));
  int sums[2] = {0, 0};
  for (const Match& bar : all_matches(page, "<title>label ([01]), [^<]* to [^<]*: ([0-9]+) texts</title>"))
    sums[std::stoi(bar[1])] += std::stoi(bar[2]);
  EXPECT_EQ(sums[0], 30) << page.substr(0, 2000);
  EXPECT_EQ(sums[1], 30);
}

// An experiment's records of a run equal the output of the commands for it.
TEST_F(ProbeCorpus, AnExperimentProbesItsRuns) {
  fs::create_directory(folder_ / "experiments");
  std::string text =
      "title: T\npaper: P\nscales: {desk: {recipe: ../tiny.yaml}}\naxes: {seed: [1, 2]}\noverrides: "
      "['seed=${seed}']\nevaluate: [test]\nshards: 3\nprobe: [sst2, movie_reviews]\nmeasures:\n"
      "  bpc: {split: test, key: shards/bpc}\n  ratio: {split: test, key: compression_ratio}\n";
  for (const char* key : {"sst2/l1", "sst2/l2", "sst2/strongest_unit", "sst2/bytes_l2", "movie_reviews/l2"}) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '_');
    text += "  " + name + ": {split: probe, key: " + key + "}\n";
  }
  write("experiments/probe.yaml", text);
  with_data({"experiment", "run", path("experiments/probe.yaml"), "--out", path("out"), "--keep-checkpoints"});
  const Json results = Json::parse(read_file(path("out/results.json")));
  for (const Json& cell : results["cells"]) {
    const std::string run = path("out/cells/" + cell["id"].get<std::string>());
    const std::string eval = with_data({"eval", run, "--split", "test", "--shards", "3"}).out,
                      sst = with_data({"probe", run, "--corpus", "sst2", "--bag-of-bytes"}).out,
                      reviews = with_data({"probe", run, "--corpus", "movie_reviews"}).out;
    const auto near = [&](const char* measure, const std::string& out, const char* name, double by) {
      EXPECT_NEAR(cell["measured"][measure].get<double>(), number_behind(out, name), by) << measure;
    };
    near("bpc", eval, "test bpc_3_shards", 1e-5);
    near("ratio", eval, "test compression_ratio", 1e-3);
    near("sst2_l1", sst, "l1 test_accuracy_percent", 0.006);
    near("sst2_l2", sst, "l2 test_accuracy_percent", 0.006);
    if (sst.find("strongest_unit none") == std::string::npos)
      near("sst2_strongest_unit", sst, "strongest_unit test_accuracy_percent", 0.006);
    near("sst2_bytes_l2", sst, "bag_of_bytes l2 test_accuracy_percent", 0.006);
    near("movie_reviews_l2", reviews, "l2 test_accuracy_percent", 0.006);
  }
  EXPECT_EQ(results["cells"].size(), 2U);
}

}  // namespace
}  // namespace lmx_test
