// The state that a resumed sweep reads: its folder, sweep.json and the recipes of its points.
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

class SweepResumed : public SweepTest {
 protected:
  // A sweep of two points that has ended.
  void swept(const Words& more = {"seed=1,2"}) const {
    ASSERT_THAT(sweep("out", joined({"train.steps=2"}, more)), Succeeds());
  }
  void change(const std::function<void(Json&)>& what) const {
    Json json = plan("out");
    what(json);
    write("out/sweep.json", json.dump());
  }
  // As in a sweep of an lmx that did not record them.
  void forget_hashes() const {
    change([](Json& json) {
      for (Json& point : json["points"]) point.erase("sha256");
    });
  }
  // The last point has neither a run nor an event.
  void forget_last_point() const {
    std::string kept;
    for (const Json& event : events("out"))
      if (event["point"] != ids("out").back()) kept += event.dump() + "\n";
    write("out/journal.jsonl", kept);
    fs::remove_all(folder_ / "out/points" / ids("out").back());
  }
  Outcome in(const std::string& directory, const Words& more) const {
    return run_process(
        joined({"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", path(directory), build_path("/bin/lmx"), "sweep"}, more),
        environment());
  }
  void expect_damaged(const std::function<void(Json&)>& damage, const std::string& fact) const {
    const std::string whole = read_file(folder_ / "out/sweep.json");
    change(damage);
    const auto told = AllOf(HasSubstr("error: [sweep] " + path("out/sweep.json") + " is damaged: "), HasSubstr(fact));
    EXPECT_THAT(resume("out"), Refuses(told)) << fact;
    EXPECT_THAT(run_lmx({"report", path("out"), "--json"}, environment()), Refuses(told)) << fact;
    write("out/sweep.json", whole);
  }
};

// Relative paths in the recipe mean the same files for every point.
TEST_F(SweepResumed, ContinuesInTheFolderWhereItBegan) {
  for (const char* directory : {"a", "b"}) {
    fs::create_directory(folder_ / directory);
    std::string words;
    for (int i = 0; i < 200; ++i) words += std::string(directory) + "a b c d a b d " + directory + "\n";
    write(std::string(directory) + "/words.txt", words);
  }
  std::string recipe = kTinyRecipe;
  const size_t at = recipe.find("data: {"), end = recipe.find('\n', at);
  write("text.yaml", recipe.replace(at, end - at, "data: {name: text, files: [words.txt], vocab_size: 6}"));
  ASSERT_THAT(in("a", {path("text.yaml"), "--out", path("out"), "loss.samples=2", "train.steps=2", "seed=1,2"}),
              Succeeds());
  forget_last_point();
  EXPECT_THAT(in("b", {"--resume", "../out"}), Warns("the points run in " + path("a")));
  EXPECT_EQ(count_ends("out", "done"), 2u);
  std::vector<Json> data;
  for (const std::string& id : ids("out"))
    data.push_back(Json::parse(read_file(folder_ / "out/points" / id / "provenance.json"))["starts"][0]["data"]);
  EXPECT_EQ(data[0]["hash"], data[1]["hash"]);

  fs::rename(folder_ / "a", folder_ / "c");
  EXPECT_THAT(in("b", {"--resume", "../out"}), Succeeds());  // nothing is left to run
  forget_last_point();
  EXPECT_THAT(in("b", {"--resume", "../out"}), Refuses("../out began in " + path("a"), "`directory`"));
  change([&](Json& json) { json["directory"] = path("c"); });
  EXPECT_THAT(in("b", {"--resume", "../out"}), Warns("the points run in " + path("c")));
  forget_last_point();
  change([](Json& json) { json.erase("directory"); });  // as in a sweep of an earlier lmx
  EXPECT_THAT(in("c", {"--resume", "../out"}), Succeeds());
}

TEST_F(SweepResumed, RefusesAPointWhoseRecipeHasChanged) {
  swept();
  const std::string file = "out/points/0-seed=1.yaml", recipe = read_file(path(file));
  std::string other = recipe;
  write(file, other.replace(other.find("lr: 0.01"), 8, "lr: 0.02"));
  const auto told = AllOf(HasSubstr("[sweep] " + path(file) + " has changed"), Not(HasSubstr("sweep.json")));
  EXPECT_THAT(resume("out"), Refuses(told));
  EXPECT_THAT(sweep("out", {"train.steps=2", "seed=1,2", "--resume", "auto"}), Refuses(told));
  write(file, recipe);
  EXPECT_THAT(resume("out"), Succeeds());
  forget_hashes();
  EXPECT_THAT(resume("out"), Succeeds());
}

TEST_F(SweepResumed, ADamagedRecipeOfAPointIsNamed) {
  swept();
  forget_hashes();
  const std::string file = "out/points/0-seed=1.yaml";
  const auto expect_told = [&](const std::string& text, const std::string& fact) {
    write(file, text);
    EXPECT_THAT(resume("out"), Refuses(AllOf(HasSubstr(path(file)), HasSubstr(fact), Not(HasSubstr("sweep.json")))));
  };
  expect_told("a: [", ":1:4: '['");
  expect_told("5", "is no recipe: expected keys with their values, got 5");
  expect_told("", "is missing or empty");
}

TEST_F(SweepResumed, ADamagedSweepIsRefused) {
  swept({"clip=1,2", "--seeds", "1,2"});
  expect_damaged([](Json& json) { json["format"] = 2; }, "'format' is 2");
  expect_damaged([](Json& json) { json["request"]["metric"] = "bogus"; }, "metric valid.bogus");
  expect_damaged([](Json& json) { json["request"]["halving"] = {{"eta", 3}, {"min", -5}}; }, "got -5");
  expect_damaged([](Json& json) { json["request"]["halving"] = {{"eta", -3}, {"min", 5}}; }, "eta is -3");
  expect_damaged([](Json& json) { json["request"]["halving"] = {{"eta", 1e300}, {"min", 5}}; }, "'eta'");
  expect_damaged([](Json& json) { json["points"].push_back(json["points"][0]); }, "0-clip=1-seed=1 is there twice");
  expect_damaged([](Json& json) { json["points"][1]["configuration"] = 1; }, "point 1-clip=1-seed=2");
  expect_damaged([](Json& json) { json["points"][0]["place"][0] = "7"; }, "0-clip=1-seed=1 is not on the axes");
  expect_damaged(
      [](Json& json) {
        json["axes"].erase(1);
        for (Json& point : json["points"]) point["place"].erase(1);
      },
      "`seed`");
  expect_damaged(
      [](Json& json) {
        json["axes"] = Json::array();
        json["points"].erase(json["points"].begin() + 1, json["points"].end());
        json["points"][0]["place"] = Json::array();
      },
      "`seed`");
  EXPECT_THAT(resume("out"), Succeeds());
}

TEST_F(SweepResumed, RefusesOptionsWithoutEffect) {
  swept();
  for (const Words& option : {Words{"--out", path("elsewhere")}, {"--plugin-dir", path("plugins")}})
    EXPECT_THAT(resume("out", option), Refuses(option[0], "with --resume"));
  EXPECT_THAT(sweep("elsewhere", {"seed=1,2", "--resume", path("out")}), Refuses("--out", "with --resume DIR"));
  EXPECT_FALSE(fs::exists(path("elsewhere")));
  EXPECT_THAT(resume("out", {"seed=3"}), Refuses("seed=3 is an override", "comes before it"));
  EXPECT_THAT(resume("out", {"--dry-run", "--metric", "train.lr", "--maximize"}), Prints("highest train lr"));
  EXPECT_THAT(resume("out", {"--dry-run", "--metric", "train.lrr"}), Refuses("'lrr'", "'lr'?"));
}

}  // namespace
}  // namespace lmx_test
