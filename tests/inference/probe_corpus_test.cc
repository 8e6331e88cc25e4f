// Probes over corpora of the registry, alone and as part of an experiment, and their plots.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "names.h"
#include "patterns.h"
#include "process/bytes_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

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
  Outcome with_data(std::vector<std::string> words, int code = 0) const {
    auto settings = environment();
    settings["LMX_DATA_DIR"] = path("data");
    Outcome o = run_lmx(std::move(words), settings);
    EXPECT_EQ(o.code, code) << o.err;
    return o;
  }
};

TEST_F(ProbeCorpus, SplitsOfItsOwnOrDrawn) {
  ASSERT_EQ(run("a").code, 0);
  const Outcome sst = with_data({"probe", path("a"), "--corpus", "sst2", "--save", path("s")});
  EXPECT_THAT(sst.out, HasSubstr("texts train 60, valid 20, test 30; units 12\n"));
  // The same texts given as files give the same result.
  const Outcome files =
      with_data({"probe", path("a"), "--train", path("data/sst2/train.csv"), "--valid", path("data/sst2/val.csv"),
                 "--test", path("data/sst2/test.csv"), "--save", path("f")});
  EXPECT_EQ(number_behind(sst.out, "l2 test_accuracy_percent"), number_behind(files.out, "l2 test_accuracy_percent"));
  EXPECT_EQ(read_file(path("s-test.safetensors")), read_file(path("f-test.safetensors")));
  ASSERT_EQ(run_process({"/bin/bash", "-c", "gzip " + path("data/sst2/train.csv")}).code, 0);
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
  ASSERT_EQ(run("a").code, 0);
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
